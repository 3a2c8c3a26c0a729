"""Flower's partitioners as partitions; where flwr-datasets is installed."""

import sys

import numpy as np
import pytest

from fedkd.data.splits import flower
from fedkd.errors import ConfigError

LABELS = np.random.default_rng(0).integers(0, 3, 300)
ORIGIN = np.arange(300) % 4


@pytest.fixture
def library():
  return pytest.importorskip('flwr_datasets.partitioner')


@pytest.mark.parametrize(
  ('name', 'arguments'),
  [
    ('IidPartitioner', '{}'),
    ('DirichletPartitioner', '{"alpha": 0.5}'),
    ('ShardPartitioner', '{"num_shards_per_partition": 5}'),
    ('NaturalIdPartitioner', '{"partition_by": "origin"}'),
  ],
)
def test_every_row_has_one_owner(library, name, arguments):
  parts = flower.flower(LABELS, 4, 1, ORIGIN, name, arguments)
  assert len(parts) == 4
  assert sorted(np.concatenate(parts).tolist()) == list(range(300))
  again = flower.flower(LABELS, 4, 1, ORIGIN, name, arguments)
  assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))
  if name == 'NaturalIdPartitioner':
    assert {tuple(np.unique(ORIGIN[part])) for part in parts} == {(0,), (1,), (2,), (3,)}


def test_a_partitioner_of_ones_own_is_a_partition_of_the_library(library):
  parts = flower.from_partitioner(library.DirichletPartitioner(3, 'label', 0.1, seed=5), LABELS)
  counts = np.stack([np.bincount(LABELS[part], minlength=3) for part in parts])
  assert counts.sum() == 300
  assert (counts.max(1) / counts.sum(1)).max() > 0.6  # skewed


@pytest.mark.parametrize(
  ('name', 'arguments', 'match'),
  [
    ('FairPartitioner', '{}', r'is unknown; choose one of .*DirichletPartitioner'),
    ('Partitioner', '{}', r'is unknown'),
    ('DirichletPartitioner', '{}', r"missing .*alpha.*; mend data.partition.arguments='{}'$"),
    ('IidPartitioner', '{"alpha"', r'; mend data.partition.arguments='),
    ('IidPartitioner', '{"num_partitions": 3}', r'made 3 parts, and data.clients=4; make them equal'),
  ],
)
def test_what_it_does_not_have_is_refused(library, name, arguments, match):
  with pytest.raises(ConfigError, match=rf'^data.partition.partitioner={name!r}:? .*?{match}'):
    flower.flower(LABELS, 4, 1, None, name, arguments)


def test_without_the_library(monkeypatch):
  monkeypatch.setitem(sys.modules, 'flwr_datasets', None)
  with pytest.raises(ConfigError, match=r"needs flwr-datasets; install it with pip install 'fedkd\[flower-datasets\]'"):
    flower.flower(LABELS, 4, 1)
