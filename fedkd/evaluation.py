"""What clients predict, and what of it is correct: the models that they would deploy, one after the other."""

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedkd.checks import blame, evaluated
from fedkd.checks.kinds import what_is
from fedkd.errors import ConfigError, is_it
from fedkd.inference import in_batches
from fedkd.types import Group, Method, Predict, PyTree, State, of_model

# What may follow `accuracy_` in the name of a metric already.
METRICS = ('local', 'others', 'train', 'public', 'per_client', 'per_group', 'std', 'p10', 'worst')
UNDEFINED = -2  # no class, and no padding


def is_correct(
  model: nn.Module,
  predict: Predict | dict[str, Predict],
  variables: dict,
  server_state: PyTree,
  x: jax.Array,
  y: jax.Array,
  batch: int = 0,
) -> PyTree:
  """Which predictions of one model are correct.

  Args:
    model, variables, server_state: as in `types.Predict`.
    predict: `types.Predict`; for several in a dict, what they have in common is computed once.
    x: raw examples [T, ...].
    y: int32[T], labels; -1 is padding, for which nothing is correct.
    batch: examples per forward pass; 0: `inference.inference_batch`.

  Returns:
    float32[T], 1 or 0, and NaN where a logit is; or a dict of them.
  """
  label = lambda x: jax.tree.map(
    lambda each: predicted_class(logits_by(each, model, variables, server_state, x), UNDEFINED), predict
  )
  score = lambda predicted: jnp.where((predicted == UNDEFINED) & (y >= 0), jnp.nan, predicted == y)
  return jax.tree.map(score, in_batches(label, x, batch))


def logits_by(predict: Predict, model: nn.Module, variables: dict, server_state: PyTree, x: jax.Array) -> jax.Array:
  """Logits [B, C] by one way to predict.

  Raises:
    ConfigError: if it is somebody's own, and raises an error or returns something else.
  """
  if not blame.is_foreign(predict):
    return predict(model, variables, server_state, x)
  logits = blame.call('predict', predict, model, variables, server_state, x)
  fits = isinstance(logits, jax.Array) and jnp.issubdtype(logits.dtype, jnp.floating)
  if not fits or logits.shape != (len(x), getattr(model, 'classes', logits.shape[-1])):
    raise ConfigError(
      f'predict {blame.named(predict)} returned {what_is(logits)} for {len(x)} examples; let it return logits '
      f'[{len(x)}, {getattr(model, "classes", "classes")}]'
    )
  return logits


def predicted_class(logits: jax.Array, undefined: int = -1) -> jax.Array:
  """int32[...], the class with the largest logit [..., C]; `undefined` where one is NaN, of which `argmax` would make a
  class."""
  return jnp.where(jnp.isnan(jnp.max(logits, -1)), undefined, jnp.argmax(logits, -1))


def predictions(method: Method) -> dict[str, Predict]:
  """All ways in which a method's clients may predict, by name; that of `Method.predict` is ''.

  Raises:
    ValueError: for a name that is given twice, or would be confused with another metric.
  """
  names = [name for name, _ in method.predictions]
  for name in names:
    if not name.isidentifier() or name in METRICS or names.count(name) > 1:
      raise ValueError(f'predictions: the name {name!r} is taken or not an identifier; give each a different name')
  return {'': method.predict, **dict(method.predictions)}


def tried(method: Method) -> list[str]:
  """The `predictions` that are traced before training, since somebody else's functions take part in them; those of this
  package's methods are not."""
  parts = any(blame.is_foreign(part) for part in (method.variables, method.deployed, method.calibrate) if part)
  return [name for name, predict in predictions(method).items() if blame.is_foreign(predict) or (parts and not name)]


def predict_by(method: Method, inference: str) -> Predict:
  """One of the `predictions` of a method.

  Raises:
    ValueError: for an unknown name.
  """
  known = predictions(method)
  if inference not in known:
    named = ', '.join(repr(name) for name in known if name)
    remedy = f'choose one of {named}, or leave it out' if named else 'this method has one prediction; leave it out'
    raise ValueError(f'inference={inference!r} is unknown; {remedy}{is_it(inference, known)}')
  return known[inference]


def correct_predictions(
  method: Method,
  groups: Sequence[Group],
  state: State,
  x: jax.Array,
  y: jax.Array,
  rows: Sequence[ArrayLike],
  batch: int = 0,
  predict: Predict | dict[str, Predict] | None = None,
  alone: bool = False,
) -> tuple[PyTree, ...]:
  """Which predictions of clients on shared examples are correct.

  Args:
    x, y: raw examples [T, ...] and labels int32[T]; a label of -1 is padding.
    rows: per group int[k], the clients of the group (rows of it) to evaluate.
    batch: as in `is_correct`.
    predict: None for that of the method, or as in `is_correct`.
    alone: as in `of_models`.

  Returns:
    per group float32[k, T] as `is_correct`, or a dict of them.
  """
  predict = method.predict if predict is None else predict

  def each(model, own):
    return is_correct(model, predict, own, state.server, x, y, batch)

  return of_models(method, groups, state, rows, each, alone)


