"""Which client owns which training rows: pure functions of (labels, clients, seed), some also of the rows' origins.

Every partitioner returns a list of `clients` arrays int64[n_k] of row numbers in ascending order: disjoint,
together all rows, none empty. Nothing is dropped where rows do not divide evenly: the first N mod K parts of
`iid` and `contiguous`, and the first shards of `shards`, are one row larger. `few`, `few_by_origin` and `writers`
differ: they make the small private sets of FedMD (Li and Wang, 2019) and leave most rows without an owner, and
`few_by_origin` may give one row to two clients. All raise ConfigError for fewer than one client or fewer rows than
clients.
"""

import contextlib
import functools
import inspect
import re
import typing
from collections.abc import Iterator, Sequence

import numpy as np

from fedkd.checks import numeric
from fedkd.checks.kinds import as_array, is_integer, what_is
from fedkd.checks.ranges import Annotated, Count, Factory, Positive, Range, Share, checked
from fedkd.errors import ConfigError

# What a config may name.
__all__ = ['by_origin', 'contiguous', 'dirichlet', 'few', 'few_by_origin', 'iid', 'shards', 'writers']

# One stream of random numbers per purpose, so that a seed never draws the same numbers for two of them.
IID, DIRICHLET, SHARDS, HOLD_OUT, SHARES, FEW, FEW_BY_ORIGIN, WRITERS = range(8)
MOST_REDRAWS = 1000
Concentration = Annotated[float, Range(above=0, most=10**6)]  # far beyond, the draw overflows


class SplitError(ConfigError):
  """An impossible split. It names the arguments of the partition, `clients`; `of_config` is the same sentence for the
  user of a config, with its fields, `data.clients`, from which the other is made unless it is given."""

  def __init__(self, of_config: str, of_arguments: str = ''):
    super().__init__(of_arguments or re.sub(r'\bdata\.(?=[a-z])', '', of_config))
    self.of_config = of_config


@contextlib.contextmanager
def naming_fields() -> Iterator[None]:
  """Around partitions that a config names: a SplitError becomes a ConfigError with the fields of the config."""
  try:
    yield
  except SplitError as error:
    raise ConfigError(error.of_config) from error


PER_ROW = ('labels', 'test_labels', 'origin')  # arguments with an entry per row


def partitioner(function: Factory) -> Factory:
  """`checked`, and arrays [N] for what has an entry per row: a pandas column's are by place, not by its index.

  Raises:
    ConfigError: by the function, for another shape.
  """
  names = list(inspect.signature(function).parameters)
  made = checked(function)

  @functools.wraps(function)
  def split(*args, **values):
    one = lambda name, value: _entries(name, value) if name in PER_ROW and value is not None else value
    return made(*map(one, names, args), *args[len(names) :], **{name: one(name, a) for name, a in values.items()})

  return typing.cast(Factory, split)


def _entries(name, value) -> np.ndarray:
  array = np.asarray(as_array(name, value, 'one for each row, [N]'))
  if array.ndim != 1:
    raise ConfigError(f'{name} is {what_is(array)}; give one for each row, [N]')
  return array


def check_clients(labels: np.ndarray, clients: int) -> None:
  """Raises SplitError for more clients than there are rows."""
  if len(labels) < clients:
    raise SplitError(
      f'data.clients={clients} is more than the {len(labels)} training examples, so a client would be empty; '
      f'set it to at most {len(labels)}'
    )


def classes_of(labels: np.ndarray) -> int:
  """How many classes labels have, those from 0 to the largest; ConfigError for labels that are no class numbers."""
  if not is_integer(labels.dtype) or labels.min() < 0:
    odd = labels.min() if is_integer(labels.dtype) else labels[0]
    raise ConfigError(
      f'labels has {odd!s} ({labels.dtype}); give class numbers from 0 up, as np.unique(labels, return_inverse=True) '
      'does'
    )
  return int(labels.max()) + 1


def empty(clients: int) -> list[list]:
  """A list for each client."""
  return [[] for _ in range(clients)]


