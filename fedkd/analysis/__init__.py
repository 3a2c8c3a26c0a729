"""From run directories to pandas, intervals, tables and figures.

Names are imported when they are first used: pandas, SciPy and Matplotlib take seconds that a run need not wait for.
"""

import importlib
from typing import Any

_HOMES = {
  'frames': ('read', 'by_seed'),
  'of_runs': ('runs',),
  'tidy': ('wide', 'to_xarray'),
  'differences': ('summary', 'holm', 'p_value'),
  'predictions': ('confusion', 'per_class', 'calibration_error', 'disagreement', 'across'),
  'statistics': ('interval', 'paired', 'published', 'spread', 'markdown'),
  'figures': (
    'curves',
    'violations',
    'pareto',
    'gain',
    'clients',
    'worst',
    'labels',
    'label_bars',
    'class_accuracy',
    'class_knowledge',
    'feature_map',
    'timeline',
    'collaboration',
    'principal',
    'components',
    'colours',
    'save',
    'save_figures',
  ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __dir__() -> list[str]:
  return __all__


def __getattr__(name: str) -> Any:
  if name not in _HOME_OF:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  return getattr(importlib.import_module(f'{__name__}.{_HOME_OF[name]}'), name)
