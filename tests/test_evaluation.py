from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkd import evaluation, models
from fedkd.errors import ConfigError
from fedkd.types import Client, Group, Method, Server, State, apply_model
from helpers import pool, preprocessed, row

IMAGES = pool()
MODEL = preprocessed(models.MLP((8,), classes=3))
logits_of = jax.jit(lambda variables, image: MODEL.apply(variables, image, False)[0])


@cache
def stack(clients, seed=0):
  """Variables of that many clients, leaves [clients, ...]."""
  keys = jax.random.split(jax.random.key(seed), clients)
  return jax.jit(jax.vmap(lambda key: MODEL.init(key, IMAGES.example[:1], False)))(keys)


def in_numpy(variables, image, label):
  logits = np.asarray(logits_of(variables, image))
  return (logits.argmax(-1) == np.asarray(label)).mean()


@pytest.mark.parametrize(('count', 'batch'), [(1, 500), (7, 7), (50, 1), (50, 7), (53, 50)])
def test_correct_counts_ragged_batches_exactly(count, batch):
  image, label = IMAGES.example[:count], IMAGES.label[:count]
  variables = row(stack(1), 0)
  correct = evaluation.is_correct(MODEL, apply_model, variables, (), image, label, batch)
  assert correct.dtype == np.float32
  assert correct.shape == (count,)
  assert np.mean(np.asarray(correct, np.float64)) == in_numpy(variables, image, label)


def method(variables, predict=apply_model):
  return Method(Client(None, None), Server(None, None, None), lambda state, g: variables[g], predict)


GROUPS = tuple(Group(f'g{g}', MODEL, np.arange(3 * g, 3 * g + 3, dtype=np.int32)) for g in range(2))


def accuracy(method, rows, server=()):
  correct = lambda server: evaluation.correct_predictions(method, GROUPS, State((), server), *IMAGES, rows, batch=50)
  found = jax.jit(correct)(server)
  assert [(f.dtype, f.shape) for f in found] == [(np.float32, (len(k), len(IMAGES.label))) for k in rows]
  return [np.asarray(f).mean(-1) for f in found]


@pytest.mark.parametrize('rows', [([0, 1, 2], [0, 1, 2]), ([2], [1, 0]), (np.array([1, 1]), [2]), ([], [0])])
def test_hits_are_those_of_the_asked_clients(rows):
  variables = (stack(3), stack(3, 1))
  found = accuracy(method(variables), rows)
  for g, clients in enumerate(rows):
    expected = [in_numpy(row(variables[g], client), *IMAGES) for client in clients]
    np.testing.assert_allclose(found[g], expected, rtol=1e-6)
  assert len(set(np.concatenate(accuracy(method(variables), ([0, 1, 2], [0, 1, 2]))))) > 3  # a test that can fail


def test_one_model_for_all_is_evaluated_for_each():
  variables = (stack(1), stack(1, 1))
  found = accuracy(method(variables), ([0, 2], [1]))
  expected = [in_numpy(row(v, 0), *IMAGES) for v in variables]
  np.testing.assert_allclose(found[0], [expected[0]] * 2, rtol=1e-6)
  np.testing.assert_allclose(found[1], [expected[1]], rtol=1e-6)


def of_state(more=lambda state, g: {}):
  """A method whose clients' states are their models, with `more` entries beside them; groups of three."""
  return method(())._replace(variables=lambda state, g: {**state.client[g], **more(state, g)})


def shifted(model, variables, server, x):
  """By an entry of its own, which is added to the logits."""
  return apply_model(model, variables, server, x) + variables['shift']


def test_every_entry_is_read_by_its_own_axis():
  """One model for all, and something of each client's own, whichever comes first."""
  shift = jnp.diag(jnp.full(3, 100.0))
  for name in ('a', 'z'):
    made = method([{**stack(1), name: shift}] * 2, lambda *args, name=name: apply_model(*args) + args[1][name])
    found = evaluation.correct_predictions(made, GROUPS, State((), ()), *IMAGES, ([0, 1, 2], [2]))
    for of_group, clients in zip(found, ([0, 1, 2], [2]), strict=True):
      np.testing.assert_array_equal(of_group, [IMAGES.label == client for client in clients])
    for client in range(3):
      model = evaluation.model_of(made, GROUPS, State((), ()), client)[1]
      jax.tree.map(np.testing.assert_array_equal, model, row(stack(1), 0))


