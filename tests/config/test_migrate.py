"""The block of `data.partition`, its short forms, and configs that were stored before it was one."""

import copy
import json

import numpy as np
import pytest
from absl import flags

from fedkd import config as base
from fedkd import experiment
from fedkd.config import command_line

DIRICHLET = {'name': 'dirichlet', 'concentration': 0.1, 'smallest': 10}


def read(*words):
  values = flags.FlagValues()
  command_line.define(values)
  command_line.parse(['main', '--config=configs/fedhe_digits.py:smoke', *words], values)
  return base.to_json(values.config.data.partition)


@pytest.mark.parametrize(
  'words',
  [
    ('--config.data.partition=dirichlet', '--config.data.concentration=0.1'),
    ('--config.data.concentration', '0.1', '--config.data.partition', 'dirichlet'),
    ('--config.data.partition.name=dirichlet', '--config.data.partition.concentration=0.1'),
  ],
)
def test_short_and_long_forms_are_the_same_block(monkeypatch, request, words):
  monkeypatch.chdir(request.config.rootpath)
  assert read(*words) == DIRICHLET


def test_an_argument_of_another_partition_is_refused(monkeypatch, request):
  monkeypatch.chdir(request.config.rootpath)
  with pytest.raises(base.ConfigError, match=r"^data.partition iid has no field 'concentration'; it has name"):
    read('--config.data.concentration=0.1')


def test_a_file_may_have_the_name_and_its_arguments_beside_it():
  config = base.default()
  config.data.partition, config.data.concentration = 'dirichlet', 0.1
  assert base.to_json(base.migrate(config).data.partition) == DIRICHLET


def with_partition(value, **beside):
  stored = base.to_json(base.default())
  return {**stored, 'data': {**stored['data'], 'partition': value, **beside}}


def test_a_stored_config_with_flat_fields_is_the_same_as_the_block():
  old = with_partition('dirichlet', concentration=0.1, smallest=10, ways=2, shots=100)
  new = with_partition(DIRICHLET)
  assert base.migrate(copy.deepcopy(old)) == new == base.migrate(new)
  assert base.differences(old, new) == []
  changed = with_partition({**DIRICHLET, 'concentration': 0.5})
  assert base.differences(old, changed) == ['data.partition.concentration: 0.1 -> 0.5']
  assert base.differences(old, with_partition({'name': 'iid'}))[-1] == 'data.partition.smallest: 10 -> None'


@pytest.mark.parametrize(
  ('old', 'new'),
  [
    ('fedkd.data.skews:kt_pfl', 'fedkd.data.splits.skews:kt_pfl'),
    ('fedkd.data.own_test:n_way', 'fedkd.data.splits.personal_splits:n_way'),
    ('fedkd.data.partition:shards', 'fedkd.data.splits.partition:shards'),
  ],
)
def test_modules_that_moved_are_found_and_are_fedkds_own(old, new):
  stored = base.check_stored(with_partition(old, ways=4), 'run')
  assert base.migrate(stored)['data']['partition']['name'] == new


def test_a_stored_name_outside_fedkd_is_not_imported_but_compared():
  assert base.migrate(with_partition('nowhere:f', ways=4))['data']['partition'] == {'name': 'nowhere:f'}
  old, new = with_partition('nowhere:f', ways=4, shots=9), with_partition({'name': 'nowhere:f', 'ways': 4})
  assert base.differences(old, new) == []
  assert base.differences({**old, 'data': {**old['data'], 'ways': 5}}, new) == ['data.partition.ways: 5 -> 4']


def test_a_trusted_partition_of_an_older_run_keeps_its_arguments(tmp_path):
  stored = with_partition(f'{__name__}:halves', ways=4, shots=9)
  (tmp_path / 'config.json').write_text(json.dumps(stored))
  read = experiment.read_config(tmp_path, trust=True)
  assert read.data.partition.to_dict() == {'name': f'{__name__}:halves', 'ways': 4}


def halves(labels, clients, seed, ways=2):
  raise NotImplementedError


def test_a_name_may_take_the_place_of_a_block_later():
  config = base.migrate(base.default())
  config.data.update(partition='dirichlet', concentration=0.1)
  assert base.to_json(base.migrate(config).data.partition) == DIRICHLET


def test_build_passes_what_the_function_takes():
  origin = np.repeat([0, 1], 10)
  block = {'name': 'by_origin'}
  parts = base.build('data.partition', block, np.zeros(20, int), 2, 0, origin=origin, test_labels=None)
  np.testing.assert_array_equal(np.concatenate(parts), np.arange(20))
