"""Every row of every table builds."""

import json
from functools import cache

import pytest

from fedkd import config as configs
from fedkd import ledger
from fedkd.experiment import build, dry_run
from launch import papers, reproduce

ROWS = [(name, row) for name, entry in papers.registry().items() for row in entry.rows]


def distinct(key) -> dict:
  """{whole(row): row} without those whose `key(row)` is that of an earlier one."""
  rows = {}
  for name, row in ROWS:
    rows.setdefault(key(row), (whole(row), pytest.param(row, id=f'{name} {row.name}')))
  return dict(rows.values())


@cache
def config_of(config, arg, overrides):
  """The smoke config of a row of these."""
  return reproduce.config_of(papers.Row('', config, arg, {}, overrides), 'smoke')


def kind(row):
  """Rows of one kind differ in nets, data and hyperparameters only."""
  config = config_of(row.config, row.arg, row.overrides)
  return row.config, config.method.name, len(config.before)


def whole(row):
  return json.dumps({**configs.to_json(config_of(row.config, row.arg, row.overrides)), 'name': ''}, sort_keys=True)


def assert_builds(row):
  """A whole round in shapes; nothing is compiled."""
  parts = build.build(reproduce.config_of(row, 'smoke'), dry=True)
  up, down = (ledger.capacity(message) for message in dry_run.messages(parts, 0))
  silent = row.name in ('private', 'private_long', 'ind', 'agg', 'pooled')
  assert bool(up) != silent
  assert bool(down) != silent
  if row.name.startswith('fedh2l'):
    classes = parts.groups[0].model.classes
    assert up == {'knowledge': (32 * classes + 1, 4 * (32 * classes + 1)), 'indices': (32, 128)}


@pytest.mark.parametrize('row', distinct(lambda row: kind(row)[:1]).values())
def test_a_row_of_every_config_builds_and_counts_its_messages(row):
  assert_builds(row)


@pytest.mark.slow
@pytest.mark.parametrize('row', distinct(whole).values())
def test_every_row_builds_and_counts_its_messages(row):
  assert_builds(row)


HAVE = {'light': ('felo',), 'medium': ('felo', 'fedhe_mnist', 'fedhe_cifar10', 'fedmd')}  # configs; all have the others


@pytest.mark.parametrize('profile', papers.PROFILES)
def test_every_row_has_a_valid_config(profile):
  for _, row in ROWS:
    if row.config in HAVE.get(profile, (row.config,)):
      configs.check(reproduce.config_of(row, profile))
