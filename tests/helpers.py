"""Tiny learnable problems, and the parts of a run around them."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest

from fedkd import evaluation
from fedkd import round as rounds
from fedkd.federation import Federation, everybodys, table
from fedkd.models.base import Preprocessed
from fedkd.states import initial_state
from fedkd.types import ExampleIndices, Group, Method, Pool, State

CLASSES = 3
EXAMPLES = 120
# Two programs have the same bits with the fusion emitters that runs have, which `conftest` switches off where XLA can.
EMITTERS = {'xla_cpu_use_fusion_emitters': True} if jaxlib.version.__version_info__ < (0, 11) else {}
GIVEN = 4  # rows that a client gives to everybody, half of its own at most


class Problem(NamedTuple):
  """A method on a tiny problem, ready to run."""

  method: Method
  groups: tuple
  data: tuple
  plan: tuple
  state: State
  key: jax.Array
  programs: dict  # compiled rounds and runs; shared by problems that differ in plan or key only

  def run(self, count=None, state=None, start=0, clients_per_vmap=1, length=None):
    """(State, Report) after `count` rounds from `start`, compiled."""
    count = len(self.plan.participants[0]) - start if count is None else count
    return self.program(length or count, clients_per_vmap)(self.state if state is None else state, start, count)

  def program(self, length, clients_per_vmap=1):
    """The compiled (state, start, count) -> (State, Report); one jit per problem, whatever its plan and key."""
    step = self.programs.setdefault(clients_per_vmap, rounds.step(self.method, self.groups, clients_per_vmap))

    def program(state, data, key, participants, start, count):
      return rounds.run(key, start, count, length, step, state, data, participants)

    jitted = self.programs.setdefault((length, clients_per_vmap), jax.jit(program))
    participants = tuple(jnp.asarray(w) for w in self.plan.participants)
    return lambda state, start, count: jitted(state, self.data, self.key, participants, start, count)

  @property
  def server(self):
    """The method's server, `bound` to this problem."""
    return bound(self.method.server, self.groups, self.data)

  def ready(self, state):
    """The state that one may look at (`Method.calibrate`)."""
    return (
      jax.jit(lambda s: self.method.calibrate(self.groups, s, self.data, range(len(self.groups))))(state)
      if self.method.calibrate
      else state
    )

  def accuracy(self, state):
    """Accuracy [K] on the whole pool."""
    image, label = self.data[0].pool
    state = self.ready(state)
    rows = [np.arange(len(g.ids)) for g in self.groups]
    correct = jax.jit(lambda state: evaluation.correct_predictions(self.method, self.groups, state, image, label, rows))
    return np.concatenate(correct(state)).mean(-1)


def bound(server, groups=(), data=()):
  """A server whose `receive` and `send` know their groups and data: (key, t, state, uploads, ids), (key, t, state,
  ids)."""
  return server._replace(
    receive=lambda key, t, state, uploads, ids: server.receive(key, t, groups, state, uploads, ids, data),
    send=lambda key, t, state, ids: server.send(key, t, groups, state, ids, data),
  )


def augmented(made: Problem) -> Problem:
  """A problem whose models crop and flip what they train on."""
  groups = tuple(group._replace(model=group.model.clone(crop=2, flip=True)) for group in made.groups)
  return made._replace(groups=groups, programs={})


def pool(side=6, classes=CLASSES, seed=0) -> Pool:
  """Noisy copies of one random pattern per class; labels in turn, so that every slice is balanced."""
  rng = np.random.default_rng(seed)
  pattern = rng.integers(60, 196, (classes, side, side, 1))
  label = np.arange(EXAMPLES) % classes
  image = pattern[label] + rng.integers(-50, 51, (EXAMPLES, side, side, 1))
  return Pool(jnp.asarray(image, jnp.uint8), jnp.asarray(label, jnp.int32))


def split(clients, rows=20):
  """Rows of each client: unequal sizes, `rows` at most, disjoint while they last."""
  sizes = [max(2, rows - 3 * (c % 4)) for c in range(clients)]
  ends = np.cumsum(sizes)
  return [np.arange(end - size, end) % EXAMPLES for size, end in zip(sizes, ends, strict=True)]


def skewed():
  """The pool, and rows of clients that see classes {0, 1}, {1, 2} and {2}; the last has four rows."""
  images = pool()
  label = np.asarray(images.label)
  of = lambda *classes: np.flatnonzero(np.isin(label, classes))
  return images, [of(0, 1)[:15], of(1, 2)[20:32], of(2)[-4:]]


