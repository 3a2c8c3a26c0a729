"""Numbers of a config as arguments of programs: which, and that programs of runs that differ in them are one."""

import pytest

import runs
from fedkd.errors import ConfigError
from fedkd.experiment.build.assembly import build


@pytest.fixture(scope='module')
def images(tmp_path_factory):
  return runs.save_images(tmp_path_factory.mktemp('traced') / 'images.npz')


def made(images, alpha=0.5, rate=0.01, traced=()):
  config = runs.config(images, alpha=alpha)
  config.optimizer.learning_rate, config.traced = rate, traced
  return build(config, dry=True)


def program(parts) -> str:
  return parts.phases[0].lower().as_text()


def test_runs_that_differ_in_traced_numbers_alone_have_one_program(images):
  both = ('method.alpha', 'optimizer.learning_rate')
  assert program(made(images, 0.2, 0.01, both)) == program(made(images, 0.9, 0.3, both))
  assert program(made(images, 0.2, 0.01, both[:1])) != program(made(images, 0.2, 0.3, both[:1]))
  assert program(made(images, 0.2, 0.01)) != program(made(images, 0.9, 0.01))
  assert made(images, 0.2, 0.01, both).phases[0].inputs.numbers == {both[0]: 0.2, both[1]: 0.01}


@pytest.mark.parametrize('field', ['method.steps', 'method.none', 'rounds', 'data.validation', 7, 'method.average'])
def test_only_numbers_of_methods_optimizers_and_schedules_can_be_traced(images, field):
  with pytest.raises(
    ConfigError, match=f'traced has {field!r}, which is not a number with a decimal point of method, '
  ):
    made(images, traced=(field,))
