"""Splits that give every client its own test rows from the official test set, of the classes that it trains on.

Pure functions of (labels, clients, seed, test_labels, ...), where `labels` are those of the training rows and
`test_labels` those of the official test set, that return `Parts`. Both parts number one pool in which the test rows
follow the training rows. All draws are from the split's own generator: equal in distribution to the published codes,
not bit for bit. Most leave rows without an owner. All raise ConfigError, in one sentence, for impossible splits.
"""

from typing import NamedTuple

import numpy as np

from fedkd.checks.ranges import Count, Positive, Ratio
from fedkd.data.splits.partition import (
  MOST_REDRAWS,
  Concentration,
  SplitError,
  ascending,
  check_clients,
  classes_of,
  dirichlet_counts,
  empty,
  no_split,
  partitioner,
)

__all__ = ['fedgen_dirichlet', 'inner_dirichlet', 'lg_shards', 'n_way', 'uneven_classes']  # what a config may name

# One stream of random numbers per purpose, in addition to those of `partition`.
N_WAY, UNEVEN, INNER, FEDGEN, LG = range(100, 105)


class Parts(NamedTuple):
  """Per client ascending row numbers int64[...] of one pool: training rows, and then those of the official test set."""

  train: list
  test: list


def _of_classes(labels, classes) -> list:
  return [np.flatnonzero(labels == c) for c in range(classes)]


def _sorted(train, test, offset) -> Parts:
  """Parts of lists of rows per client; `offset`: of the test rows in the pool."""
  return Parts(ascending(train, 'training row'), [rows + offset for rows in ascending(test, 'test row')])


@partitioner
def n_way(
  labels: np.ndarray,
  clients: Positive,
  seed: int,
  test_labels: np.ndarray,
  ways: Positive = 3,
  stdev: Count = 2,
  shots: Positive = 100,
  stride: Positive = 110,
  test_shots: Positive = 40,
  legacy_shots: bool = True,
) -> Parts:
  """About `ways` classes per client with about `shots` rows of each (FedProto, Tan et al., 2022).

  Client i has n_i classes, uniform in [max(2, ways - stdev), min(C, ways + stdev + 1)) with the upper end excluded, and
  k_i rows of each: rows `stride * i` to `stride * i + k_i` of the class, in an order drawn once. Test rows: of each of
  its classes rows `test_shots * i` to `test_shots * (i + 1)`.

  Args:
    legacy_shots: k_i uniform in [shots - stdev + 1, shots + stdev - 1), as the code does for MNIST; else the upper end
      is shots + stdev + 1, as it is for other sets.

  Raises:
    ConfigError: also for an empty range, more shots than the stride, or strides beyond the size of a class.
  """
  check_clients(labels, clients)
  classes, rng = classes_of(labels), np.random.default_rng([seed, N_WAY])
  most_ways, most_shots = min(classes, ways + stdev + 1), shots + stdev + (-1 if legacy_shots else 1)
  if max(2, ways - stdev) >= most_ways:
    raise SplitError(
      f'data.ways={ways} with data.stdev={stdev} leaves no number of classes from {max(2, ways - stdev)} to '
      f'{most_ways - 1}, for {classes} classes; lower data.ways or raise data.stdev'
    )
  if shots - stdev + 1 >= most_shots or shots - stdev + 1 < 1:
    raise SplitError(
      f'data.shots={shots} with data.stdev={stdev} leaves no number of rows from {max(1, shots - stdev + 1)} to '
      f'{most_shots - 1}; set data.stdev to 2, or data.legacy_shots=False'
    )
  if most_shots - 1 > stride:
    raise SplitError(
      f'data.stride={stride} is below the {most_shots - 1} rows of a class that a client may take, so that clients '
      'would overlap; raise data.stride or lower data.shots'
    )
  _check_strides(labels, stride * (clients - 1) + most_shots - 1, 'data.stride', stride, clients, 'training')
  _check_strides(test_labels, test_shots * clients, 'data.test_shots', test_shots, clients, 'test', classes)
  n = rng.integers(max(2, ways - stdev), most_ways, clients)
  k = rng.integers(shots - stdev + 1, most_shots, clients)
  own = [np.sort(rng.choice(classes, many, replace=False)) for many in n]
  rows, tests = ([rng.permutation(of) for of in _of_classes(which, classes)] for which in (labels, test_labels))
  train = [[rows[c][stride * i : stride * i + k[i]] for c in own[i]] for i in range(clients)]
  test = [[tests[c][test_shots * i : test_shots * (i + 1)] for c in own[i]] for i in range(clients)]
  return _sorted(train, test, len(labels))


