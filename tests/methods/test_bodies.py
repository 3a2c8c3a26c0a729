"""FedPer, FedRep and FedBABU: bodies are averaged, heads stay with their clients."""

import jax
import numpy as np
import optax
import pytest

from fedkd import ledger, methods
from helpers import assert_close, assert_same_bits, cases, row, softmax
from small_nets import PARTS, Normed, in_vectors, made_with

SGD = optax.sgd(0.1, momentum=0.9)
TURN = {'epochs': 1, 'batch': 4}


def nets(made, rounds=None):
  """{layer: its parameters in all clients [n, ...]} of the models that would be used, before and after some rounds."""
  state = made.run(rounds)[0]
  return [jax.tree.map(np.asarray, made.method.variables(s, 0)['params']['net']) for s in (made.state, state)]


def alike(tree):
  """Whether all clients have the same bits."""
  return all((leaf == leaf[:1]).all() for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize('name', ['fedper', 'fedrep'])
def test_bodies_are_common_and_heads_are_not(name):
  how = {'head_epochs': 1} if name == 'fedrep' else {}
  _, after = nets(made_with(getattr(methods, name)(SGD, **TURN, **how)))
  assert alike(after['layers_0'])
  assert not alike(after['output'])


def test_statistics_of_batch_norm_belong_to_the_body():
  made = made_with(methods.fedper(SGD, **TURN), net=Normed())
  state, report = made.run()
  statistics = made.method.variables(state, 0)['batch_stats']
  assert alike(statistics)
  assert any(
    (np.asarray(a) != np.asarray(b)).any()
    for a, b in zip(
      *(jax.tree.leaves(made.method.variables(s, 0)['batch_stats']) for s in (state, made.state)), strict=True
    )
  )
  assert ledger.total(report.up)['statistics'][0] == ledger.total(report.down)['statistics'][0] > 0


def test_a_head_that_is_not_trained_keeps_its_bits_and_so_does_a_body():
  before, after = nets(made_with(methods.fedbabu(SGD, **TURN)))
  assert_same_bits(after['output'], before['output'])
  assert not np.array_equal(after['layers_0']['kernel'], before['layers_0']['kernel'])
  before, after = nets(made_with(methods.fedrep(SGD, head_epochs=2, epochs=0, batch=4)))
  assert_close(after['layers_0'], before['layers_0'])  # the mean of equal rows, to rounding
  assert not np.array_equal(after['output']['kernel'], before['output']['kernel'])


def test_fedrep_without_passes_for_the_head_is_fedbabu():
  one, other = (
    made_with(m).run()[0] for m in (methods.fedrep(SGD, head_epochs=0, **TURN), methods.fedbabu(SGD, **TURN))
  )
  assert_same_bits(one.client, other.client)
  with pytest.raises(ValueError, match='all are 0'):
    methods.fedrep(SGD, head_epochs=0, epochs=0)


def test_statistics_stay_with_a_body_that_is_not_trained():
  made = made_with(methods.fedrep(SGD, head_epochs=2, epochs=0, batch=4), net=Normed())
  assert_close(*(made.method.variables(state, 0)['batch_stats'] for state in (made.state, made.run()[0])))


@pytest.mark.parametrize('head_steps', [1, 30])
def test_the_optimizer_of_the_body_sees_no_steps_of_the_head(head_steps):
  """The first step of Adam is as long as its rate, whatever came before."""
  adam = methods.fedrep(optax.adam(1e-3), head_steps=head_steps, epochs=None, steps=1, batch=4)
  before, after = nets(made_with(adam, participants=[[0]]), 1)
  moved = np.abs(after['layers_0']['kernel'] - before['layers_0']['kernel'])[0]
  np.testing.assert_allclose(moved[moved > 0], 1e-3, rtol=0.01)
  assert moved.any()


def test_the_body_is_trained_under_the_head_that_was_trained_before():
  """A round of both is a round of the head on the received body, then one of the body with that head."""
  both = made_with(methods.fedrep(optax.sgd(0.1), head_epochs=1, **TURN), rounds=1)
  heads = made_with(methods.fedrep(optax.sgd(0.1), head_epochs=1, epochs=0, batch=4), rounds=1)
  trained, _ = heads.run()
  _, after = nets(both)
  assert_same_bits(
    after['output'], jax.tree.map(np.asarray, heads.method.variables(trained, 0)['params']['net']['output'])
  )
  _, under_first = nets(made_with(methods.fedbabu(optax.sgd(0.1), **TURN), rounds=1))
  assert not np.array_equal(after['layers_0']['kernel'], under_first['layers_0']['kernel'])


def gradients(x, true, body, head):
  """Of the mean cross-entropy of a net with one hidden layer, biases in the last rows."""
  z = np.maximum(x @ body, 0)
  outputs = np.hstack([z, np.ones((len(z), 1))])
  error = (softmax(outputs @ head) - true) / len(x)
  return x.T @ (error @ head[:-1].T * (z > 0)), outputs.T @ error


@pytest.mark.parametrize('name', ['fedper', 'fedrep', 'fedbabu'])
def test_two_rounds_are_those_of_a_twin_in_numpy(name):
  """In the second round a client is absent. Whole batches: steps of head and body together, one after the other, or of
  the body alone."""
  rate, slots = 0.1, [[0, 1, 2], [2, -1, 0]]
  how = {'epochs': None, 'steps': 2, 'batch': 12, **({'head_steps': 3} if name == 'fedrep' else {})}
  made = made_with(getattr(methods, name)(optax.sgd(rate), **how), participants=slots)
  x, label = in_vectors(made)
  x, true = np.hstack([x, np.ones((len(x), 1))]), np.eye(3)[label]
  layer = lambda p: np.vstack([np.asarray(p['kernel'], float), np.asarray(p['bias'], float)[None]])
  layers = lambda params: [layer(params['net'][at]) for at in ('layers_0', 'output')]
  of = lambda state, k: layers(row(made.method.variables(state, 0)['params'], k))
  parts = {'fedper': [(0, 1)] * 2, 'fedrep': [(1,)] * 3 + [(0,)] * 2, 'fedbabu': [(0,)] * 2}[name]
  body, heads = of(made.state, 0)[0], [of(made.state, k)[1] for k in range(3)]
  for present in slots:
    bodies, counts = [], []
    for k in (k for k in present if k >= 0):
      own = [body, heads[k]]
      for moving in parts:
        slope = gradients(x[PARTS[k]], true[PARTS[k]], *own)
        own = [own[i] - rate * slope[i] * (i in moving) for i in (0, 1)]
      bodies.append(own[0])
      counts.append(len(PARTS[k]))
      heads[k] = own[1]
    body = np.average(bodies, 0, counts)
  state, report = made.run()
  np.testing.assert_array_equal(report.info[0]['examples'], 12 * len(parts) * (np.array(slots) >= 0))
  for k in range(3):
    for ours, theirs in zip(of(state, k), (body, heads[k]), strict=True):
      np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('work', cases([{'epochs': 3}, {'epochs': None, 'steps': 2}], slow=[{'epochs': 3}]))
def test_a_schedule_counts_the_steps_of_both_parts(work):
  """A fresh optimizer goes on where one that is kept is, which has no other memory."""
  falling = optax.sgd(optax.linear_schedule(0.1, 0.0, 40))
  one, other = (
    made_with(methods.fedrep(falling, head_epochs=1, batch=4, keep_optimizer=keep, **work), rounds=3).run()[0]
    for keep in (True, False)
  )
  assert_same_bits(one, other)


def test_an_absent_client_has_the_newest_body_under_its_old_head():
  made = made_with(methods.fedper(SGD, **TURN), participants=[[0, 1], [0, -1]])
  first, _ = made.run(1)
  last, report = made.run()
  assert_same_bits(row(last.client[0], np.array([1, 2])), row(first.client[0], np.array([1, 2])))
  net = jax.tree.map(np.asarray, made.method.variables(last, 0)['params']['net'])
  assert alike(net['layers_0'])
  body = sum(leaf[0].size for leaf in jax.tree.leaves(net['layers_0']))
  assert ledger.total(report.up) == {'labels': (3, 12), 'weights': (3 * body, 12 * body)}
