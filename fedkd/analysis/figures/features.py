"""Where models see examples: principal components of features."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from fedkd.analysis.figures.panels import panel
from fedkd.analysis.figures.plain import plain
from fedkd.analysis.figures.style import MARKERS
from fedkd.checks.kinds import check_one_each
from fedkd.errors import ConfigError


def principal(features: ArrayLike) -> np.ndarray:
  """The first two principal components [N, 2] of features [N, d].

  Raises:
    ConfigError: for another shape, less than two examples or dimensions, NaN or infinity.
  """
  features = _checked(features, 2)
  centred = features - features.mean(0)
  return centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T


@plain
def feature_map(
  features: ArrayLike,
  label: ArrayLike,
  domain: ArrayLike | None = None,
  domains: Sequence[str] | None = None,
  axes: Axes | None = None,
) -> Axes:
  """Features in their first two principal components: classes are colours, domains or clients are markers (FedH2L, Li
  et al., 2021, Figure 1).

  Args:
    features: float[N, d]; of two dimensions they are drawn as they are.
    label: int[N].
    domain: int[N], the domain or client that each comes from.
    domains: their names, by these numbers.
    axes: to draw in; None: new ones.

  Raises:
    ConfigError: if features are no table of finite numbers, or too few for components, or labels or domains are not as
      many, or a domain has no name.
  """
  features, label = _checked(features, 1), np.asarray(label)
  domain = np.zeros(len(label), int) if domain is None else np.asarray(domain)
  for field, values in (('label', label), ('domain', domain)):
    check_one_each(field, values, len(features), 'features')
  _check_named(domain, domains)
  points = features if features.shape[1] == 2 else principal(features)
  axes = panel(axes, xlabel='first component', ylabel='second component')
  axes.grid(False)
  classes = int(label.max()) + 1
  look: dict[str, Any] = {'cmap': 'tab10' if classes <= 10 else 'turbo', 'vmin': -0.5, 'vmax': max(10, classes) - 0.5}
  for i, d in enumerate(np.unique(domain)):
    rows, name = domain == d, str(d if domains is None else domains[int(d)])
    style: dict[str, Any] = {'s': 22, 'marker': MARKERS[i % len(MARKERS)], 'alpha': 0.7, 'linewidths': 0}
    dots = axes.scatter(points[rows, 0], points[rows, 1], c=label[rows], label=name, **look, **style)
  bar = axes.figure.colorbar(dots, ax=axes, label='class', ticks=range(0, classes, -(-classes // 10)))
  bar.ax.set_ylim(-0.5, classes - 0.5)
  if len(np.unique(domain)) > 1:
    legend: Any = axes.legend(framealpha=0.8, fontsize='small', title='domain')
    for handle in legend.legend_handles:  # a marker is a domain, in whatever colour
      handle.set_array(None)
      handle.set_facecolor('0.3')
  return axes


def _checked(features, least) -> np.ndarray:
  """Finite numbers [N, d] of at least so many examples."""
  features = np.asarray(features)
  if features.ndim != 2 or features.shape[1] < 2 or len(features) < least:
    raise ConfigError(f'features has shape {list(features.shape)}; give [N, d], N at least {least} and d at least 2')
  if not np.isfinite(features).all():
    row = int(np.argmin(np.isfinite(features).all(1)))
    raise ConfigError(f'features has NaN or infinity in row {row}; leave it out')
  return features


def _check_named(domain, domains):
  """Checks that every domain is the number of a name."""
  if domains is not None and (nameless := [d for d in np.unique(domain).tolist() if d not in range(len(domains))]):
    raise ConfigError(
      f'domain has {nameless[0]!r}, and domains {len(domains)} names; give numbers from 0 up, and a name for each'
    )
