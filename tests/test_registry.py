"""Every row of every table builds."""

import json

import numpy as np
import pytest

from fedkd import config as configs
from fedkd import ledger
from fedkd.experiment import dry_run
from fedkd.experiment.build import assembly, from_config
from launch.studies import papers, reproduction

ROWS = [(name, row) for name, entry in papers.registry().items() for row in entry.rows]
# The first of each config file. Those of two take seconds to trace; they are built where every row is.
FIRST = {row.config: (name, row) for name, row in reversed(ROWS) if row.config not in ('fedmd', 'felo')}.values()
SEEN = set()
ONE_SHOT = ('fedkt', 'dense', 'coboosting')  # which upload once and download nothing


def assert_builds(row):
  """A whole round in shapes; nothing is compiled."""
  config = reproduction.config_of(row, 'smoke')
  parts = assembly.build(config, dry=True)
  up, down = (ledger.capacity(message) for message in dry_run.messages(parts, 0))
  silent = config.method.name in ('private', 'agg')
  assert bool(up) != silent
  assert bool(down) != (silent or config.method.name in ONE_SHOT)
  if row.name.startswith('fedh2l'):
    classes = parts.groups[0].model.classes
    assert up == {'knowledge': (32 * classes + 1, 4 * (32 * classes + 1)), 'indices': (32, 128)}


def by_name(rows):
  return [pytest.param(row, id=f'{name} {row.name}') for name, row in rows]


@pytest.mark.parametrize('row', by_name(FIRST))
def test_a_row_of_every_config_builds_and_counts_its_messages(row):
  assert_builds(row)


@pytest.mark.slow
@pytest.mark.parametrize('row', by_name(ROWS))
def test_every_row_builds_and_counts_its_messages(row):
  whole = json.dumps({**configs.to_json(reproduction.config_of(row, 'smoke')), 'name': ''}, sort_keys=True)
  if whole in SEEN:
    pytest.skip('as another')
  SEEN.add(whole)
  assert_builds(row)


HAVE = {'light': ('felo',), 'medium': ('felo', 'fedhe_mnist', 'fedhe_cifar10', 'fedmd')}  # configs; all have the others


@pytest.mark.parametrize('profile', papers.PROFILES)
def test_every_row_has_a_valid_config(profile):
  for _, row in ROWS:
    if row.config in HAVE.get(profile, (row.config,)):
      configs.check(reproduction.config_of(row, profile))


@pytest.mark.parametrize('id', ['kt-mnist', 'dn-mnist-0.1'])
def test_one_shot_tables_test_on_one_half_of_the_test_set_and_publish_the_other(id):
  halves = set()
  for row in papers.registry()[id].rows:
    config = reproduction.config_of(row, 'smoke')
    source = from_config.load_data(config)
    split = from_config.make_split(config, source, 0)
    tested, trained = np.concatenate(split.test), np.sort(np.concatenate(split.private))
    assert trained.tolist() == list(range(4000))
    assert len(tested) == len(split.public) == 500
    assert sorted([*tested, *split.public]) == list(range(4000, 5000))
    halves.add(tuple(split.public))
  assert len(halves) == 1
  assert tuple(from_config.make_split(config, source, 1).public) not in halves