def ascending(pieces: Sequence, what: str = 'row') -> list[np.ndarray]:
  """Per client its pieces int[...] as one array int64[n_k] in ascending order.

  Raises:
    ConfigError: for a client without a `what`.
  """
  parts = [np.sort(np.concatenate([np.zeros(0, np.int64), *own])).astype(np.int64) for own in pieces]
  check_filled(parts, what)
  return parts


def check_filled(parts: Sequence[np.ndarray], what: str = 'row') -> None:
  """Raises SplitError for a client without a `what`."""
  if empty := [k for k, part in enumerate(parts) if not len(part)]:
    raise SplitError(f'client {empty[0]} of the split has no {what}; lower data.clients or change data.partition')


def _cut(order, parts) -> list:
  """Cuts row numbers int[N] into contiguous parts, each sorted; the first N mod `parts` have one row more."""
  return [np.sort(part) for part in np.array_split(order, parts)]


@partitioner
def iid(labels: np.ndarray, clients: Positive, seed: int) -> list[np.ndarray]:
  """A random permutation cut into equal parts."""
  check_clients(labels, clients)
  return _cut(np.random.default_rng([seed, IID]).permutation(len(labels)), clients)


@partitioner
def contiguous(labels: np.ndarray, clients: Positive, seed: int) -> list[np.ndarray]:
  """Equal cuts of the rows in their given order, whatever the seed (code of FedHe, Chan and Ngai, 2021)."""
  del seed
  check_clients(labels, clients)
  return _cut(np.arange(len(labels)), clients)


@partitioner
def shards(labels: np.ndarray, clients: Positive, seed: int, per_client: Positive = 2) -> list[np.ndarray]:
  """Rows sorted by label, cut into clients * per_client shards, `per_client` random ones for each client.

  McMahan et al., Communication-efficient learning of deep networks from decentralized data, 2017. Rows of one
  label are shuffled first, since their order in the file may mean something.

  Raises:
    ConfigError: also if there are fewer rows than shards, or no shard for a client.
  """
  check_clients(labels, clients)
  count = clients * per_client
  if count > len(labels):
    raise SplitError(
      f'data.clients={clients} with {per_client} shards each need {count} examples, of which there are {len(labels)}; '
      f'lower data.clients to {len(labels) // per_client}, or choose another data.partition'
    )
  rng = np.random.default_rng([seed, SHARDS])
  shuffled = rng.permutation(len(labels))
  pieces = np.array_split(shuffled[np.argsort(labels[shuffled], kind='stable')], count)
  dealt = rng.permutation(count).reshape(clients, per_client)
  return [np.sort(np.concatenate([pieces[i] for i in own])) for own in dealt]


@partitioner
def dirichlet(
  labels: np.ndarray, clients: Positive, seed: int, concentration: Concentration = 0.5, smallest: Positive = 10
) -> list[np.ndarray]:
  """Label skew: every class is cut in random proportions from a symmetric Dirichlet distribution.

  Clients that already hold N / clients rows or more get nothing of the next class; the whole draw is repeated
  until every client has `smallest` rows (the published code of InCo, after Hsu et al., 2019).

  Args:
    labels: int[N].
    clients: number of parts, K.
    seed: of the draw.
    concentration: of the Dirichlet distribution; small is skewed, large is even.
    smallest: rows of the smallest client.

  Raises:
    ConfigError: also for a concentration out of range, an impossible `smallest`, or
      one that MOST_REDRAWS draws do not reach.
  """
  check_clients(labels, clients)
  if smallest * clients > len(labels):
    raise SplitError(
      f'data.smallest={smallest} examples for each of data.clients={clients} are not available from {len(labels)}; '
      f'set data.smallest between 1 and {len(labels) // clients}, or lower data.clients'
    )
  rng = np.random.default_rng([seed, DIRICHLET])
  for _ in range(MOST_REDRAWS):
    parts = _dirichlet_draw(rng, labels, clients, concentration)
    if min(map(len, parts)) >= smallest:
      return parts
  raise no_split(labels, clients, concentration, smallest)


