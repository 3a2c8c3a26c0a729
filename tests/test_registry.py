"""Every row of every table builds."""

import json

import pytest

from fedkd import build, describe, ledger
from fedkd import config as configs
from launch import papers, reproduce

ROWS = [(name, row) for name, entry in papers.registry().items() for row in entry.rows]


def distinct(key) -> list:
  """The rows of all tables without those whose `key(row)` is that of an earlier one."""
  rows = {}
  for name, row in ROWS:
    rows.setdefault(key(row), pytest.param(row, id=f'{name} {row.name}'))
  return list(rows.values())


def kind(row):
  """Rows of one kind differ in nets, data and hyperparameters only."""
  config = reproduce.config_of(row, 'smoke')
  return row.config, config.method.name, len(config.before)


def whole(row):
  return json.dumps({**configs.plain(reproduce.config_of(row, 'smoke')), 'name': ''}, sort_keys=True)


def assert_builds(row):
  """A whole round in shapes; nothing is compiled."""
  parts = build.build(reproduce.config_of(row, 'smoke'), dry=True)
  up, down = (ledger.capacity(message) for message in describe.messages(parts, 0))
  silent = row.name in ('private', 'ind', 'agg', 'pooled')
  assert bool(up) != silent
  assert bool(down) != silent
  if row.name.startswith('fedh2l'):
    classes = parts.groups[0].model.classes
    assert up == {'knowledge': (32 * classes + 1, 4 * (32 * classes + 1)), 'indices': (32, 128)}


@pytest.mark.parametrize('row', distinct(kind))
def test_a_row_of_every_kind_builds_and_counts_its_messages(row):
  assert_builds(row)


@pytest.mark.slow
@pytest.mark.parametrize('row', distinct(whole))
def test_every_row_builds_and_counts_its_messages(row):
  assert_builds(row)


@pytest.mark.parametrize('profile', papers.PROFILES)
def test_every_row_has_a_valid_config(profile):
  for _, row in ROWS:
    if profile != 'light' or row.config == 'felo':  # no other has one
      configs.check(reproduce.config_of(row, profile))
