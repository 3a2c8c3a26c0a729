"""Groups of a config: names, normalisation, and optimizers of their own."""

import jax
import numpy as np
import pytest

import runs
from fedkd import config as base
from fedkd.data import sources
from fedkd.errors import ConfigError
from fedkd.experiment.build import assembly
from fedkd.experiment.build.groups import make_groups
from fedkd.experiment.build.normalisation import normalisation

IMAGE, LABEL = np.arange(2 * 64, dtype=np.uint8).reshape(2, 8, 8, 1), np.arange(2, dtype=np.int32)
SOURCE = sources.Source('tiny', IMAGE, LABEL, IMAGE, LABEL, 2, ('0', '1'))


def names(*entries):
  config = base.default()
  config.data.clients, config.groups = len(entries), entries
  return [group.name for group in make_groups(config, SOURCE)]


def test_groups_that_differ_in_a_scalar_have_names_of_their_own():
  conv = {'model': 'TwoConv', 'filters': (2, 3)}
  assert names(conv, {'model': 'MLP'}) == ['TwoConv 2-3', 'MLP']
  assert names(conv, {**conv, 'dropout': 0.5}) == ['TwoConv 2-3 dropout=0.2', 'TwoConv 2-3 dropout=0.5']
  assert names({'model': 'MLP'}, {'model': 'MLP', 'learning_rate': 0.1}) == ['MLP', 'MLP learning_rate=0.1']
  assert names(conv, conv) == ['TwoConv 2-3 (1)', 'TwoConv 2-3 (2)']


def thirds(x):
  return x.mean(0), np.float32(1 / 3)


def named(train_image, name):
  assert name == 'tiny'
  return thirds(train_image)


def test_a_normalisation_is_a_function_of_the_images_or_also_of_their_source():
  for choice in (thirds, named, f'{__name__}:thirds', lambda images, name='tiny': named(images, name)):
    mean, scale = normalisation(choice, SOURCE)
    np.testing.assert_array_equal(mean, IMAGE.mean(0).astype(np.float32))
    assert (mean.dtype, scale.dtype, scale.shape) == (np.float32, np.float32, ())
  config = base.default()
  config.data.normalise = thirds  # by value
  assert base.to_json(config)['data']['normalise'] == f'{__name__}:thirds'


@pytest.mark.parametrize(
  ('make', 'match'),
  [
    (lambda x: x.mean(0), r'returned ndarray; return \(mean, scale\), to be broadcast against \[8, 8, 1\]'),
    (lambda x: (x.mean(0)[:3], 1), r'returned a mean of shape \[3, 8, 1\]; it must broadcast against images \[8, 8, 1'),
    (lambda x: (0, np.ones((2, 8, 8, 1))), r'returned a scale of shape \[2, 8, 8, 1\]; it must broadcast'),
    (lambda x: (0, 'one'), r'returned a scale of shape \[\]; it must broadcast'),
    (lambda x: (0, np.inf), r'returned a scale that is not finite'),
  ],
)
def test_a_normalisation_of_another_shape_is_refused(make, match):
  with pytest.raises(ConfigError, match=r"^data.normalise='test_groups:.*" + match):
    normalisation(make, SOURCE)


def trained(images, *entries, rounds=2, **changes):
  """The largest change of a weight per client, of Private on MLPs, two clients per entry."""
  config = runs.config(images, 'private', rounds)
  config.groups, config.data.clients = tuple({'model': 'MLP', 'hidden': (8,), **e} for e in entries), 2 * len(entries)
  for field, value in changes.items():
    config[field] = value
  parts = assembly.build(config)
  phase = parts.phases[0]
  state, _ = phase.run(phase.init(parts.variables), 0, rounds)
  kernels = [(of.params, begin['params']) for of, begin in zip(state.client, parts.variables, strict=True)]
  change = [np.abs(jax.tree.leaves(now)[1] - jax.tree.leaves(begin)[1]) for now, begin in kernels]
  return np.concatenate([each[0].reshape(each.shape[1], -1).max(1) for each in change])


def test_a_group_may_have_a_learning_rate_and_an_optimizer_of_its_own(images):
  own = ({}, {'learning_rate': 0.0}, {'optimizer': base.optimizer('sgd', learning_rate=0.1).to_dict()})
  some = trained(images, *own)
  same = trained(images, {}, {}, {})
  np.testing.assert_array_equal(some[:2], same[:2])  # the others train as they would
  np.testing.assert_array_equal(some[2:4], 0)
  assert same.min() > 0
  assert np.abs(some[4:] - same[4:]).min() > 1e-4


