"""Entries of `groups` that share the clients."""

import pytest

from fedkd import config as base
from fedkd.errors import ConfigError


def config_of(clients, *entries):
  config = base.default()
  config.data.clients, config.groups = clients, entries
  return config


def counts(config):
  return [entry['clients'] for entry in base.entries(config)]


A, B, C = ({'model': name} for name in ('LeNet', 'MLP', 'MLP'))


@pytest.mark.parametrize(
  ('clients', 'entries', 'expected'),
  [
    (7, (A, B, C), [3, 2, 2]),
    (2, (A, B, C), [1, 1]),
    (7, (A, {**B, 'clients': 4}, C), [2, 4, 1]),
    (5, ({**A, 'clients': 2}, {**B, 'clients': 3}), [2, 3]),
  ],
)
def test_entries_without_clients_share_what_is_left(clients, entries, expected):
  assert counts(config_of(clients, *entries)) == expected


def test_an_entry_for_whom_nothing_is_left_is_refused():
  with pytest.raises(ConfigError, match=r'groups\[1\] gets no client, since the other groups have all 3 of'):
    base.entries(config_of(3, {**A, 'clients': 3}, B))


def test_groups_of_the_same_clients_go_on_to_hold_them_all():
  config = config_of(4, *({'model': 'PreActResNet', 'first': 0, 'clients': 4, 'rate': r} for r in (1.0, 0.5)))
  base.spread(config, 6)
  assert [(g['first'], g['clients'], g['rate']) for g in config.groups] == [(0, 6, 1.0), (0, 6, 0.5)]
  consecutive = config_of(4, {**A, 'first': 0, 'clients': 2}, {**B, 'first': 2, 'clients': 2})
  base.spread(consecutive, 5)
  assert consecutive.groups == ({**A, 'clients': 3}, {**B, 'clients': 2})