def of_models(
  method: Method,
  groups: Sequence[Group],
  state: State,
  rows: Sequence[ArrayLike],
  function: Callable[[nn.Module, dict], PyTree],
  alone: bool = False,
) -> tuple[PyTree, ...]:
  """`function(model, variables)` of what clients would deploy: per group leaves [k, ...].

  Args:
    rows: per group int[k], rows of its clients.
    alone: whether their states hold these rows alone.
  """

  def of_group(g, group):
    variables = variables_of(method, groups, state, g)
    lengths = {leaf.shape[0] for leaf in jax.tree.leaves(variables)} or {1}
    places = {1: np.zeros(1)} if lengths == {1} else _places(groups, state, g, np.asarray(rows[g]), alone)
    chosen = {length: jnp.asarray(places[length], jnp.int32) for length in lengths}

    def one(place):
      own = jax.tree.map(lambda a: a[place[a.shape[0]]], variables)
      return function(*evaluated.of_deployed(method, group.model, own, state.server, g))

    if not len(rows[g]):
      shapes = jax.eval_shape(one, dict.fromkeys(lengths, jnp.int32(0)))
      return jax.tree.map(lambda s: jnp.zeros((0, *s.shape), s.dtype), shapes)
    whole = lambda out: jnp.broadcast_to(out, (len(rows[g]), *out.shape[1:]))
    return jax.tree.map(whole, jax.lax.map(one, chosen))

  return tuple(of_group(g, group) for g, group in enumerate(groups))


def variables_of(method: Method, groups: Sequence[Group], state: State, g: int) -> dict:
  """What `Method.variables` returns for group `g`, its leaves as long as its states, as the group, or [1, ...]."""
  count = len(groups[g].ids)
  return evaluated.of_variables(method, state, g, groups[g].name, count, {count, _held(groups, state, g)})


def _held(groups, state, g) -> int:
  """How many rows the states of a group have: more than it has clients where they are padded, or fewer where the others
  are on disk."""
  states = jax.tree.leaves(tuple(state.client[g : g + 1]))
  return states[0].shape[0] if states else len(groups[g].ids)


def _places(groups, state, g, rows, alone) -> dict:
  """{length of a leaf's first axis: where on it the clients in `rows` are}."""
  count, held = len(groups[g].ids), _held(groups, state, g)
  return {1: np.zeros_like(rows), count: rows, held: np.arange(len(rows)) if alone and held != count else rows}


def evaluated_of(clients: int, count: int, seed: int) -> np.ndarray:
  """The numbers int[K] of the clients that are evaluated, in their order: all, or a fixed sample of `count` above 0."""
  if not 0 < count < clients:
    return np.arange(clients)
  return np.sort(np.random.default_rng(seed).choice(clients, count, replace=False))


def evaluated_in(groups: Sequence[Group], clients: np.ndarray) -> np.ndarray:
  """The group int[K] in which each of `clients` is evaluated: the first that holds it."""
  return np.argmax([np.isin(clients, g.ids) for g in groups], 0)


def evaluated_rows(groups: Sequence[Group], clients: np.ndarray) -> list[np.ndarray]:
  """Per group int[k], the rows of those of `clients` that are evaluated in it."""
  owner = evaluated_in(groups, clients)
  return [np.searchsorted(group.ids, clients[owner == g]) for g, group in enumerate(groups)]


def correct_of_clients(
  method: Method,
  groups: Sequence[Group],
  clients: np.ndarray,
  batch: int,
  state: State,
  x: jax.Array,
  y: jax.Array,
  predict: Predict | dict[str, Predict] | None = None,
  alone: bool = False,
) -> PyTree:
  """`correct_predictions` float32[K, T] of the `clients`, in their order, or a dict of them."""
  rows = evaluated_rows(groups, clients)
  return in_order(groups, clients, correct_predictions(method, groups, state, x, y, rows, batch, predict, alone))


def logits_of_clients(
  method: Method,
  groups: Sequence[Group],
  clients: np.ndarray,
  state: State,
  x: jax.Array,
  predict: Predict,
) -> jax.Array:
  """Logits [K, T, C] of the `clients` on raw examples [T, ...], arguments as of `correct_of_clients`."""

  def each(model, own):
    return in_batches(lambda x: logits_by(predict, model, own, state.server, x), x)

  return in_order(groups, clients, of_models(method, groups, state, evaluated_rows(groups, clients), each))


def in_order(groups: Sequence[Group], clients: np.ndarray, of_groups: Sequence[PyTree]) -> PyTree:
  """Leaves [K, ...], a row for each of the `clients`, of those of their groups."""
  order = np.argsort(np.argsort(evaluated_in(groups, clients), kind='stable'))
  return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[order], *of_groups)


def model_of(method: Method, groups: Sequence[Group], state: State, client: int) -> tuple[nn.Module, dict]:
  """(module, variables) that a client would deploy; a client of several groups has that of the first."""
  g = next(g for g, group in enumerate(groups) if client in group.ids)
  row = list(groups[g].ids).index(client)
  own = jax.tree.map(lambda a: a[row if a.shape[0] > 1 else 0], variables_of(method, groups, state, g))
  model, own = evaluated.of_deployed(method, groups[g].model, own, state.server, g)
  return model, of_model(own)
