"""FedH2L: its oracles, its variants, its traffic, and a slow twin in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import ledger, methods, models, plan
from fedkd.types import Data, Download, ExampleIndices, PeerMessages, Pool
from helpers import (
  CLASSES,
  EXAMPLES,
  GIVEN,
  assert_close,
  assert_same_bits,
  augmented,
  bound,
  cases,
  pool,
  preprocessed,
  problem,
  row,
  softmax,
)

RATE = 0.2
LINEAR = models.MLP((), classes=CLASSES)
SIZES = (2, 1)
PARTS = [np.arange(16), np.arange(30, 70), np.arange(80, 96)]
FULL = {'all': 48, 'own': 80}  # batches that hold every row as often: of 24 and 48, of 16 and 40, and of 4 rows


def fedh2l(tx=None, **how):
  return methods.fedh2l(tx or optax.sgd(RATE), **{'batch': FULL[how.get('local_rows', 'all')], **how})


def made_with(method, sizes=SIZES, rounds=5, parts=None, **how):
  parts = PARTS[: sum(sizes)] if parts is None else parts
  return problem(method, [LINEAR] * len(sizes), sizes, plan.synchronous()(sizes, rounds), parts, contested(), **how)


def contested():
  """Images whose labels mean something else for every node, so that nodes disagree."""
  images = pool()
  return images._replace(label=(images.label + np.arange(EXAMPLES) // 30) % CLASSES)


def params_of(state):
  """What everyone would use now, kernel over bias, [K, in + 1, C]."""
  dense = [c['learner'].params['net']['output'] for c in state.client]
  return np.concatenate([np.concatenate([d['kernel'], d['bias'][:, None]], 1) for d in dense])


# A slow twin.


class Node:
  """Softmax regression in float64, whole batches, plain SGD."""

  def __init__(self, w, images, private, public, how):
    x = (np.asarray(images.example, float).reshape(EXAMPLES, -1) - 128) / 64
    self.x, self.label = np.concatenate([x, np.ones((EXAMPLES, 1))], 1), np.asarray(images.label)
    self.w, self.how = w.astype(float), how
    self.mine = private[-GIVEN:]
    self.rows = private if how['local_rows'] == 'own' else np.concatenate([private[:-GIVEN], public])
    self.reference, self.losses = 0.0, []

  def posterior(self, rows):
    return softmax(self.x[rows] @ self.w)

  def message(self):
    p = self.posterior(self.mine)
    return self.mine, p, np.mean(p.argmax(1) == self.label[self.mine])

  def mean_slope(self, rows, target):
    return self.x[rows].T @ (self.posterior(rows) - target) / len(rows)

  def learn(self, messages):
    """The global phase."""
    grad, info = 0.0, {'kl': 0.0, 'ce': 0.0}
    for rows, p, accuracy in messages:
      true, q = np.eye(CLASSES)[self.label[rows]], self.posterior(rows)
      trust = accuracy if self.how['trust'] == 'accuracy' else 1.0
      grad = grad + self.how['kl'] * trust * self.mean_slope(rows, p) / len(messages)
      grad = grad + self.how['labels'] * self.mean_slope(rows, true) / len(messages)
      info['kl'] += (p * np.log(p / q)).sum(1).mean() / len(messages)
      info['ce'] += -np.log(q[true > 0]).mean() / len(messages)
    inner = (grad * self.reference).sum()
    info['violated'] = inner < 0
    info['cosine'] = inner / np.linalg.norm(grad) / np.linalg.norm(self.reference)
    info['dual'] = 0 if self.how['project'] == 'none' else max(0, -inner / (self.reference**2).sum())
    direction = grad + info['dual'] * self.reference
    if self.how['project'] in ('pcgrad', 'joint'):
      direction = direction + self.reference + max(0, -inner / (grad**2).sum()) * grad
    self.w = self.w - RATE * direction
    self.reference = 0.0
    return info

  def work(self):
    """The local phase."""
    true = np.eye(CLASSES)[self.label[self.rows]]
    loss = -np.log(self.posterior(self.rows)[true > 0]).mean()
    slope = self.mean_slope(self.rows, true)
    self.reference = self.reference + slope
    if self.how['project'] != 'joint':
      self.w = self.w - RATE * slope
    return loss


DEFAULT = {
  'project': 'qp',
  'kl': True,
  'labels': True,
  'local_rows': 'all',
  'trust': 'accuracy',
  'interval': 1,
}
VARIANTS = {
  'the paper': {},
  'no project, ones': {'project': 'none', 'trust': 'ones'},
  'no KL': {'kl': False, 'local_rows': 'own'},
  'unlabeled': {'labels': False, 'local_rows': 'own'},
  'pcgrad': {'project': 'pcgrad', 'local_rows': 'own'},
  'joint': {'project': 'joint', 'local_rows': 'own'},
  'every other round': {'interval': 2, 'local_rows': 'own'},
}


@pytest.mark.parametrize('name', cases(VARIANTS, fast=('the paper',)))
def test_is_its_twin(name):
  how = DEFAULT | VARIANTS[name]
  made = made_with(fedh2l(**how), padding=3)
  public = np.concatenate([part[-GIVEN:] for part in PARTS])
  np.testing.assert_array_equal(made.data[0].public.index, public)
  nodes = [Node(w, made.data[0].pool, part, public, how) for w, part in zip(params_of(made.state), PARTS, strict=True)]
  state, report = made.run()
  info = {n: np.concatenate([np.asarray(i[n]) for i in report.info], 1) for n in report.info[0]}  # [rounds, K]

  messages, violations = None, []
  for t in range(5):
    has_teachers = messages is not None
    if has_teachers:
      notes = [node.learn([m for j, m in enumerate(messages) if j != i]) for i, node in enumerate(nodes)]
      for key in notes[0]:
        np.testing.assert_allclose(info[key][t], [n[key] for n in notes], rtol=1e-3, atol=2e-5, err_msg=f'{key} {t}')
      violations += [n['violated'] for n in notes]
    else:
      assert all(np.isnan(info[key][t]).all() for key in ('kl', 'ce', 'violated', 'cosine', 'dual'))
    np.testing.assert_array_equal(info['global_phases'][t], has_teachers)
    np.testing.assert_array_equal(info['examples'][t], FULL[how['local_rows']] * (1 + 2 * has_teachers))
    shown = [node.w for node in nodes]
    np.testing.assert_allclose(info['loss'][t], [node.work() for node in nodes], rtol=1e-4)
    messages = [node.message() for node in nodes] if (t + 1) % how['interval'] == 0 else None
  np.testing.assert_allclose(params_of(state), [node.w for node in nodes], rtol=1e-4, atol=2e-5)
  used = [made.method.variables(state, g)['params']['net']['output']['kernel'] for g in range(2)]
  np.testing.assert_allclose(np.concatenate(used), np.array(shown)[:, :-1], rtol=1e-4, atol=2e-5)
  if name in ('the paper', 'unlabeled'):
    assert sum(violations) > 0  # the projection had work to do


# Oracles.


def first_rounds(method, rounds=3, **how):
  return made_with(method, rounds=rounds, **how).run()


TEACHER = {
  'posterior': jnp.tile(jnp.array([0.7, 0.2, 0.1]), (80, 1)),
  'accuracy': jnp.float32(0.5),
  'index': jnp.arange(80, dtype=jnp.int32) + 20,
}


def one_client(method):
  """A function of messages and who sent them, of the client update after them: (state, info)."""
  made = made_with(method, (1,))
  data = Data(*(jax.tree.map(lambda a: a[0], part) if i in (1, 3) else part for i, part in enumerate(made.data[0])))
  state = row(made.state.client[0], 0)

  @jax.jit
  def after(down):
    return method.client.step(jax.random.key(0), 0, made.groups[0].model, state, down, data)[::2]

  def received_from(teacher, *valid):
    wrap = lambda a: PeerMessages(jnp.stack([a if s else a * 0 for s in (False, *valid)]), jnp.array([False, *valid]))
    return after(Download(shared=jax.tree.map(wrap, teacher)))

  return received_from


def test_the_mean_over_teachers_not_their_sum():
  """One teacher, or three alike: the same lesson."""
  received_from = one_client(fedh2l(local_rows='own'))
  (one, info), (three, other) = received_from(TEACHER, True, False, False), received_from(TEACHER, True, True, True)
  assert_close(one, three)
  assert float(info['global_phases']) == float(other['global_phases']) == 1
  assert (float(info['examples']), float(other['examples'])) == (160, 320)
  np.testing.assert_allclose(info['kl'], other['kl'], rtol=1e-5)
  # A teacher who is always wrong has no weight, whatever it sends; its labels still count.
  mute = {**TEACHER, 'accuracy': jnp.float32(0)}
  learned_from = lambda p: received_from({**mute, 'posterior': p}, True)[0]['learner']
  assert_close(learned_from(TEACHER['posterior']), learned_from(TEACHER['posterior'][:, ::-1]))
  assert (
    np.abs(
      learned_from(TEACHER['posterior']).params['net']['output']['bias']
      - one['learner'].params['net']['output']['bias']
    ).max()
    > 1e-4
  )


def test_without_soft_labels_the_true_ones_are_learned_from_alone():
  received_from = one_client(fedh2l(local_rows='own', kl=False, project='none'))
  bias = lambda **teacher: received_from({**TEACHER, **teacher}, True)[0]['learner'].params['net']['output']['bias']
  assert_same_bits(bias(), bias(posterior=TEACHER['posterior'][:, ::-1]))
  assert np.abs(bias() - bias(index=TEACHER['index'] - 20)).max() > 1e-4  # of other images


def permuted(made, client):
  """The problem where the labels of a client's shared rows are others."""
  label = np.array(made.data[0].pool.label)
  rows = PARTS[client][-GIVEN:]
  label[rows] = (label[rows] + 1) % CLASSES
  data = tuple(d._replace(pool=Pool(d.pool.example, jnp.asarray(label))) for d in made.data)
  return made._replace(data=data)


