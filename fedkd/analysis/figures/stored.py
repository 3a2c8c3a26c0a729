"""Figures of results that are committed: of numbers by label, and of `results.read`."""

from collections.abc import Mapping, Sequence

import matplotlib.figure
import numpy as np
from matplotlib.axes import Axes

from fedkd.analysis.figures.ends import MOST, End, name_points, name_runs
from fedkd.analysis.figures.features import feature_map
from fedkd.analysis.figures.notes import below, note_of
from fedkd.analysis.figures.panels import blank, logarithmic, panel, within_per_cent
from fedkd.analysis.figures.plain import plain
from fedkd.analysis.figures.style import COLOURS, MARKERS, styles
from fedkd.analysis.statistics import interval
from fedkd.errors import ConfigError


@plain
def lines(
  values: Mapping,
  x_label: str,
  title: str = 'Test accuracy, mean over clients',
  y_label: str = 'accuracy (%)',
  axes: Axes | None = None,
) -> Axes:
  """Means over seeds as lines, intervals as bands; `values` is {label: (x [points], y [seeds, points])}."""
  has_band = len(values) <= MOST
  said = note_of(len(y) for _, y in values.values()) if has_band else 'means over seeds'
  axes = panel(axes, title=title, xlabel=below(x_label, said), ylabel=y_label)
  style, ends = styles(values), []
  for label, (x, y) in values.items():
    mean, low, high = np.array([interval(column) for column in np.asarray(y).T]).T
    axes.plot(x, mean, markersize=4, markevery=max(1, len(x) // 10), label=label, **style[label].look())
    if has_band:
      axes.fill_between(x, low, high, color=style[label].color, alpha=0.2, linewidth=0)
    ends.append(End(label, x[-1], mean[-1], style[label].color))
  if '%' in y_label:
    within_per_cent(axes)
  name_runs(axes, ends)
  return axes


@plain
def bars(values: Mapping, title: str, y_label: str = 'accuracy (%)', axes: Axes | None = None) -> Axes:
  """Means of [seeds] as bars, intervals as error bars; `values` is {label of a bar: [seeds]}."""
  axes = panel(axes, title=title, ylabel=y_label)
  style = styles(values)
  for label, each in values.items():
    mean, low, high = interval(each)
    error = [[mean - low], [high - mean]]
    axes.bar(label, mean, yerr=error, color=style[label].color, ecolor='0.3', capsize=3)
  axes.tick_params(axis='x', labelrotation=30)
  return axes


@plain
def gain_against_megabytes(points: Mapping, reference: str = 'private', axes: Axes | None = None) -> Axes:
  """Gains over a reference against megabytes, a point per method with its interval; the reference is the level 0.

  Args:
    points: {label: (megabytes, mean, low, high)}, gains in points of accuracy.
    reference: its name.
    axes: to draw in; None: new ones.
  """
  axes = blank(9.0, 4.8) if axes is None and len(points) > MOST else axes  # with room for names
  axes = panel(
    axes, xlabel='megabytes of all clients, public images included', ylabel=f'gain over {reference} (points)'
  )
  style = styles(points)
  for label, (sent, mean, low, high) in points.items():
    look = style[label].look(linestyle='none', capsize=2)
    axes.errorbar(sent, mean, yerr=[[mean - low], [high - mean]], label=label, **look)
  axes.axhline(0, color='0.4', linestyle='--')
  if any(sent > 0 for sent, *_ in points.values()):
    logarithmic(axes)
  ends = [End(label, sent, mean, style[label].color) for label, (sent, mean, *_) in points.items()]
  name_points(axes, list(points), ends)
  return axes


@plain
def collaboration(result: dict, bounds: Mapping, axes: Axes | None = None) -> Axes:
  """Accuracy of every model over the rounds of a result's last phase, its start as a dashed level (FedMD, Figure 2).

  Args:
    result: from `results.read`.
    bounds: {label: result} whose final mean is drawn as a level.
    axes: to draw in; None: new ones.

  Raises:
    ConfigError: if the result has no accuracies of single clients over its rounds.
  """
  if not result['curve'] or any('accuracy_per_client' not in row for row in result['curve']):
    raise ConfigError(f'result {result["id"]!r} has no accuracies of single clients over its rounds; give another')
  rows = [row for row in result['curve'] if row['phase'] == result['curve'][-1]['phase']]
  accuracy = 100 * np.mean([row['accuracy_per_client'] for row in rows], 1)  # [evaluations, K], mean over seeds
  title = f'{result["method"]}: {result["id"]} ({result["profile"]})'
  axes = panel(axes, title=title, xlabel='round', ylabel='accuracy (%)')
  for k, values in enumerate(accuracy.T):
    name = result['config']['groups'][k]['model'] if len(result['config']['groups']) == accuracy.shape[1] else ''
    colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
    axes.plot([row['round'] for row in rows], values, color=colour, marker=marker, markersize=4, label=f'{k} {name}')
  axes.axhline(accuracy[0].mean(), color='0.4', linestyle='--', label='mean at the start')
  for label, other in bounds.items():
    axes.axhline(100 * np.mean(other['per_seed']['final']), color='0.4', linestyle='-.', label=f'{label}, mean')
  axes.legend(frameon=False, fontsize=7, ncols=2)
  return axes


@plain
def components(
  points: Sequence, label, domain, titles: Sequence[str], domains: Sequence[str]
) -> matplotlib.figure.Figure:
  """Principal components of features, one panel per method (FedH2L, Li et al., 2021, Figure 1).

  Args:
    points: list of [N, 2], one per panel.
    label, domain: int[N]; classes are colours, domains markers.
    titles: of the panels.
    domains: names.
  """
  figure = matplotlib.figure.Figure(figsize=(4.2 * len(points), 3.8), layout='constrained')
  for axes, xy, title in zip(figure.subplots(1, len(points), squeeze=False)[0], points, titles, strict=True):
    feature_map(np.asarray(xy), label, domain, domains, axes).set_title(title)
  return figure
