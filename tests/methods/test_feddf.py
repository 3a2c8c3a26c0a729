"""FedDF: what the averages learn from the ensemble, and who is left out of it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import methods, models, plan
from fedkd.servers import ensemble_distillation
from helpers import CLASSES, assert_close, assert_same_bits, cases, pool, problem, softmax

LINEAR, OTHER = models.MLP((), classes=CLASSES), models.MLP((5,), classes=CLASSES)
CONV = models.TwoConv((4, 4), classes=CLASSES)  # with BatchNorm and dropout
RATE = 0.1
SGD = optax.sgd(RATE)
TURN = {'epochs': 1, 'batch': 12}
SERVER = {'server_steps': 1, 'server_batch': 11, 'server_tx': SGD}
PARTS = [np.arange(12), np.arange(20, 32), np.arange(40, 46)]  # of which 4, 4 and 3 are public
SIZES = np.array([12, 12, 6])


def made_with(method, nets=(LINEAR,), sizes=(3,), rounds=2, **how):
  return problem(method, nets, sizes, plan.synchronous()(sizes, rounds), PARTS, **how)


@pytest.mark.slow
def test_without_steps_it_is_fedavg_inside_each_architecture():
  nets, sizes = (LINEAR, CONV), (2, 1)
  both = methods.feddf(SGD, server_steps=0, **TURN), methods.fedavg(SGD, per_group=True, steps=None, **TURN)
  feddf, fedavg = (made_with(method, nets, sizes, images=pool(12)).run()[0] for method in both)
  assert_same_bits(feddf.server['weights'], fedavg.server)


@pytest.mark.parametrize('targets', cases(['avg_logits', 'avg_probs', 'avg_losses'], fast=['avg_logits']))
def test_one_participant_teaches_its_average_nothing(targets):
  """With SGD: Adam would make whole steps of the rounding."""
  how = {**SERVER, 'server_steps': 5, 'targets': targets}
  alone = [made_with(methods.feddf(SGD, **TURN, **values), sizes=(1,)) for values in (how, {'server_steps': 0})]
  one, other = (made.run()[0].server['weights'] for made in alone)
  assert_close(one, other, atol=1e-6)


def test_every_round_distils_with_the_same_rates():
  """Clients that learn nothing: weights move by Adam and its cosine alone, in the third round as in the first."""
  method = methods.feddf(optax.sgd(0.0), server_steps=10, server_batch=11, server_rate=0.01, **TURN)
  made = made_with(method, (LINEAR, OTHER), (2, 1), rounds=3)
  moved, state = [], made.state
  for t in range(3):
    last, (state, _) = state.server['weights'], made.run(1, state, t)
    moved.append(float(optax.global_norm(jax.tree.map(jnp.subtract, state.server['weights'], last))))
  assert moved[2] > moved[0] / 4 > 0.01


def logits_of(params, x):
  dense = params['net']['output']
  return x @ np.asarray(dense['kernel'], float) + np.asarray(dense['bias'], float)


@pytest.mark.parametrize('targets', ['avg_logits', pytest.param('avg_probs', marks=pytest.mark.slow)])
@pytest.mark.parametrize('start', ['average', pytest.param('previous', marks=pytest.mark.slow)])
def test_a_round_is_that_of_the_twin(targets, start):
  """Two rounds of softmax regressions; a full batch of the public rows and one step of SGD on the server."""
  made = made_with(methods.feddf(SGD, targets=targets, start=start, **TURN, **SERVER))
  image, label = map(np.asarray, made.data[0].pool)
  x = (image.reshape(len(image), -1) - 128.0) / 64
  public, state = np.asarray(made.data[0].public.index), made.state
  for t in range(2):
    old = state.server['weights'][0]['params']
    models_of = []
    for part in PARTS:
      slope = softmax(logits_of(old, x[part])) - np.eye(CLASSES)[label[part]]
      dense = old['net']['output']
      kernel = np.asarray(dense['kernel'], float) - RATE * x[part].T @ slope / len(part)
      bias = np.asarray(dense['bias'], float) - RATE * slope.mean(0)
      models_of.append({'net': {'output': {'kernel': kernel, 'bias': bias}}})
    average = jax.tree.map(lambda *a: np.average(a, 0, SIZES), *models_of)
    student = (average if start == 'average' else old)['net']['output']
    votes = [logits_of(model, x[public]) for model in models_of]
    target = softmax(np.mean(votes, 0)) if targets == 'avg_logits' else np.mean([softmax(v) for v in votes], 0)
    p = softmax(logits_of({'net': {'output': student}}, x[public]))
    expected = {
      'kernel': student['kernel'] - RATE * x[public].T @ (p - target) / len(public),
      'bias': student['bias'] - RATE * (p - target).mean(0),
    }
    state, report = made.run(1, state, t, length=1)
    found = state.server['weights'][0]['params']['net']['output']
    assert_close(dict(found), expected, rtol=1e-4, atol=1e-5)
    loss = (target * np.log(target / p)).sum(-1).mean()
    np.testing.assert_allclose(report.server['server_distill_loss'][0], loss, rtol=1e-3, atol=1e-7)
    assert loss > 1e-5


class Half(models.MLP):
  """Its logits are in half precision."""

  def head(self, f):
    return super().head(f).astype(jnp.float16)


@pytest.mark.parametrize('targets', ['avg_logits', 'avg_probs'])
def test_teachers_with_logits_in_half_precision_are_those_of_single(targets):
  image, weight = jax.random.normal(jax.random.key(1), (9, 4)), jnp.array([1.0, 0.0, 1.0])
  first = jax.vmap(lambda key: LINEAR.init(key, image, False))(jax.random.split(jax.random.key(0), 3))
  uploads = {**first, 'batch_stats': {}}
  half, single = (
    ensemble_distillation._ensemble([net], [uploads], [weight], image, targets)
    for net in (Half((), classes=CLASSES), LINEAR)
  )
  assert half.dtype == jnp.float32
  np.testing.assert_allclose(half, single, atol=2e-3)
  np.testing.assert_allclose(half.sum(-1), 1, atol=1e-6)


@pytest.mark.slow
def test_students_of_all_architectures_learn_from_the_same_teachers():
  apart = []
  for steps in (0, 200):
    how = {**TURN, 'server_steps': steps, 'server_batch': 11}
    made = made_with(methods.feddf(SGD, **how), (LINEAR, OTHER), (2, 1), rounds=1)
    weights, image = made.run()[0].server['weights'], made.data[0].pool.example[made.data[0].public.index]
    p = [jax.nn.softmax(g.model.apply(w, image, False)[0]) for g, w in zip(made.groups, weights, strict=True)]
    apart.append(np.abs(p[0] - p[1]).mean())
  assert apart[1] < 0.5 * apart[0]


@pytest.mark.slow
def test_the_best_student_on_validation_is_kept_and_patience_ends_the_distillation():
  how = {**TURN, 'server_batch': 11, 'validate': 'public'}
  worse = optax.sgd(-1.0)  # away from the teachers
  made = made_with(methods.feddf(SGD, server_steps=500, server_tx=worse, patience=100, **how), rounds=1)
  state, _ = made.run()
  short, _ = made_with(methods.feddf(SGD, server_steps=100, server_tx=worse, **how), rounds=1).run()
  assert_same_bits(state.server['weights'], short.server['weights'])  # the first look was the best of two


def test_the_mean_loss_is_of_all_steps_also_with_validation():
  how = {**TURN, 'server_steps': 250, 'server_batch': 11, 'server_tx': SGD}  # whole batches, which differ in order
  means = [
    made_with(methods.feddf(optax.sgd(1.0), validate=rows, patience=1000, **how), rounds=1).run()[1].server
    for rows in ('none', 'public')
  ]
  assert means[0]['server_distill_loss'] > 0
  assert_close(*(m['server_distill_loss'] for m in means))


ACCURACY = np.array([0.9, 0.8, 0.85, 0.3, 0.1], np.float32)


def test_drop_worst():
  here = jnp.ones(5)
  kept = lambda a, present=here, classes=10: [
    np.asarray(k[0]) for k in ensemble_distillation._kept([jnp.asarray(a)], [present], classes)
  ]
  averaged, teaching = kept(ACCURACY)
  np.testing.assert_array_equal(averaged, [1, 1, 1, 1, 0])  # below 12 %
  np.testing.assert_array_equal(teaching, [1, 1, 1, 1, 0])
  # Nobody is near chance: outliers below the mean of all but the best, less 1.5 of their standard deviation.
  others = np.array([0.8, 0.85, 0.84, 0.3])
  a = np.array([0.9, *others], np.float32)
  averaged, teaching = kept(a)
  np.testing.assert_array_equal(averaged, 1)
  np.testing.assert_array_equal(teaching, a >= others.mean() - 1.5 * others.std())
  assert teaching.sum() == 4
  for same in (np.full(5, 0.7), np.full(5, 0.05)):  # equal, or all near chance: all stay
    for found in kept(same):
      np.testing.assert_array_equal(found, 1)
  averaged, teaching = kept(ACCURACY, jnp.array([1.0, 0, 1, 0, 1]))
  np.testing.assert_array_equal(averaged, [1, 0, 1, 0, 0])
  np.testing.assert_array_equal(teaching, [1, 0, 1, 0, 0])


@pytest.mark.slow
@pytest.mark.parametrize('data', ['public', 'noise'])
def test_worst_models_are_dropped_in_a_round(data):
  how = {'validate': 'public', 'drop_worst': True, 'distill_data': data, 'server_steps': 100, 'server_batch': 8}
  made = made_with(methods.feddf(SGD, **TURN, **how), (LINEAR, OTHER), (2, 1))
  assert np.isfinite(made.run()[1].server['server_distill_loss']).all()


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'targets': 'avg'}, r"targets='avg' is unknown; choose one of avg_logits, avg_probs, avg_losses"),
    ({'start': 'zero'}, r"start='zero' is unknown; choose one of average, previous"),
    ({'distill_data': 'faces'}, r"distill_data='faces' is unknown; choose one of public, noise"),
    ({'drop_worst': True}, r"drop_worst=True needs validation accuracies; set validate='public'"),
  ],
)
def test_unknown_choices_are_refused(wrong, message):
  with pytest.raises(ValueError, match=message):
    methods.feddf(SGD, **wrong)
