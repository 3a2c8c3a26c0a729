"""Typed random keys in states, of optimizers and methods: saved, restored and on disk the numbers are the same."""

import jax
import numpy as np
import pytest

import runs
from fedkd import config as configs
from fedkd import experiment, methods
from fedkd.experiment.build import assembly
from fedkd.experiment.storage import checkpoint, key_data


def keyed(tx, steps: int | None = 2, batch=8):
  """Private, whose clients draw all their randomness from a key of their own."""
  method = methods.private(tx, steps=steps, batch=batch)

  def init(key, model, data, variables):
    return {'learner': method.client.init(key, model, data, variables), 'key': jax.random.fold_in(key, 1)}

  def step(key, t, model, state, download, data):
    key, kept = jax.random.split(state['key'])
    learner, upload, info = method.client.step(key, t, model, state['learner'], download, data)
    return {'learner': learner, 'key': kept}, upload, info

  def variables(state, g):
    return method.variables(state._replace(client=tuple(client['learner'] for client in state.client)), g)

  return method._replace(client=method.client._replace(init=init, step=step), variables=variables)


def config_of(images, rounds=4, store=''):
  config = runs.config(images, keyed, rounds, seeds=(0, 1))
  config.groups = ({'model': 'MLP', 'clients': 3, 'hidden': (4,)}, {'model': 'MLP', 'clients': 1, 'hidden': (3,)})
  config.optimizer = configs.optimizer('noisy_sgd', learning_rate=0.05)
  config.checkpoint_every, config.client_store = 1, str(store)
  return config


@pytest.fixture(scope='module')
def finished(images, tmp_path_factory):
  """(workdir, summary) of four rounds without a break."""
  workdir = tmp_path_factory.mktemp('keys') / 'run'
  return workdir, experiment.run(config_of(images), workdir, show=False)


def interrupted(folder, **options):
  """The summary of a run that was continued after two rounds."""
  for rounds in (2, 4):
    summary = experiment.run(config_of(rounds=rounds, **options), folder, show=False)
  return summary


def test_a_run_goes_on_with_the_keys_of_its_checkpoint(images, finished, tmp_path):
  assert interrupted(tmp_path, images=images)['state_sha256'] == finished[1]['state_sha256']


@pytest.mark.slow
def test_keys_on_disk_are_those_in_memory(images, finished, tmp_path):
  summary = interrupted(tmp_path / 'run', images=images, store=tmp_path / 'store')
  assert summary['final_per_client'] == finished[1]['final_per_client']
  models = [experiment.load(folder, 3, 1, trust=True)[1] for folder in (tmp_path / 'run', finished[0])]
  jax.tree.map(np.testing.assert_array_equal, *models)


def test_random_bits_are_those_of_one_generator_whatever_the_default_is(images, finished, tmp_path):
  """Those of the others change with the number of clients that are mapped at once."""
  with jax.default_prng_impl('unsafe_rbg'):
    assert experiment.run(config_of(images), tmp_path, show=False)['state_sha256'] == finished[1]['state_sha256']
    _, variables = experiment.load(tmp_path, 3, 1, trust=True)
  jax.tree.map(np.testing.assert_array_equal, variables, experiment.load(finished[0], 3, 1, trust=True)[1])


def test_every_client_and_seed_has_kept_its_own_keys(images, finished):
  """As the state of the last round holds them: the method's key was split, the optimizer's drawn from."""
  parts = assembly.build(config_of(images))
  phase = parts.phases[0]
  with checkpoint.manager(finished[0] / 'checkpoints', tidy=False) as opened:
    state = key_data.wrapped(checkpoint.read(opened, 4, phase.saved)[0])
  fresh = phase.init(parts.variables)
  for saved, first in zip(state.client, fresh.client, strict=True):
    keys = saved['key']
    assert keys.dtype == first['key'].dtype
    assert len(np.unique(jax.random.key_data(keys).reshape(-1, 2), axis=0)) == keys.size
    for _ in range(4):
      first['key'] = jax.vmap(jax.vmap(lambda key: jax.random.split(key)[1]))(first['key'])
    assert (first['key'] == keys).all()


def test_a_key_of_another_generator_is_not_taken_for_the_saved_one(tmp_path):
  """Equal bits of equal shape: only the generator, which the checksum covers, differs."""
  of = lambda name: key_data.unwrapped([jax.random.key(3, impl=name), np.arange(2.0)])
  with checkpoint.manager(tmp_path) as opened:
    checkpoint.save(opened, 1, of('rbg'), {})
    found, _ = checkpoint.read(opened, 1, of('rbg'))
    assert key_data.wrapped(found)[0] == jax.random.key(3, impl='rbg')
    with pytest.raises(ValueError, match='do not match their checksum'):
      checkpoint.read(opened, 1, of('unsafe_rbg'))
