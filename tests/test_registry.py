"""Every row of every table builds."""

import json

import pytest

from fedkd import build, describe, ledger
from fedkd import config as configs
from launch import papers, reproduce

REGISTRY = papers.registry()


@pytest.mark.parametrize('name', REGISTRY)
def test_every_row_builds_and_counts_its_messages(name):
  """A whole round in shapes; nothing is compiled. Equal configs are built once."""
  seen = set()
  for row in REGISTRY[name].rows:
    config = reproduce.config_of(row, 'smoke')
    text = json.dumps({**configs.plain(config), 'name': ''}, sort_keys=True)
    if text in BUILT or text in seen:
      continue
    seen.add(text)
    parts = build.build(config, dry=True)
    up, down = (ledger.capacity(message) for message in describe.messages(parts, 0))
    silent = row.name in ('private', 'ind', 'agg', 'pooled')
    assert bool(up) != silent
    assert bool(down) != silent
    if row.name.startswith('fedh2l'):
      classes = parts.groups[0].model.classes
      assert up == {'knowledge': (32 * classes + 1, 4 * (32 * classes + 1)), 'indices': (32, 128)}
  BUILT.update(seen)


BUILT = set()