def no_split(labels: np.ndarray, clients: int, concentration: float, smallest: int) -> SplitError:
  """The error where no draw gives every client `smallest` rows."""
  return SplitError(
    f'data.concentration={concentration} gave no split of {len(labels)} examples over data.clients={clients} in '
    f'which everyone has data.smallest={smallest}, in {MOST_REDRAWS} draws; lower data.smallest, raise '
    'data.concentration or lower data.clients'
  )


def dirichlet_counts(rng: np.random.Generator, rows: int, free: np.ndarray, concentration: float) -> np.ndarray:
  """How many of a class's `rows` each client gets, int[K]: Dirichlet shares among the `free`, bool[K]."""
  share = rng.dirichlet(np.full(len(free), concentration)) * free
  if not share.sum() > 0:  # a tiny concentration put all on full clients; in its limit one client gets a class
    share = rng.multinomial(1, free / free.sum())
  # The tolerance keeps a rounded-down sum from handing the class's last row to a full client.
  ends = np.floor(np.cumsum(share / share.sum())[:-1] * rows + 1e-9).astype(int)
  return np.diff(ends, prepend=0, append=rows)


def _dirichlet_draw(rng, labels, clients, concentration) -> list:
  owner = np.empty(len(labels), np.int64)
  held = np.zeros(clients, np.int64)
  for label in np.unique(labels):
    rows = rng.permutation(np.flatnonzero(labels == label))
    counts = dirichlet_counts(rng, len(rows), held < len(labels) / clients, concentration)
    owner[rows] = np.repeat(np.arange(clients), counts)
    held += counts
  return [np.flatnonzero(owner == k) for k in range(clients)]


@partitioner
def by_origin(labels: np.ndarray, clients: Positive, seed: int, origin: np.ndarray | None) -> list[np.ndarray]:
  """Client k owns the rows of origin k (its domain), whatever the seed.

  Args:
    labels: int[N].
    clients: number of parts, which must be that of the origins.
    seed: not used.
    origin: int[N], 0..clients-1, or None where the data set has none.

  Raises:
    ConfigError: if there are no origins, or their number is not that of the clients.
  """
  del seed
  check_clients(labels, clients)
  count = _count_origins(origin, labels)
  if clients != count:
    raise SplitError(
      f'data.clients={clients} does not fit data.partition=by_origin, since the data set has {count} owners; '
      f'set it to {count}'
    )
  return ascending([[np.flatnonzero(origin == k)] for k in range(clients)])


@partitioner
def few(labels: np.ndarray, clients: Positive, seed: int, per_class: Positive = 3) -> list[np.ndarray]:
  """`per_class` random rows of each class for each client, disjoint; the rest have no owner (FedMD, iid).

  Raises:
    ConfigError: also if a class has fewer than clients * per_class rows.
  """
  check_clients(labels, clients)
  _check_per_class(labels, per_class, clients, '')
  rng = np.random.default_rng([seed, FEW])
  drawn = [rng.permutation(np.flatnonzero(labels == c))[: clients * per_class] for c in np.unique(labels)]
  dealt = np.stack(drawn, axis=1).reshape(clients, -1)
  return list(np.sort(dealt, axis=1))


@partitioner
def few_by_origin(
  labels: np.ndarray, clients: Positive, seed: int, origin: np.ndarray | None, per_class: Positive = 20
) -> list[np.ndarray]:
  """Client i gets `per_class` random rows of each class among those of origin i mod O (FedMD, non-iid).

  With origins that are ranks of fine classes, client i knows one fine class of each superclass. Clients of one origin
  have no row in common if there are enough rows; else they take them cyclically.

  Raises:
    ConfigError: also if there are no origins, or one has fewer than `per_class` rows of a class.
  """
  check_clients(labels, clients)
  labels, origins = np.asarray(labels, np.int64), _count_origins(origin, labels)  # -1 is none
  rng = np.random.default_rng([seed, FEW_BY_ORIGIN])
  parts = empty(clients)
  for group in range(min(origins, clients)):
    _check_per_class(np.where(origin == group, labels, -1), per_class, 1, f' of origin {group}', np.unique(labels))
    for c in np.unique(labels):
      rows = rng.permutation(np.flatnonzero((origin == group) & (labels == c)))
      for i, part in enumerate(parts[group::origins]):
        part.append(rows[(i * per_class + np.arange(per_class)) % len(rows)])
  return [np.sort(np.concatenate(part)) for part in parts]