@pytest.mark.slow
@pytest.mark.parametrize('labels', [False, True])
def test_without_labels_those_of_the_peers_do_not_matter(labels):
  made = made_with(fedh2l(labels=labels, local_rows='own', trust='ones'), rounds=2)
  messages, _ = made.run(1, length=2)  # by all, with their own labels
  kernels = [params_of(p.run(1, messages, 1, length=2)[0])[:2] for p in (made, permuted(made, 2))]
  if labels:
    assert np.abs(kernels[0] - kernels[1]).max() > 1e-3
  else:
    assert_same_bits(*kernels)


@pytest.mark.slow
def test_two_nodes_in_pairs_are_two_nodes():
  (one, report), (two, other) = (
    first_rounds(fedh2l(batch=24, pairs=p), parts=PARTS[::2], sizes=(1, 1)) for p in (False, True)
  )
  assert_close(one.client, two.client)
  assert_close(report.info, other.info)
  assert_close(report.down, other.down)


def test_agg_is_fedh2l_without_global_phases():
  """Nobody ever hears anything: each round is a step on the private rows and everybody's public ones."""
  alone = first_rounds(fedh2l(interval=100))[0]
  agg = first_rounds(methods.agg(optax.sgd(RATE), steps=1, batch=48, scope='public'))[0]
  for g in range(2):
    assert_close(alone.client[g]['learner'], agg.client[g])


