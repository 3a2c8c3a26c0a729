"""Many runs of one config: which points, their runs on this machine or a cluster, and what came of them.

Names are imported when they are first used, so that a refused grid does not wait for JAX's devices.
"""

import importlib
from typing import Any

_HOMES = {'sweep': 'study', 'Run': 'runs'}

__all__ = ['Run', 'sweep']


def __getattr__(name: str) -> Any:
  if name not in _HOMES:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  return getattr(importlib.import_module(f'{__name__}.{_HOMES[name]}'), name)
