"""Which seed draws what: the split, the initial weights, and everything in training."""

import warnings

import jax
import numpy as np
import pytest

import runs
from fedkd import config as base
from fedkd.errors import ConfigError
from fedkd.experiment.build.assembly import build


@pytest.fixture(scope='module')
def drawn(tmp_path_factory):
  """(seed of the split, of the models) -> what the seeds 0 and 1 of a run have drawn: {'rows', 'weights', 'keys'}."""
  images = runs.save_images(tmp_path_factory.mktemp('seeds') / 'images.npz')

  def of(split=None, models=None, seeds=(0, 1)):
    config = runs.config(images, seeds=seeds)
    config.data.seed, config.model_seed = split, models
    made = build(config)
    weights = np.concatenate([np.reshape(a, (len(seeds), -1)) for a in jax.tree.leaves(made.variables)], 1)
    rows = [np.concatenate(split.private).tolist() for split in made.splits]
    keys = jax.random.key_data(made.phases[0].inputs.key)
    return {'rows': rows, 'weights': weights.tolist(), 'keys': keys.tolist()}

  return of


@pytest.mark.parametrize(
  ('split', 'models', 'fixed'),
  [(None, None, ()), (5, None, ('rows',)), (None, 5, ('weights',)), (5, 5, ('rows', 'weights'))],
)
def test_each_may_be_fixed_while_the_others_vary(drawn, split, models, fixed):
  found, fives = drawn(split, models), drawn(seeds=(5,))
  for name, (first, second) in found.items():
    assert (first == second) == (name in fixed)
    assert (first == fives[name][0]) == (name in fixed)


def test_fixed_to_the_seed_itself_changes_nothing(drawn):
  assert drawn(3, 3, (3,)) == drawn(seeds=(3,))


@pytest.mark.parametrize(('field', 'value'), [('data.seed', -1), ('model_seed', 2**32), ('model_seed', 'first')])
def test_what_is_no_seed_is_refused(tmp_path, field, value):
  config = runs.config(runs.save_images(tmp_path / 'images.npz')).unlock()
  block, _, key = field.rpartition('.')
  with config.ignore_type():
    (config[block] if block else config)[key] = value
  with pytest.raises(ConfigError, match=f'{field}='):
    build(config)


@pytest.mark.parametrize(('subset', 'told'), [(0, True), (5000, True), (4, False)])
def test_seeds_with_unequal_numbers_of_public_rows_are_told_of_methods_that_use_all(tmp_path, subset, told):
  """A seed with fewer would use some of them twice. Every client and class is rounded down by itself."""
  config = runs.config(runs.save_images(tmp_path / 'images.npz'), 'fedmd', seeds=(0, 1, 2, 3))
  config.data.partition, config.data.public_share = base.partition('dirichlet', concentration=0.5), 0.3
  config.method.subset, config.method.steps = subset, 0
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    sizes = [len(split.public) for split in build(config, dry=True).splits]
  assert min(sizes) < max(sizes)
  said = [
    str(one.message) for one in caught if 'public rows' in str(one.message) and 'the seeds have' in str(one.message)
  ]
  assert [f'set method.subset to at most {min(sizes)}' in one for one in said] == [True] * told
