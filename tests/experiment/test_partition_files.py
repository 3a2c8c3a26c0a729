"""A run writes who owns which rows, and another run takes it up."""

import numpy as np
import pytest

import runs
from fedkd import config as base
from fedkd import experiment
from fedkd.data.splits import stored
from fedkd.errors import ConfigError
from fedkd.experiment.build import assembly


def test_a_written_partition_is_that_of_another_run(images, tmp_path):
  config = runs.config(images, 'private', rounds=1, seeds=(3, 8))
  config.data.partition = base.partition('dirichlet')
  config.data.partition_out, config.data.validation = str(tmp_path / 'parts-{seed}.json'), 0.2
  first = experiment.run(config, tmp_path / 'one', show=False)
  written = [stored.read(tmp_path / f'parts-{seed}.json') for seed in (3, 8)]
  assert all(sorted(np.concatenate(parts)) == list(range(240)) for parts in written)
  assert [len(part) for part in written[0]] != [len(part) for part in written[1]]
  config.data.partition = base.partition('stored', file=config.data.partition_out)
  config.data.partition_out = ''
  again = assembly.build(config, dry=True)
  assert first['seeds'] == [3, 8]
  for parts, split in zip(written, again.splits, strict=True):
    for own, *uses in zip(parts, split.private, split.validation, split.test, strict=True):
      np.testing.assert_array_equal(np.sort(np.concatenate(uses)), own)


def test_rows_of_two_clients_are_refused(images):
  """What the one holds out, the other would train on."""
  config = runs.config(images)
  config.data.partition = lambda labels, clients, seed: [np.arange(5 * k, 5 * k + 6) for k in range(clients)]
  with pytest.raises(ConfigError, match=r'returned row 5 for the clients 0 and 1; let every row be of one client'):
    assembly.build(config, dry=True)


@pytest.mark.parametrize(
  ('file', 'match'),
  [
    ('parts.csv', r"^data.partition_out='parts.csv' is none of .json and .npz; name a file such as parts.json"),
    ('parts.npz', r"^data.partition_out='parts.npz' is one file for 2 seeds; write \{seed\} in its name"),
  ],
)
def test_a_name_that_cannot_be_one_is_refused_before_training(images, tmp_path, file, match):
  config = runs.config(images, 'private', rounds=1, seeds=(0, 1))
  config.data.partition_out = file
  with pytest.raises(ConfigError, match=match):
    experiment.run(config, tmp_path / 'run', show=False)
  assert not (tmp_path / 'run').exists()