def _check_strides(labels, needed, field, value, clients, what, classes=None):
  counts = np.bincount(labels, minlength=classes or 0)
  if needed > counts.min():
    raise SplitError(
      f'{field}={value} for data.clients={clients} needs {needed} {what} rows of class {counts.argmin()}, which has '
      f'{counts.min()}; lower {field} or data.clients'
    )


@partitioner
def uneven_classes(
  labels: np.ndarray, clients: Positive, seed: int, test_labels: np.ndarray, ways: Positive = 2
) -> Parts:
  """`ways` classes per client, in uneven shares of each class (FedGH, Yi et al., 2023; FedMRL, Yi et al., 2024).

  A class has ways * clients / C slots, with shares drawn from U(0.4, 0.6) and normalised. One after the other,
  clients take slots of the classes that have the most left (a class may come twice), and from the front of the shuffled
  class floor(share * N_c) rows, of the test rows as of the training rows.

  Raises:
    ConfigError: also if ways * clients is not a multiple of the number of classes.
  """
  check_clients(labels, clients)
  classes, rng = classes_of(labels), np.random.default_rng([seed, UNEVEN])
  slots = _slots(clients, classes, ways, 'data.ways')
  drawn = rng.uniform(0.4, 0.6, (classes, slots))
  shares = drawn / drawn.sum(1, keepdims=True)
  rows, tests = ([rng.permutation(of) for of in _of_classes(which, classes)] for which in (labels, test_labels))
  left, used = np.full(classes, slots), np.zeros((2, classes), int)
  train, test = empty(clients), empty(clients)
  for k in range(clients):
    for _ in range(ways):
      c = rng.choice(np.flatnonzero(left == left.max()))
      left[c] -= 1
      for i, (of, out) in enumerate(((rows, train), (tests, test))):
        many = int(len(of[c]) * shares[c, left[c]])
        out[k].append(of[c][used[i, c] : used[i, c] + many])
        used[i, c] += many
  return _sorted(train, test, len(labels))


def _slots(clients, classes, each, field) -> int:
  """Clients that a class has, if every client has `each` of them."""
  if each < 1 or clients * each % classes:
    raise SplitError(
      f'{field}={each} for data.clients={clients} is {each * clients} in all, not a multiple of the {classes} classes; '
      f'change {field} or data.clients'
    )
  return clients * each // classes


@partitioner
def inner_dirichlet(
  labels: np.ndarray, clients: Positive, seed: int, test_labels: np.ndarray, concentration: Concentration = 0.5
) -> Parts:
  """Clients of equal size whose label shares are from a Dirichlet distribution (DS-FL and SCARLET, after FedLab).

  Every client has floor(N / K) rows and a prior over classes. A random client with room draws a class from its prior,
  or, if that is used up, a uniform one of those with rows left, and takes its last remaining row, in the order of the
  data set. The test set is divided in the same way with the same priors.
  """
  check_clients(labels, clients)
  classes, rng = classes_of(labels), np.random.default_rng([seed, INNER])
  prior = np.cumsum(rng.dirichlet(np.full(classes, concentration), clients), 1)
  train, test = ([[part] for part in _filled(rng, which, prior, classes)] for which in (labels, test_labels))
  return _sorted(train, test, len(labels))


