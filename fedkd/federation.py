"""The clients of a simulation: arrays, which client owns which of their rows, and every client's model."""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import flax.linen as nn
import flax.nnx as nnx
import jax
import numpy as np
from jax.typing import ArrayLike

from fedkd import summary
from fedkd.checks import arguments
from fedkd.models import base, groups, initial
from fedkd.types import Data, ExampleIndices, Group, Pool, PyTree

Indices = Sequence[int] | jax.Array | np.ndarray
Model = nn.Module | nnx.Module | Callable[..., nnx.Module]


class Federation(NamedTuple):
  """Clients, their models and their examples. The runner's tables have a leading axis [seeds]; a notebook's do not.

  A group holds the clients of one architecture; per-group entries are in the order of `groups`.
  """

  groups: tuple[Group, ...]
  pool: Pool
  private: tuple[ExampleIndices, ...]  # per group, leaves [n, ...]: all examples of a client, those it shares last
  everyone: ExampleIndices  # those of all clients together
  shared: tuple[ExampleIndices, ...] | None = None  # per group: what each client gives to everybody
  public: ExampleIndices | None = None  # what everybody has
  validation: ExampleIndices | None = None  # held out: nobody trains on them
  domain: jax.Array | None = None  # int32[N], the domain of every example

  def data(self) -> tuple[Data, ...]:
    """What the clients of each group see."""
    shared = self.shared or (None,) * len(self.groups)
    tables = zip(self.private, shared, strict=True)
    return tuple(Data(self.pool, private, self.everyone, given, self.public) for private, given in tables)

  def __repr__(self):
    return summary.of_federation(self.groups, self.pool, self._asdict())


def federation(
  x: jax.Array | np.ndarray,
  y: jax.Array | np.ndarray,
  parts: Sequence[Indices] | jax.Array | np.ndarray,
  models: Model | Sequence[Model],
  *,
  public: Indices | None = None,
  shared: Sequence | None = None,
  validation: Indices | None = None,
  domains: Indices | None = None,
  normalise: Callable | tuple | None = None,
) -> Federation:
  """Clients from arrays.

  Args:
    x: [N, ...] real numbers of any dtype: uint8 images [N, H, W, ...] (normalised inside the step), float vectors,
      integer tokens. No NaN, no infinity, nothing beyond 32 bits, no float64 column that rounding would level. NumPy
      arrays are copied.
    y: int[N], labels from 0.
    parts: per client the row numbers of its training examples; disjoint, none empty. Or int[N], the client that owns
      each example, 0 to K - 1, -1 for none: the domains of a data set, for one client per domain.
    models: per client a Flax linen or NNX module, or one for all. Equal modules form a group. `fedkd.models` describes
      what a module may return; logits [B, C] alone are enough for methods that exchange no features. An NNX class, a
      `functools.partial` of one or a function rngs -> module is initialised from the key of a run, as linen modules
      are; an NNX instance brings its weights.
    public: row numbers of labelled examples that everybody has and nobody owns (FedMD's public set).
    shared: per client row numbers, a subset of its own, that it shares with everybody (FedH2L's seed sets).
    validation: row numbers held out, for `Simulation.validation_accuracy`.
    domains: int[N], the domain of every example, from 0; validation accuracy is then per domain, a column for each
      number up to the largest.
    normalise: (mean, scale), or x -> (mean, scale), so that a model sees (x - mean) * scale; (None, None) leaves x as
      it is; None: uint8 examples of two axes or more, which are images, minus their mean image, by 255, and no
      normalisation of anything else. Means are over the rows of clients, public and validation rows: those that are
      in none of them, such as test examples in the same arrays, have no part in what models see.

  Raises:
    ValueError: naming argument, value and remedy, before anything is compiled.
  """
  x, y = arguments.arrays(x, y)
  parts = arguments.owned(parts, len(y))
  nets = groups.per_client(models, len(parts))
  public, validation = (
    arguments.held_out(field, rows, len(y)) for field, rows in (('public', public), ('validation', validation))
  )
  shared = arguments.listed('shared', shared, len(y))
  arguments.check_disjoint(parts, public, validation)
  if shared is not None:
    arguments.check_shared(parts, shared, public)
    parts = [np.concatenate([np.setdiff1d(own, given), given]) for own, given in zip(parts, shared, strict=True)]
    public = np.concatenate(shared)
  is_computed = callable(normalise) or (normalise is None and x.dtype == np.uint8)
  seen = _given(x, *parts, public, validation) if is_computed else x  # a copy
  mean, scale = arguments.normalisation(normalise, seen, _normalisation)
  domains = arguments.domain_of_each(domains, len(y))
  preprocessed = [base.Preprocessed(base.adapted(net, x[:1]), mean, scale) for net in nets]
  made = groups.grouped(nets, preprocessed)
  initial.check_heads(made, x, y)
  per_group = lambda lists: on_device(tuple(table([lists[k] for k in g.ids], g.ids, lists) for g in made))
  together = lambda rows: None if rows is None else on_device(everybodys(rows))
  return Federation(
    made,
    Pool(*on_device((x, np.array(y, np.int32)))),
    per_group(parts),
    on_device(everybodys(np.concatenate(parts))),
    None if shared is None else per_group(shared),
    together(public),
    together(validation),
    on_device(domains),
  )


def on_device(tree: PyTree) -> PyTree:
  """The arrays of a tree on the device. Those of NumPy are copied first, since whoever made them may write to them,
  and JAX reads them later than this function returns, or for ever."""
  return jax.tree.map(lambda a: a if isinstance(a, jax.Array) else jax.device_put(np.array(a)), tree)


def table(parts: Sequence[np.ndarray], ids: ArrayLike, width: Sequence[np.ndarray] = ()) -> ExampleIndices:
  """The parts of some clients as one padded table.

  Args:
    parts: list of n arrays int[n_k], the row numbers of the clients `ids`, in that order.
    ids: n global client numbers.
    width: further arrays; the table is as wide as the longest of all.

  Returns:
    ExampleIndices of index int32[n, n_max] padded with 0, size int32[n], id int32[n].
  """
  size = np.array([len(part) for part in parts], np.int32)
  index = np.zeros((len(parts), max(map(len, [*parts, *width]), default=0)), np.int32)
  for row, part in zip(index, parts, strict=True):
    row[: len(part)] = part
  return ExampleIndices(index, size, np.asarray(ids, np.int32))


def everybodys(rows: ArrayLike) -> ExampleIndices:
  """Pooled examples, not owned by one client."""
  index = np.asarray(rows, np.int32)
  return ExampleIndices(index, np.array(len(index), np.int32), np.array(-1, np.int32))


def _given(x, *rows):
  """The examples of `x` that somebody has; None among the rows is nobody."""
  given = np.unique(np.concatenate([some for some in rows if some is not None]))
  return x if len(given) == len(x) else x[given]


def _normalisation(x) -> tuple:
  """That of images, which have at least two axes."""
  if x.dtype != np.uint8:
    arguments.warn_of_whole_images(x)
    return None, None
  if x.ndim > 2:
    return base.mean_image(x)
  warnings.warn(
    f'x is uint8{list(x.shape)}, and examples of one axis reach the models as they are, as tokens do; give '
    'normalise=fedkd.models.base.mean_image for flattened images, or normalise=(None, None) to be told no more',
    stacklevel=4,
  )
  return None, None
