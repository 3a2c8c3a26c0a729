"""Methods whose servers learn: neither an empty slot nor another grouping of the same clients changes a bit."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import methods, plan
from helpers import assert_same_bits, problem
from small_nets import NARROW, NET, PARTS, made_with

SGD = optax.sgd(0.1)
TURN = {'epochs': None, 'steps': 2, 'batch': 4}
MADE = {
  'fedproto': methods.fedproto(SGD, **TURN),
  'lg_fedavg': methods.lg_fedavg(SGD, **TURN),
  'fml': methods.fml(SGD, NARROW, **TURN),
  'fedapen': methods.fedapen(SGD, NARROW, **TURN),
  'fedmrl': methods.fedmrl(SGD, NARROW, **TURN),
  'fedkd': methods.fedkd(SGD, NARROW, **TURN),
  'fedtgp': methods.fedtgp(SGD, server_epochs=2, **TURN),
  'fedgh': methods.fedgh(SGD, **TURN),
  'fedre': methods.fedre(SGD, **TURN),
  'scaffold': methods.scaffold(SGD, steps=2, batch=4),
  'moon': methods.moon(SGD, steps=2, batch=4),
  'fiarse': methods.fiarse(SGD, (1.0, 0.5), steps=2, batch=4),
  'fedgen': methods.fedgen(SGD, hidden=4, server_steps=2, server_batch=4, generated=4, **TURN),
}
every = pytest.mark.parametrize('name', [pytest.param(name, marks=pytest.mark.slow) for name in MADE])


@every
def test_an_empty_slot_changes_no_bit(name):
  full, wider = (made_with(MADE[name], participants=[row] * 3).run()[0] for row in ([0, 1, 2], [0, -1, 1, 2]))
  assert_same_bits(wider, full)


@every
def test_a_plan_without_slots_leaves_the_server_as_it_was(name):
  made = made_with(MADE[name], participants=np.zeros((2, 0), int))
  assert_same_bits(made.run()[0], made.state)


@every
def test_groups_of_one_architecture_are_as_one(name):
  one = made_with(MADE[name], rounds=3)
  two = problem(MADE[name], [NET, NET], [1, 2], plan.synchronous()([1, 2], 3), PARTS)
  (whole, _), (split, _) = one.run(), two.run(state=two.state._replace(server=_of_groups(one.state.server, 2)))
  together = jax.tree.map(lambda *a: jnp.concatenate(a), *split.client)
  assert_same_bits(together, whole.client[0])
  for ours, theirs in zip(jax.tree.leaves(split.server), jax.tree.leaves(whole.server), strict=True):
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def _of_groups(server, count):
  """A server's state before the first round, for so many groups of one architecture: paths are kept by group."""
  for field in ('paths', 'heads'):
    if hasattr(server, field):
      server = server._replace(**{field: getattr(server, field) * count})
  return server._replace(weights=_of_groups(server.weights, count)) if hasattr(server, 'weights') else server