def _filled(rng, labels, prior, classes) -> list:
  """Lists of floor(N / K) rows per client; `prior`: cumulative, float[K, C]."""
  stacks, parts = [list(of) for of in _of_classes(labels, classes)], empty(len(prior))
  size = len(labels) // len(prior)
  room = list(range(len(prior))) if size else []
  while room:
    k = room[rng.integers(len(room))]
    c = min(int(np.searchsorted(prior[k], rng.random(), side='right')), classes - 1)
    if not stacks[c]:
      left = [other for other in range(classes) if stacks[other]]
      c = left[rng.integers(len(left))]
    parts[k].append(stacks[c].pop())
    if len(parts[k]) == size:
      room.remove(k)
  return parts


@partitioner
def fedgen_dirichlet(
  labels: np.ndarray,
  clients: Positive,
  seed: int,
  test_labels: np.ndarray,
  concentration: Concentration = 0.5,
  ratio: Ratio = 0.5,
  smallest: Positive = 10,
  all_labels: bool = False,
) -> Parts:
  """Label skew of a share of the rows (FedGen, Zhu, Hong, Zhou, 2021).

  m = ratio * N / K. Of every class, in a random order, min(m, floor(ratio * N_c)) shuffled rows (all for the ratio 1)
  are cut in Dirichlet proportions among the clients with less than m rows. Everything is drawn again until every client
  has `smallest` rows. Test rows: floor(N_c / K) of each of a client's labels, or with `all_labels` of every label.

  Raises:
    ConfigError: also for a ratio outside (0, 1], or a `smallest` that MOST_REDRAWS draws do not reach.
  """
  check_clients(labels, clients)
  classes, rng = classes_of(labels), np.random.default_rng([seed, FEDGEN])
  most = ratio * len(labels) / clients
  for _ in range(MOST_REDRAWS):
    train, held = empty(clients), np.zeros(clients, np.int64)
    for c in rng.permutation(classes):
      rows = rng.permutation(np.flatnonzero(labels == c))
      if not len(rows):  # a number that no label has
        continue
      rows = rows if ratio == 1 else rows[: min(int(most), int(ratio * len(rows)))]
      counts = dirichlet_counts(rng, len(rows), held < most, concentration)
      held += counts
      for out, piece in zip(train, np.split(rows, np.cumsum(counts)[:-1]), strict=True):
        out.append(piece)
    if held.min() >= smallest:
      break
  else:
    raise no_split(labels, clients, concentration, smallest)
  tests = _of_classes(test_labels, classes)
  test = empty(clients)
  for k, pieces in enumerate(train):
    has = np.bincount(labels[np.concatenate(pieces)], minlength=classes) > 0
    for c in range(classes) if all_labels else np.flatnonzero(has):
      many = len(tests[c]) // clients
      test[k].append(tests[c][many * k : many * (k + 1)])
  return _sorted(train, test, len(labels))


@partitioner
def lg_shards(
  labels: np.ndarray, clients: Positive, seed: int, test_labels: np.ndarray, per_client: Positive = 2
) -> Parts:
  """`per_client` shards of one label each for every client (LG-FedAvg, Liang et al., 2020).

  Every class is cut, in the order of the data set, into per_client * clients / C equal pieces; labels are shuffled and
  dealt out, and each client takes a random remaining piece of each of its labels. The test set is divided with the same
  labels.

  Raises:
    ConfigError: also if per_client * clients is not a multiple of the number of classes.
  """
  check_clients(labels, clients)
  classes, rng = classes_of(labels), np.random.default_rng([seed, LG])
  slots = _slots(clients, classes, per_client, 'data.per_client')
  dealt = rng.permutation(np.repeat(np.arange(classes), slots)).reshape(clients, per_client)
  out = []
  for which in (labels, test_labels):
    pieces = [np.array_split(of, slots) for of in _of_classes(which, classes)]
    orders = [iter(rng.permutation(slots)) for _ in range(classes)]
    out.append([[pieces[c][next(orders[c])] for c in own] for own in dealt])
  return _sorted(out[0], out[1], len(labels))