@pytest.mark.slow
def test_separate_optimizers_have_their_own_momentum():
  tx = optax.sgd(0.1, momentum=0.9)
  made = made_with(fedh2l(tx, separate_optimizers=True, local_rows='own', project='none'), rounds=2)
  (first, _), (state, _) = made.run(1, length=2), made.run()
  before, after = params_of(first), params_of(state)
  trace = lambda opt: opt[0].trace['net']['output']['bias']
  node = lambda s, name: trace(s.client[0][name] if name == 'global_opt' else s.client[0]['learner'].opt)
  assert (node(first, 'global_opt') == 0).all()
  shown = made.method.variables(state, 0)['params']['net']['output']['bias']
  # The first global step of a momentum of its own is a plain step along its gradient.
  np.testing.assert_allclose(before[:2, -1] - shown, 0.1 * node(state, 'global_opt'), rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(shown - after[:2, -1], 0.1 * node(state, 'learner'), rtol=1e-4, atol=1e-6)
  assert np.abs(node(state, 'global_opt')).max() > 1e-3


# Traffic.


def numbers(counts):
  """{kind: numbers [rounds, K]}."""
  return {kind: np.concatenate([np.asarray(c[kind][0]) for c in counts], 1) for kind in counts[0]}


@pytest.mark.parametrize(('batch', 'classes', 'knowledge'), [(32, 10, 321), (32, 7, 225), (32, 65, 2081)])
def test_payloads_of_the_paper(batch, classes, knowledge):
  method = methods.fedh2l(optax.sgd(0.1), batch=batch)
  model = preprocessed(models.MLP((), classes=classes))
  rows = ExampleIndices(jnp.arange(40), jnp.int32(40), jnp.int32(1))

  def update(image, label):
    data = Data(Pool(image, label), rows, rows, rows._replace(size=jnp.int32(30)), rows)
    groups = (type('Group', (), {'model': model, 'ids': np.arange(4), 'name': 'g'}),)
    server = method.server.init(jax.random.key(0), groups, (), (data,))
    down = bound(method.server).send(jax.random.key(0), 0, server, (jnp.arange(4),))[0]
    variables = {'batch_stats': {}, **model.init(jax.random.key(0), image[:1], False)}
    state = method.client.init(jax.random.key(0), model, data, variables)
    return method.client.step(jax.random.key(0), 0, model, state, down, data)[1], down

  up, down = jax.eval_shape(
    update, jax.ShapeDtypeStruct((40, 6, 6, 1), np.uint8), jax.ShapeDtypeStruct((40,), np.int32)
  )
  assert ledger.capacity(up) == {'knowledge': (knowledge, 4 * knowledge), 'indices': (32, 128)}
  assert ledger.capacity(down) == {'knowledge': (3 * knowledge, 12 * knowledge), 'indices': (96, 384)}


def test_messages_cross_the_wire_in_due_rounds_only():
  made = made_with(fedh2l(interval=2, local_rows='own', batch=8))
  _, report = made.run()
  up, down = numbers(report.up), numbers(report.down)
  payload, due = 8 * CLASSES + 1, np.array([0, 1, 0, 1, 0])[:, None] * np.ones(3, int)
  np.testing.assert_array_equal(up['knowledge'], due * payload)
  np.testing.assert_array_equal(up['indices'], due * 8)
  np.testing.assert_array_equal(down['knowledge'][1:], 2 * due[:-1] * payload)
  np.testing.assert_array_equal(down['indices'][1:], 2 * due[:-1] * 8)
  assert not down['knowledge'][0].any()


def test_the_node_left_over_skips_the_exchange():
  made = made_with(fedh2l(pairs=True, local_rows='own', batch=8))
  _, report = made.run()
  phases = np.concatenate([np.asarray(i['global_phases']) for i in report.info], 1)
  np.testing.assert_array_equal(phases.sum(1), [0, 2, 2, 2, 2])
  down = numbers(report.down)
  np.testing.assert_array_equal(down['knowledge'], phases * (8 * CLASSES + 1))
  examples = np.concatenate([np.asarray(i['examples']) for i in report.info], 1)
  np.testing.assert_array_equal(examples, 8 * (1 + phases))


@pytest.mark.slow
def test_an_idle_peer_is_ignored():
  participants = (np.array([[0, 1], [0, -1], [0, 1]], np.int32), np.array([[0], [0], [0]], np.int32))
  made = problem(fedh2l(local_rows='own', batch=8), [LINEAR] * 2, SIZES, plan.Plan(participants), PARTS, contested())
  _, report = made.run()
  examples = np.concatenate([np.asarray(i['examples']) for i in report.info], 1)
  np.testing.assert_array_equal(examples, [[8, 8, 8], [24, 0, 24], [16, 24, 16]])


# Refusals.


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'project': 'gem'}, r"project='gem' is unknown; choose one of qp, none, pcgrad, joint"),
    ({'local_rows': 'some'}, r"local_rows='some' is unknown; choose one of all, own"),
    ({'trust': 'blind'}, r"trust='blind' is unknown; choose one of accuracy, ones"),
    ({'batch': 0}, r'batch=0 must be a whole number of at least 1'),
    ({'interval': 0}, r'interval=0 must be a whole number of at least 1'),
    ({'kl': False, 'labels': False}, r'leave nothing to learn from peers'),
    ({'labels': False}, r"set local_rows='own'"),
  ],
)
def test_refusals(wrong, message):
  with pytest.raises(ValueError, match=message):
    methods.fedh2l(optax.sgd(0.1), **wrong)