def padded(rows, n_max) -> ExampleIndices:
  """A table of rows padded with the row number 7 to `n_max` columns."""
  index = np.full((len(rows.size), n_max), 7, np.int32)
  index[:, : rows.index.shape[1]] = np.where(np.arange(rows.index.shape[1]) < rows.size[:, None], rows.index, 7)
  return ExampleIndices(*map(jnp.asarray, (index, rows.size, rows.id)))


def preprocessed(net):
  return Preprocessed(net, np.float32(128), np.float32(1 / 64))


def problem(method, nets, sizes, plan, parts=None, images=None, padding=0, seed=0) -> Problem:
  """Groups of `sizes` clients with the architectures `nets`, numbered in order.

  Args:
    plan: `Plan`.
    parts: rows of the pool per client; default `split`. The last `GIVEN` of them are shared, and public together.
    images: `Pool`; default `pool()`.
    padding: columns of padding beyond the largest client.
  """
  images = pool() if images is None else images
  parts = split(sum(sizes)) if parts is None else parts
  starts = np.cumsum([0, *sizes])
  groups = tuple(
    Group(f'g{g}', preprocessed(net), np.arange(starts[g], starts[g + 1], dtype=np.int32)) for g, net in enumerate(nets)
  )
  n_max = max(map(len, parts)) + padding
  given = [part[-max(1, min(GIVEN, len(part) // 2)) :] for part in parts]
  of = lambda lists, width: tuple(padded(table([lists[k] for k in g.ids], g.ids), width) for g in groups)
  everybody = lambda lists: jax.tree.map(jnp.asarray, everybodys(np.concatenate(lists)))
  federation = Federation(groups, images, of(parts, n_max), everybody(parts), of(given, GIVEN), everybody(given))
  key = jax.random.key(seed)
  variables = tuple(first_variables(net, images.example.shape[1:], seed) for net in nets)

  def begin(tables, variables):
    key_state = model_and_state_keys(key)[1]
    return initial_state(key_state, method, Federation(groups, images, *tables), variables, plan.stale)

  return Problem(method, groups, federation.data(), plan, jax.jit(begin)(federation[2:], variables), key, {})


def model_and_state_keys(key):
  return jax.random.split(jax.random.fold_in(key, 2**31 - 1))


@cache
def first_variables(net, shape, seed):
  """Initial variables of a net for such images, leaves [1, ...]; compiled once for all problems with it."""

  def init(key, example):
    first = preprocessed(net).init(model_and_state_keys(key)[0], example, False)
    return jax.tree.map(lambda a: a[None], {'batch_stats': {}, **first})

  # What is kept must be arrays, also if a test asks for it first inside a jit. `init` takes arguments, because under
  # `ensure_compile_time_eval` JAX compiles one by one all operations that depend on none.
  with jax.ensure_compile_time_eval():
    return jax.jit(init)(jax.random.key(seed), jnp.zeros((1, *shape), jnp.uint8))


def assert_same_bits(a, b):
  """Equality of two pytrees, bit for bit."""
  assert jax.tree.structure(a) == jax.tree.structure(b)
  for (path, left), right in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
    left, right = np.asarray(left), np.asarray(right)
    assert left.shape == right.shape, jax.tree_util.keystr(path)
    assert left.dtype == right.dtype, jax.tree_util.keystr(path)
    assert left.tobytes() == right.tobytes(), f'{jax.tree_util.keystr(path)} differs by {np.abs(left - right).max()}'


def assert_close(a, b, rtol=1e-5, atol=1e-6):
  """Equality of two pytrees to rounding."""
  assert jax.tree.structure(a) == jax.tree.structure(b)
  for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_allclose(left, right, rtol=rtol, atol=atol)


def assert_contract(net, variables, x):
  """That a network is its features and then its head, to the same bits; (logits, features)."""

  @jax.jit
  def parts(variables):
    features = net.apply(variables, x, False, method='features')
    return *net.apply(variables, x, False), features, net.apply(variables, features, method='head')

  logits, out, features, head = parts(variables)
  np.testing.assert_array_equal(out['features'], features)
  np.testing.assert_array_equal(head, logits)
  return logits, features


def row(tree, i):
  """Row (or rows) i of every leaf."""
  return jax.tree.map(lambda a: a[np.asarray(i)], tree)


def cases(values, fast=(), slow=()):
  """Parameters of a test, of which all but the `fast`, or only the `slow`, are marked slow."""
  late = lambda value: value in slow or bool(fast and value not in fast)
  one = lambda value: value if isinstance(value, tuple) else (value,)
  return [pytest.param(*one(value), marks=[pytest.mark.slow] * late(value)) for value in values]


def softmax(z):
  """In NumPy, over the last axis: for slow twins."""
  e = np.exp(z - z.max(-1, keepdims=True))
  return e / e.sum(-1, keepdims=True)
