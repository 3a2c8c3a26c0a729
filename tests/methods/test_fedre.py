"""FedRE: random mixtures of class means, and a head that is trained on them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import ledger, methods, models, plan
from fedkd.methods.fedre import mixture
from helpers import assert_close, assert_same_bits, cases, problem, row
from lone_servers import KEY
from small_nets import NET, PARTS, in_vectors, made_with

SGD = optax.sgd(0.1)
TURN = {'epochs': 1, 'batch': 4}
RANDOM = np.random.default_rng(0)
MEANS = RANDOM.normal(size=(3, 5)).astype(np.float32)


def head_of(made, state):
  down = made.server.send(made.key, 0, state.server, ((),))[0].shared['params']
  return {path.rpartition('/')[2]: np.asarray(leaf) for path, leaf in down.items()}


def stacked(*messages):
  return jax.tree.map(lambda *a: jnp.stack(a), *messages)


def after(method, messages, blank=True):
  """The head of a server that received these uploads, from zeros."""
  made = made_with(method)
  state = made.state.server
  zeros = jax.tree.map(jnp.zeros_like, state.server['params']) if blank else state.server['params']
  state = state._replace(server={**state.server, 'params': zeros})
  ids = jnp.arange(len(messages))
  new, _ = made.server.receive(KEY, 0, state, (stacked(*messages),), (ids,))
  return head_of(made, made.state._replace(server=new))


def some_mixtures():
  weights = RANDOM.uniform(size=(3, 3)).astype(np.float32)
  return [mixture(MEANS * (k + 1), np.array([True, k > 0, True]), weights[k]) for k in range(3)]


@pytest.mark.parametrize(('reduction', 'rate'), [('sum', 0.2), ('mean', 0.6)])
def test_one_step_from_zeros_is_in_closed_form(reduction, rate):
  """Three uploads in a batch that has room for more: each counts once; a mean over them needs three times the rate."""
  messages = some_mixtures()
  head = after(methods.fedre(SGD, server_rate=rate, reduction=reduction, **TURN), messages)
  mixed = np.concatenate([m['knowledge'].value for m in messages])
  soft = np.concatenate([m['label'].value for m in messages])
  np.testing.assert_allclose(head['kernel'], 0.2 * mixed.T @ (soft - 1 / 3), rtol=1e-5, atol=1e-7)
  np.testing.assert_allclose(head['bias'], 0.2 * (soft - 1 / 3).sum(0), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize('reduction', ['sum', 'mean'])
@pytest.mark.parametrize('empty', cases([2, 3, 30], slow=[3]))
def test_empty_slots_beyond_a_batch_change_nothing(reduction, empty):
  """Whether a step is on all uploads follows from how many there are, not from how many slots."""
  messages = some_mixtures()
  nobody = jax.tree.map(jnp.zeros_like, messages[0])
  method = methods.fedre(SGD, server_rate=0.2, server_batch=5, reduction=reduction, **TURN)
  made = made_with(method)
  received = []
  for some in (messages, [*messages, *[nobody] * empty]):
    ids = jnp.where(jnp.arange(len(some)) < 3, jnp.arange(len(some)), -1)
    new, info = made.server.receive(KEY, 0, made.state.server, (stacked(*some),), (ids,))
    received.append((head_of(made, made.state._replace(server=new)), float(info['server_loss'])))
  (head, loss), (other, same) = received
  np.testing.assert_allclose(same, loss, rtol=1e-6)
  for name in head:
    np.testing.assert_allclose(other[name], head[name], rtol=1e-6, atol=1e-7)


def test_an_upload_that_is_missing_does_not_count():
  """Though the batch has room for as many as there are slots."""
  messages = some_mixtures()
  absent = jax.tree.map(jnp.zeros_like, messages[0])
  full, fewer = methods.fedre(SGD, server_batch=2, **TURN), methods.fedre(SGD, server_batch=3, **TURN)
  assert_same_bits(after(fewer, [messages[0], absent, messages[2]]), after(full, [messages[0], messages[2]]))


def test_the_order_of_the_clients_does_not_matter():
  method, messages = methods.fedre(SGD, **TURN), some_mixtures()
  assert_close(after(method, messages, False), after(method, messages[::-1], False))


def test_a_mixture_is_of_the_own_classes():
  found = mixture(MEANS, np.array([True, False, True]), np.array([1.0, 5.0, 3.0], np.float32))
  np.testing.assert_allclose(found['label'].value, [[0.25, 0, 0.75]])
  np.testing.assert_allclose(found['knowledge'].value, 0.25 * MEANS[:1] + 0.75 * MEANS[2:], rtol=1e-6)
  single = mixture(MEANS, np.array([False, True, False]), np.array([1.0, 5.0, 3.0], np.float32))
  np.testing.assert_array_equal(single['label'].value, [[0, 1, 0]])
  np.testing.assert_array_equal(single['knowledge'].value, MEANS[1:2])
  assert not mixture(MEANS, np.zeros(3, bool), np.ones(3, np.float32))['knowledge'].valid.any()


def test_clients_of_one_class_are_fedghs():
  """A prototype each: one step on a whole batch, whose loss is the mean in FedGH."""
  parts = [np.arange(c, 24, 3)[:4] for c in range(3)]  # of one class each
  how = {'server_epochs': 1, 'server_batch': 3, 'server_rate': 0.3}
  turns = plan.synchronous()([3], 2)
  ours, theirs = (
    problem(method, [NET], [3], turns, parts)
    for method in (methods.fedre(SGD, reduction='mean', **how, **TURN), methods.fedgh(SGD, **how, **TURN))
  )
  state, expected = ours.run()[0], theirs.run()[0]
  assert_close(head_of(ours, state), head_of(theirs, expected))
  assert_close(state.client[0]['learner'].params, expected.client[0].params)


@pytest.mark.parametrize('resample', [True, False])
def test_what_is_sent_is_counted_and_mixed_anew_in_every_round(resample):
  method = methods.fedre(SGD, resample=resample, **TURN)
  made = made_with(method, participants=[[0, 1, 2], [0, -1, 2]])

  def step(key, t, model, state, down, data):
    out = made.method.client.step(key, t, model, state, down, data)
    label, sent = out[1]['label'].value[0], out[1]['knowledge'].value[0]
    return *out[:2], {f'{what}{i}': value for what, a in (('mix', label), ('sent', sent)) for i, value in enumerate(a)}

  noting = made._replace(method=made.method._replace(client=made.method.client._replace(step=step)), programs={})
  state, report = noting.run()
  mix, sent = (np.stack([report.info[0][f'{what}{i}'] for i in range(n)], -1) for what, n in (('mix', 3), ('sent', 5)))
  for slot, k in ((0, 0), (2, 2)):  # by features of the model that was trained
    np.testing.assert_allclose(sent[1, slot], mixed(made, state, k, mix[1, slot]), 1e-4)
  np.testing.assert_allclose(mix[0].sum(-1), 1, rtol=1e-6)
  assert (mix[0, 0] == mix[1, 0]).all() == (not resample)
  np.testing.assert_allclose(mix[0, 2], [0, 1, 0])  # of its single class
  width, head = 5, 5 * 3 + 3
  assert ledger.total(report.up) == {'knowledge': (5 * width, 20 * width), 'labels': (5 * 3, 20 * 3)}
  assert ledger.total(report.down) == {'weights': (5 * head, 20 * head)}


def mixed(made, state, k, shares):
  """The class means of a client's features, mixed in NumPy."""
  x, label = in_vectors(made)
  layer = row(state.client[0]['learner'].params['net']['layers_0'], k)
  z = np.maximum(x[PARTS[k]] @ np.asarray(layer['kernel'], float) + layer['bias'], 0)
  return sum(share * z[label[PARTS[k]] == c].mean(0) for c, share in enumerate(shares) if share)


def test_a_round_with_nobody_teaches_nothing():
  made = made_with(methods.fedre(SGD, **TURN), participants=[[0, 1, 2], [-1, -1, -1]])
  before, _ = made.run(1, length=2)
  assert_same_bits(head_of(made, made.run(1, before, 1, length=2)[0]), head_of(made, before))


def test_what_does_not_fit_is_refused():
  pair, turns = [NET, models.MLP((4,), classes=3)], plan.synchronous()([1, 1], 1)
  with pytest.raises(ValueError, match=r'what g1 shares is .*\[4, 3\].*give the models features of one width'):
    problem(methods.fedre(SGD), pair, [1, 1], turns, PARTS[:2])