@pytest.mark.parametrize('missing', ['public', 'shared'])
def test_rows_to_share_are_demanded(missing):
  made = made_with(fedh2l(), rounds=1)
  bare = made.data[0]._replace(**{missing: None})
  with pytest.raises(ValueError, match=r'give fedkd.federation .*shared=.* data.public_share above 0'):
    made.method.client.init(jax.random.key(0), made.groups[0].model, bare, made.method.variables(made.state, 0))


def test_teacher_and_student_see_the_same_images_under_crops_and_flips():
  """Nodes that are equal and do not learn have nothing to tell each other."""
  made = augmented(made_with(fedh2l(optax.sgd(0.0), batch=4), sizes=(2,), rounds=2))
  _, report = made.run()
  assert np.abs(report.info[0]['kl'][1]).max() < 1e-6


@pytest.mark.parametrize('separate', cases([False, True], slow=[False]))
def test_a_schedule_inside_the_optimizer_goes_on_while_a_client_is_absent(separate):
  """It counts at least a step for every round: that of the local batch; or one for every exchange."""
  tx = optax.sgd(optax.linear_schedule(RATE, 0.0, 100))
  made = made_with(fedh2l(tx, batch=4, separate_optimizers=separate), rounds=4)
  absent = np.array([[0, -1]] * 3 + [[0, 1]], np.int32)  # the second client of the first group, for three rounds
  state, _ = made._replace(plan=plan.Plan((absent, made.plan.participants[1]))).run()
  counts = jax.tree.leaves(state.client[0]['learner'].opt)[0]
  assert counts.tolist() == ([4, 4] if separate else [7, 5])  # with a global phase in all rounds but the first
  if separate:
    assert jax.tree.leaves(state.client[0]['global_opt'])[0].tolist() == [3, 3]
