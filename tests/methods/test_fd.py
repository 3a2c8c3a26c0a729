"""FD: what is sent is the mean output of the passes that trained, what comes back the mean of the others."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import ledger, methods, models, plan, servers
from helpers import assert_close, assert_same_bits, bound, problem, softmax
from lone_servers import KEY, groups_of, received, uploads_of
from small_nets import Normed

NET = models.MLP((), classes=3)
TURN = {'steps': 2, 'batch': 8}
RATE, GAMMA = 0.1, 0.7
SGD = optax.sgd(RATE)
PARTS = [np.arange(12), np.arange(20, 26), np.arange(40, 43)]  # batches of 12 hold every row as often; 0, 1, 2 in turn


def made_with(method, clients=3, rounds=3, parts=None, net=NET):
  return problem(method, [net], [clients], plan.synchronous()([clients], rounds), parts)


@pytest.mark.slow
def test_without_its_weight_it_is_private():
  both = methods.fd(SGD, gamma=0.0, **TURN), methods.private(SGD, **TURN)
  (one,), other = (made_with(method).run()[0].client for method in both)
  assert_same_bits((one['learner'],), other)


def test_one_client_has_nobody_to_learn_from():
  both = methods.fd(SGD, **TURN), methods.private(SGD, **TURN)
  (one,), other = (made_with(method, 1).run()[0].client for method in both)
  assert_close((one['learner'],), other)


UPLOADS = np.array([[[1.0, 2], [3, 4]], [[5.0, 6], [7, 8]], [[9.0, 10], [0, 0]]])
VALID = np.array([[True, True], [True, False], [True, False]])


def sent(clients, valid=VALID, ids=None):
  """(value [m, C, 2], valid [m, C]) of what the clients `ids` receive after the first `clients` have uploaded."""
  server = servers.means_of_others()
  state = server.init(KEY, groups_of(3), (), ())
  slots = (jnp.arange(clients),)
  state = received(server, state, (uploads_of(UPLOADS[:clients], valid[:clients]),), slots)
  asking = slots if ids is None else (jnp.asarray(ids),)
  message = jax.jit(lambda state: bound(server).send(KEY, 1, state, asking)[0].own)(state)
  assert_same_bits(message['knowledge'].valid, message['label'].valid)
  return np.asarray(message['knowledge'].value), np.asarray(message['knowledge'].valid)


def test_of_two_clients_each_receives_the_others_upload():
  value, valid = sent(2, np.ones((3, 2), bool))
  assert_same_bits(value, UPLOADS[[1, 0]].astype(np.float32))
  assert valid.all()


def test_a_class_that_nobody_else_sent_is_not_there():
  value, valid = sent(3)
  np.testing.assert_array_equal(valid, [[True, False], [True, True], [True, True]])
  np.testing.assert_array_equal(value[:, 0], [[7, 8], [5, 6], [3, 4]])  # means of the other two
  np.testing.assert_array_equal(value[1:, 1], [[3, 4], [3, 4]])  # only client 0 sent it


def test_the_mean_over_clients_of_what_they_receive_is_the_mean_of_what_was_sent():
  value, _ = sent(3, np.ones((3, 2), bool))
  np.testing.assert_allclose(value.mean(0), UPLOADS.mean(0), rtol=1e-6)


def test_who_was_absent_receives_the_mean_of_all_and_uploads_last_a_round():
  value, valid = sent(2, np.ones((3, 2), bool), ids=[2, -1])
  np.testing.assert_array_equal(value[0], UPLOADS[:2].mean(0))
  assert valid[0].all()
  server = servers.means_of_others()
  state = server.init(KEY, groups_of(3), (), ())
  slots = (jnp.arange(3),)
  state, _ = bound(server).receive(KEY, 0, state, (uploads_of(UPLOADS),), slots)
  nobody, info = bound(server).receive(KEY, 1, state, (uploads_of(UPLOADS[:1]),), (jnp.array([-1]),))
  assert_same_bits(nobody, state)
  assert info['known_classes'] == 2
  state, _ = bound(server).receive(KEY, 2, state, (uploads_of(UPLOADS[:1]),), (jnp.array([1]),))
  found = bound(server).send(KEY, 3, state, slots)[0].own['knowledge'].valid
  np.testing.assert_array_equal(np.asarray(found).all(1), [True, False, True])


# What is averaged of logits, the loss of an example and its gradient to the logits, given what was received.
FORMS = {
  ('probabilities', 'ce'): (softmax, lambda z, p: (-(p * np.log(softmax(z))).sum(), softmax(z) * p.sum() - p)),
  ('logits', 'kl'): (
    lambda z: z,
    lambda z, g: ((softmax(g) * np.log(softmax(g) / softmax(z))).sum(), softmax(z) - softmax(g)),
  ),
  ('logits', 'mse'): (lambda z: z, lambda z, g: (np.mean((z - g) ** 2), 2 * (z - g) / len(z))),
}


class Everything:
  """What a client of FedDistill sends for a class (FedGen's LogitTracker): a mean over all rounds, counted from 1."""

  def __init__(self):
    self.sums, self.counts = np.zeros((3, 3)), np.ones(3)

  def mean(self, outputs):
    for c, values in outputs.items():
      self.sums[c] += np.sum(values, 0) if values else 0
      self.counts[c] += len(values)
    return dict(enumerate(self.sums / self.counts[:, None]))


def means_of(outputs):
  return {c: np.mean(values, 0) for c, values in outputs.items()}


def check_against_the_twin(how, parts, who, summaries):
  """Softmax regression in float64, one example at a time.

  Args:
    how: arguments of `fd`.
    parts: rows of every client.
    who: the clients of every round.
    summaries: of every client, the outputs of a round by class -> what it sends.
  """
  output, form = FORMS[how['knowledge'], how['distance']]
  table = np.array([[k if k in here else -1 for k in range(3)] for here in who], np.int32)
  made = problem(methods.fd(SGD, steps=2, batch=12, gamma=GAMMA, **how), [NET], [3], plan.Plan((table,), False), parts)
  image, label = map(np.asarray, made.data[0].pool)
  x = np.concatenate([(image.reshape(len(image), -1) - 128.0) / 64, np.ones((len(image), 1))], 1)
  dense = made.state.client[0]['learner'].params['net']['output']
  w = [np.concatenate([k, b[None]]).astype(float) for k, b in zip(dense['kernel'], dense['bias'], strict=True)]
  means, losses = {}, []
  for here in who:
    uploads = {}
    for k in here:
      rows, from_whom = parts[k], [j for j in means if j != k or not how['others_only']]
      known = {c: np.mean([means[j][c] for j in from_whom], 0) for c in range(3)} if means else {}
      sums, loss = {c: [] for c in range(3)}, 0.0
      for _ in range(2):
        slope = np.zeros_like(w[k])
        for row in rows:
          z, y = x[row] @ w[k], label[row]
          sums[y] += [output(z)] * (12 // len(rows))  # a row as often as it is in the batch
          away, push = form(z, known[y]) if known else (0.0, 0.0)
          loss += (-np.log(softmax(z)[y]) + GAMMA * away) / len(rows) / 2
          slope += np.outer(x[row], softmax(z) - np.eye(3)[y] + GAMMA * push) / len(rows)
        w[k] = w[k] - RATE * slope
      uploads[k] = summaries[k](sums)
      losses.append(loss)
    means = uploads
  state, report = made.run()
  found = state.client[0]['learner'].params['net']['output']
  np.testing.assert_allclose(np.concatenate([found['kernel'], found['bias'][:, None]], 1), w, rtol=1e-4, atol=1e-5)
  took_part = table >= 0
  np.testing.assert_allclose(report.info[0]['loss'][took_part], losses, rtol=1e-4)
  assert np.abs(report.info[0]['distill_loss'])[1:][took_part[1:]].min() > 1e-3  # it mattered
  return report


@pytest.mark.parametrize(('knowledge', 'distance'), FORMS)
@pytest.mark.parametrize('others', [True, pytest.param(False, marks=pytest.mark.slow)])
def test_three_rounds_are_those_of_a_twin_in_numpy(knowledge, distance, others):
  """The third client has one row of each class."""
  how = {'knowledge': knowledge, 'distance': distance, 'others_only': others}
  report = check_against_the_twin(how, PARTS, [range(3)] * 3, [means_of] * 3)
  # C (C + 1) numbers each way, none down in the first round.
  numbers = lambda counts: ledger.total(counts)['knowledge'][0] + ledger.total(counts)['labels'][0]
  assert (numbers(report.up), numbers(report.down)) == (3 * 3 * 12, 2 * 3 * 12)


def test_feddistill_is_that_of_fedgens_code():
  """The third client lacks a class and the third round: its zeros are in the mean of the others, while it is there."""
  how = {'knowledge': 'logits', 'distance': 'kl', 'others_only': False, 'average': 'all'}
  parts, who = [*PARTS[:2], np.array([40, 42])], [[0, 1, 2], [0, 2], [0, 1], [1, 2]]
  report = check_against_the_twin(how, parts, who, [Everything().mean for _ in range(3)])
  assert ledger.total(report.up)['labels'][0] == 9 * 3  # of the class that it lacks too


@pytest.mark.slow
def test_fedhe_with_sums_of_a_round_is_the_variant_of_htfllib():
  how = {'knowledge': 'logits', 'distance': 'mse', 'others_only': False}
  fedhe = methods.fedhe(SGD, count_offset=0.0, cold_start=0.0, refresh_every=0.0, **TURN)
  fedhe = fedhe._replace(server=servers.class_means(per_round=True))
  (one,), other = (made_with(method).run()[0].client for method in (methods.fd(SGD, **how, **TURN), fedhe))
  assert_same_bits((one['learner'],), other)


@pytest.mark.slow
def test_with_weights_shared_and_no_distance_it_is_fedavg():
  """FedDistill+ without its knowledge, which is sent all the same."""
  ours = made_with(methods.fd(SGD, gamma=0.0, share_weights=True, others_only=False, **TURN))
  theirs = made_with(methods.fedavg(SGD, keep_optimizer=True, **TURN))
  (state, report), (other, _) = ours.run(), theirs.run()
  assert_same_bits(ours.method.variables(state, 0), theirs.method.variables(other, 0))
  sent = {kind: numbers for kind, (numbers, _) in ledger.total(report.up).items()}
  assert sent == {'knowledge': 9 * 9, 'labels': 9 * (3 + 1), 'weights': 9 * (36 * 3 + 3)}


def test_a_body_that_is_shared_has_its_statistics():
  made = made_with(methods.fd(SGD, share_weights=True, share='body', **TURN), net=Normed())
  state, report = made.run()
  for leaf in jax.tree.leaves(made.method.variables(state, 0)['batch_stats']):
    assert (leaf == leaf[:1]).all()
  assert ledger.total(report.up)['statistics'][0] > 0


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'distance': 'mae'}, r"distance='mae' is unknown; choose one of ce, kl, mse"),
    ({'knowledge': 'features'}, r"knowledge='features' is unknown; choose one of probabilities, logits"),
    ({'average': 'some'}, r"average='some' is unknown; choose one of round, all"),
    ({'share': 'head'}, r"share='head' names weights that travel; set share_weights=True"),
    ({'gamma': -1.0}, r'gamma=-1.0 must be .*at least 0'),
  ],
)
def test_unknown_choices_are_refused(wrong, message):
  with pytest.raises(ValueError, match=message):
    methods.fd(SGD, **wrong)


def test_gamma_may_be_traced():
  run = lambda gamma: made_with(methods.fd(SGD, gamma=gamma, **TURN), rounds=2).run()[0].client[0]
  end = jax.jit(lambda gamma: run(gamma)['learner'].params)
  assert not np.allclose(*(jax.tree.leaves(end(g))[0] for g in (0.0, 5.0)))