def _check_per_class(labels, per_class, clients, where, classes=None):
  for c in np.unique(labels) if classes is None else classes:
    count = np.count_nonzero(labels == c)
    if count < clients * per_class:
      raise SplitError(
        f'data.per_class={per_class} for {clients} clients needs {clients * per_class} examples{where} of class {c}, '
        f'which has {count}; lower data.per_class or data.clients'
      )


@partitioner
def writers(
  labels: np.ndarray, clients: Positive, seed: int, origin: np.ndarray | None, minimum: Count = 18
) -> list[np.ndarray]:
  """Every client is one random origin, a writer, with at least `minimum` rows, and owns all of them (FedMD, non-iid).

  Raises:
    ConfigError: also if there are no origins, or too few with `minimum` rows.
  """
  check_clients(labels, clients)
  origins = _count_origins(origin, labels)
  count = np.bincount(np.asarray(origin), minlength=origins)
  able = np.flatnonzero(count >= max(minimum, 1))
  if len(able) < clients:
    raise SplitError(
      f'data.clients={clients} is more than the {len(able)} of {np.count_nonzero(count)} writers who have '
      f'data.minimum={minimum} examples; lower data.clients or data.minimum'
    )
  chosen = np.random.default_rng([seed, WRITERS]).permutation(able)[:clients]
  return [np.flatnonzero(origin == writer) for writer in chosen]


def _count_origins(origin, labels) -> int:
  if origin is None:
    raise SplitError(
      'data.partition needs rows with an origin, but this data set has neither domains nor writers; use '
      'data.name=rotated_mnist, domains:DIR or npz:FILE with an array origin, or data.partition=iid',
      'origin is None; give the owner of each row, int[N] from 0',
    )
  if origin.dtype.kind not in 'iu' or len(origin) != len(labels):
    raise ConfigError(
      f'origin is {what_is(origin)} for {len(labels)} rows; give the owner of each row, int[N] from 0 '
      '(numpy.unique(origin, return_inverse=True)[1])'
    )
  if len(origin) and origin.min() < 0:
    raise SplitError(
      'data.partition deals rows out by their owners, and the official test rows that data.merge_test=True adds have '
      'none; set data.merge_test=False, or choose another data.partition',
      f'origin has {origin.min()}, which is no owner; give the owner of each row, int[N] from 0',
    )
  return int(origin.max()) + 1 if len(origin) else 0


@checked
def hold_out(parts: Sequence[np.ndarray], share: Share, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
  """Takes floor(share * n_k) random rows of each client for validation, but never its last one.

  What a client holds out depends on its number and its own rows only.

  Args:
    parts: per client int[n_k].
    share: in [0, 1).
    seed: of the draw.

  Returns:
    (training parts, validation parts), both lists of int[...] as `parts`; share 0 gives empty validation parts.

  Raises:
    ConfigError: for a share outside [0, 1) or an empty client.
  """
  check_filled(parts, 'example')
  pairs = [_hold_out_one(part, share, np.random.default_rng([seed, HOLD_OUT, k])) for k, part in enumerate(parts)]
  return [train for train, _ in pairs], [validation for _, validation in pairs]


def _hold_out_one(part, share, rng) -> tuple:
  count = min(numeric.floor_of_share(share, len(part)), len(part) - 1)
  chosen = np.zeros(len(part), bool)
  chosen[rng.permutation(len(part))[:count]] = True
  return part[~chosen], part[chosen]


def overview(parts: Sequence[np.ndarray], labels: np.ndarray, classes: int) -> np.ndarray:
  """How many examples of each class each client has, int64[K, C]."""
  labels = np.asarray(labels)
  return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])