def test_padded_states_and_entries_as_long_as_the_group_are_read_together():
  padded, own = stack(4), jnp.diag(jnp.full(3, 100.0))
  made = of_state(lambda state, g: {'shift': state.server})._replace(predict=shifted)
  found = evaluation.correct_predictions(made, GROUPS, State((padded, padded), own), *IMAGES, ([2, 0], [1]))
  np.testing.assert_array_equal(found[0], [IMAGES.label == 2, IMAGES.label == 0])
  np.testing.assert_array_equal(found[1], [IMAGES.label == 1])


def test_states_of_the_evaluated_clients_alone_are_read_in_their_order():
  """As they are read from the disk."""
  held = jax.tree.map(lambda a: a[1:], stack(3))
  state, rows = State((held, held), ()), ([1, 2], [1, 2])
  found = evaluation.correct_predictions(of_state(), GROUPS, state, *IMAGES, rows, alone=True)
  expected = [in_numpy(row(stack(3), k), *IMAGES) for k in (1, 2)]
  np.testing.assert_allclose(np.asarray(found).mean(-1), [expected] * 2, rtol=1e-6)


@pytest.mark.parametrize('clients', ['with', 'without'])
def test_beside_states_of_some_clients_a_server_keeps_those_of_all(clients):
  held = jax.tree.map(lambda a: a[1:], stack(3)) if clients == 'with' else ()
  own, rows = jnp.diag(jnp.full(3, 100.0)), ([1, 2], [2])
  made = of_state(lambda state, g: {'shift': state.server})
  if clients == 'without':
    made = method([{**stack(1), 'shift': own}] * 2)
  made, state = made._replace(predict=shifted), State((held, jax.tree.map(lambda a: a[1:], held)), own)
  found = evaluation.correct_predictions(made, GROUPS, state, *IMAGES, rows, alone=True)
  np.testing.assert_array_equal(found[0], [IMAGES.label == 1, IMAGES.label == 2])
  np.testing.assert_array_equal(found[1], [IMAGES.label == 2])


@pytest.mark.parametrize('length', [2, 6])
def test_entries_of_another_length_are_refused(length):
  made = method((stack(length), stack(length)))
  message = rf'^Method.variables .* returned \[{length}, .* for g0 of 3 clients; let leaves be \[1, ...\], one for all'
  with pytest.raises(ConfigError, match=message):
    evaluation.correct_predictions(made, GROUPS, State((), ()), *IMAGES, ([0], [0]))
  with pytest.raises(ConfigError, match=message):
    evaluation.model_of(made, GROUPS, State((), ()), 2)


def test_predict_sees_the_server():
  predict = lambda model, variables, server, x: jnp.broadcast_to(server['logits'], (len(x), 3))
  found = accuracy(method((stack(3), stack(1)), predict), ([0, 1], [0]), {'logits': jnp.array([0.0, 2.0, 1.0])})
  for share in found:
    np.testing.assert_allclose(share, np.mean(np.asarray(IMAGES.label) == 1), rtol=1e-6)


def test_several_predictions_are_told_apart_by_name():
  one = lambda model, variables, server, x: jax.nn.one_hot(jnp.ones(len(x), int), 3)
  several = method((stack(3), stack(1)))._replace(predictions=(('one', one),))
  rows = [0, 1], [0]
  predict = evaluation.predictions(several)
  found = evaluation.correct_predictions(several, GROUPS, State((), ()), *IMAGES, rows, 50, predict)
  for of_group, alone in zip(found, accuracy(several, rows), strict=True):
    assert list(of_group) == ['', 'one']
    np.testing.assert_array_equal(np.asarray(of_group['']).mean(-1), alone)
    np.testing.assert_array_equal(of_group['one'], np.broadcast_to(IMAGES.label == 1, of_group['one'].shape))


@pytest.mark.parametrize('names', [('local',), ('a', 'a'), ('mean of all',), ('',)])
def test_names_that_could_be_confused_are_refused(names):
  named = method(())._replace(predictions=tuple((name, apply_model) for name in names))
  with pytest.raises(ValueError, match=f"the name '{names[0]}' is taken or not an identifier"):
    evaluation.predictions(named)


def test_a_label_of_minus_one_is_padding():
  label = jnp.where(jnp.arange(120) < 40, IMAGES.label, -1)
  variables = row(stack(1), 0)
  correct = evaluation.is_correct(MODEL, apply_model, variables, (), IMAGES.example, label, 50)
  assert int(correct.sum()) == round(in_numpy(variables, IMAGES.example[:40], label[:40]) * 40)
  assert not correct[40:].any()
