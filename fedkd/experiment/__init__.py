"""The runner: from a config to a run directory, and back. The only part of fedkd that touches clocks, signals, hosts
and files of a run.

Names are imported when they are first used, so that a refused config does not wait for what it never needs.
"""

import importlib
from typing import Any

_HOMES = {
  'run': 'runner',
  'load': 'storage.loading',
  'load_all': 'storage.loading',
  'logits': 'storage.loading',
  'read_config': 'storage.loading',
  'environment': 'provenance',
}

__all__ = ['environment', 'load', 'load_all', 'logits', 'read_config', 'run']


def __getattr__(name: str) -> Any:
  if name not in _HOMES:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  return getattr(importlib.import_module(f'{__name__}.{_HOMES[name]}'), name)
