"""BatchNorm's running statistics: how much of the initial ones is left, and what that costs."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import runs
from fedkd import experiment, federation, inference, local, methods, models, simulation
from fedkd.experiment import progress, warm_up
from fedkd.models.base import Preprocessed
from helpers import cases, pool

KEY = jax.random.key(0)


def narrow(momentum):
  return models.TwoConv((2, 2), 0.0, classes=3, momentum=momentum)


def test_decays_are_those_of_all_layers():
  class Other(nn.Module):
    @nn.compact
    def __call__(self, x):
      return nn.BatchNorm(use_running_average=True, momentum=0.7)(x)

  with warm_up.decays() as found:
    jax.eval_shape(lambda: narrow(0.95).init(KEY, jnp.zeros((1, 6, 6, 1)), False))
    jax.eval_shape(lambda: Other().init(KEY, jnp.zeros((1, 3))))
    jax.eval_shape(lambda: models.MLP((4,)).init(KEY, jnp.zeros((1, 6, 6, 1)), False))
  assert found == [0.95, 0.95, 0.7]


@pytest.mark.parametrize(('name', 'shared'), cases([('private', False), ('fedavg', True)], fast=[('fedavg', True)]))
def test_the_initial_share_is_what_a_change_of_the_initial_statistics_leaves(name, shared):
  """Training does not look at running statistics, so that of an initial difference the share alone is left."""
  images, rounds = pool(), 3
  parts = np.array_split(np.arange(80), 4)
  made = federation(images.example, images.label, parts, [narrow(0.9)])
  method = getattr(methods, name)(optax.sgd(0.1), steps=2, batch=4)
  one = simulation(method, made)
  fresh = one.init(KEY)
  variables = tuple(one.model(fresh, client=0)[1] for _ in range(1))
  more = {**variables[0], 'batch_stats': jax.tree.map(lambda a: a + 1, variables[0]['batch_stats'])}
  ends = []
  for start in (variables[0], more):
    state, report = one.run(one.init(KEY, (jax.tree.map(lambda a: a[None], start),)), rounds)
    ends.append(one.model(state, client=1)[1]['batch_stats'])
  left = jax.tree.leaves(jax.tree.map(lambda a, b: b - a, *ends))
  (info,) = report.info
  totals = {'turns': [12], 'examples': [float(np.sum(info['examples']))]}
  totals['down'] = {'statistics': ()} if shared else {}
  share = warm_up.initial_share(0.9, totals, rounds, clients=4, batch=4)
  assert share == pytest.approx(0.9 ** (2 * rounds))
  for leaf in left:
    np.testing.assert_allclose(leaf, share, rtol=1e-4)


def test_inference_is_as_accurate_as_training_mode_once_the_statistics_are_learned():
  """After 30 steps 0.9 ** 30 = 4 % of the initial statistics are left at a momentum of 0.9, 74 % at 0.99."""
  images = pool()
  rows = jnp.arange(90)

  @jax.jit
  def accuracies(momentum):
    net = Preprocessed(narrow(momentum), np.float32(0), np.float32(1 / 8))  # far from a mean of 0, a variance of 1
    start = local.start(net.init(KEY, images.example[:1], False), optax.adam(0.01))
    loss, size = local.supervised(net, images), jnp.int32(90)
    learner = local.fit(KEY, start, optax.adam(0.01), loss, (rows, size), local.Work(30, 30))[0]
    logits = inference.infer(net, local.variables(learner), images.example, rows)
    training = local.forward(net, learner.params, learner.batch_stats, KEY, images.example[rows])[0]
    return [jnp.mean(x.argmax(-1) == images.label[rows]) for x in (logits, training)]

  accuracy = {momentum: accuracies(momentum) for momentum in (0.9, 0.99)}
  assert accuracy[0.9][0] >= accuracy[0.9][1] - 0.05
  assert accuracy[0.99][0] < accuracy[0.99][1] - 0.2  # what the warning is about
  assert accuracy[0.99][1] == accuracy[0.9][1] > 0.8


def test_a_run_that_is_too_short_for_its_statistics_says_so(tmp_path):
  said = []
  config = runs.config(runs.save_images(tmp_path / 'a.npz'), 'private', rounds=4)
  for momentum in (0.99, 0.3):
    config.groups = ({'model': 'TwoConv', 'clients': 4, 'filters': (2, 2), 'momentum': momentum},)
    show = progress.Display(lambda *args: None, said.append)
    experiment.run(config, tmp_path / str(momentum), show=show)
  warnings = [text for text in said if text.startswith('warning')]
  assert warnings == [f'warning: {warm_up.warning(0.99**4)}']  # two rounds of two steps, evaluated every two rounds
  assert '96 % are still the initial ones' in warnings[0]