def refused(images, **changes):
  config = runs.config(images, 'private')
  with config.unlocked():
    config.update(changes)
  with pytest.raises(ConfigError) as caught:
    assembly.build(config)
  return str(caught.value)


@pytest.mark.parametrize(
  ('optimizer', 'sentence'),
  [
    ({'name': 'sgd'}, "groups[1].optimizer sgd needs a value for 'learning_rate'; set groups[1].optimizer.learning_r"),
    ({'name': 'sdg'}, "groups[1].optimizer.name='sdg' is unknown"),
    ({'name': 'sgd', 'rate': 1.0}, "groups[1].optimizer sgd has no field 'rate'"),
    ({'name': 'sgd', 'learning_rate': -1.0}, 'groups[1].optimizer.learning_rate=-1.0 must be'),
    ({}, 'groups[1].optimizer={} has no name'),
  ],
)
def test_an_error_of_a_groups_own_optimizer_names_its_field(images, optimizer, sentence):
  net = {'model': 'MLP', 'hidden': (8,)}
  said = refused(images, groups=(net, {**net, 'optimizer': optimizer}))
  assert said.startswith(sentence)


@pytest.mark.parametrize(
  ('phase', 'sentence'),
  [
    ({'name': 'privat'}, "before[1].name='privat' is unknown"),
    ({'name': 'private', 'stepz': 1}, "before[1] private has no field 'stepz'"),
    ({'name': 'private', 'batch': -1}, 'before[1].batch=-1 must be'),
    ({'name': 'fedavg', 'steps': 1, 'batch': 8, 'server_tx': {'name': 'sgd'}}, 'before[1].server_tx sgd needs a value'),
    ({'name': 'fedavg', 'steps': 1, 'batch': 8, 'rule': 'medean'}, "before[1].rule='medean' is unknown"),
  ],
)
def test_an_error_of_an_earlier_phase_names_its_field(images, phase, sentence):
  assert refused(images, before=({'name': 'private', 'steps': 1, 'batch': 8}, phase)).startswith(sentence)


def test_what_is_done_before_an_evaluation_is_done_with_the_optimizer_of_the_group(images):
  """Selective-FD distils; the second group does not learn."""
  config = runs.config(images, 'selective_fd', 1)
  config.data.public_share = 0.25
  config.method = {'name': 'selective_fd', 'steps': 1, 'batch': 8, 'digest_steps': 2, 'quantile': 0.0, 'subset': 8}
  config.groups = ({'model': 'MLP', 'hidden': (8,)}, {'model': 'MLP', 'hidden': (8,), 'learning_rate': 0.0})
  parts = assembly.build(config)
  phase = parts.phases[0]
  state, _ = phase.run(phase.init(parts.variables), 0, 1)
  learned, still = phase.method.variables(state, 0), phase.method.variables(state, 1)
  ready = phase.ready(state)
  same = lambda a, b: jax.tree.all(jax.tree.map(np.array_equal, a, b))
  assert not same(phase.method.variables(ready, 0), learned)
  assert same(phase.method.variables(ready, 1), still)


@pytest.mark.slow
def test_a_schedule_by_name_stretches_over_the_rounds_of_the_phase(images):
  still = trained(images, {}, schedule=base.schedule('cosine', rounds=1))
  first = trained(images, {}, rounds=1)
  np.testing.assert_array_equal(still, first)  # the factor of the second round is 0
  assert trained(images, {}, schedule=base.schedule('cosine')).min() > first.max()


def test_rounds_cannot_grow_under_a_schedule_over_all_of_them(images):
  old = base.to_json(runs.config(images))
  cosine = {**old, 'schedule': base.to_json(base.schedule('cosine'))}
  assert base.differences(old, {**old, 'rounds': 9}) == []
  assert base.differences(cosine, {**cosine, 'rounds': 9}) == ['rounds: 6 -> 9, over which schedule cosine stretches']
  fixed = {**old, 'schedule': base.to_json(base.schedule('cosine', rounds=6))}
  assert base.differences(fixed, {**fixed, 'rounds': 9}) == []
