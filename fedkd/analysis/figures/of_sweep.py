"""Figures of a sweep's table: two fields against each other, all fields at once, and the best so far."""

import pathlib

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedkd.analysis.figures.maps import draw_map
from fedkd.analysis.figures.panels import blank, panel, save, whole_numbers
from fedkd.analysis.figures.plain import plain

SCORE = 'validation %'
LABEL = 'validation accuracy (%)'
BLANK = 1 / 2  # of all pairs of values: from here on points stand at their values, as a search tries few pairs


def save_all(frame: pd.DataFrame, fields: list[str], folder: pathlib.Path) -> None:
  """Writes budget.png, and with two fields or more heat.png of the first two and parallel.png: of the points that were
  trained for the most rounds.

  Args:
    frame: a row for each point, with its `fields`, 'validation %', 'rounds' and 'number'.
    fields: that vary.
    folder: to write to.
  """
  known = frame[frame[SCORE].notna()]
  if not len(known):
    return
  frame = known[known['rounds'] == known['rounds'].max()]
  drawn = {'budget': budget(frame)}
  if len(fields) > 1:
    drawn |= {'heat': heat_map(frame, fields[0], fields[1]), 'parallel': parallel(frame, fields)}
  for name, axes in drawn.items():
    if len(frame) < len(known):
      axes.set_title(f'{len(frame)} of {len(known)} points: those trained for {frame["rounds"].max()} rounds')
    save(axes, folder / f'{name}.png')


@plain
def heat_map(frame: pd.DataFrame, below: str, beside: str) -> Axes:
  """The best validation accuracy at each pair of values of two fields, over all others; where most pairs are blank,
  as by a search, all points, each at its values."""
  best = frame.pivot_table(SCORE, beside, below, 'max')
  if best.isna().to_numpy().mean() >= BLANK:
    return _scattered(frame, below, beside)
  axes = blank(1.6 + 0.9 * max(3, best.shape[1]), 1.4 + 0.5 * max(3, best.shape[0]))
  panel(axes, xlabel=below, ylabel=beside)
  draw_map(axes, best.to_numpy(), LABEL, '{:.1f}', cmap='viridis')
  axes.set_xticks(range(best.shape[1]), list(map(_short, best.columns)))
  axes.set_yticks(range(best.shape[0]), list(map(_short, best.index)))
  return axes


def _scattered(frame, below, beside):
  axes = panel(None, xlabel=below, ylabel=beside)
  frame = frame.sort_values(SCORE)  # the best on top
  x, y = (frame[field] if _is_number(frame[field]) else frame[field].astype(str) for field in (below, beside))
  drawn = axes.scatter(x, y, c=frame[SCORE], cmap='viridis', edgecolors='0.4', linewidths=0.5)
  for values, set_scale in ((x, axes.set_xscale), (y, axes.set_yscale)):
    if _is_number(values) and _is_wide(values):
      set_scale('log')
  axes.figure.colorbar(drawn, ax=axes, label=LABEL)
  return axes


@plain
def parallel(frame: pd.DataFrame, fields: list[str]) -> Axes:
  """A line for each point through its values, each field from its least to its greatest, coloured by validation."""
  axes = panel(blank(2 + 1.6 * (len(fields) + 1), 4))
  places = np.stack([_place(frame[field]) for field in [*fields, SCORE]], 1)
  score = frame[SCORE].to_numpy()
  norm = matplotlib.colors.Normalize(score.min(), max(score.max(), score.min() + 1e-9))
  colour = matplotlib.colormaps['viridis']
  for line, value in sorted(zip(places.tolist(), score.tolist(), strict=True), key=lambda pair: pair[1]):
    axes.plot(line, color=colour(norm(value)), alpha=0.8)
  for x, field in enumerate([*fields, SCORE]):
    at = pd.DataFrame({'value': frame[field].to_numpy(), 'place': _place(frame[field])}).drop_duplicates()
    few = len(at) <= 6 and field != SCORE
    for value, place in at.itertuples(index=False):
      if few or place in (0, 1):
        axes.annotate(_short(value), (x, place), xytext=(4, 2), textcoords='offset points', fontsize=8)
  axes.set_xticks(range(len(fields) + 1), [field.rpartition('.')[2] for field in fields] + ['validation'])
  axes.set_yticks([])
  axes.spines['left'].set_visible(False)
  axes.figure.colorbar(matplotlib.cm.ScalarMappable(norm, colour), ax=axes, label=LABEL)
  return axes


@plain
def budget(frame: pd.DataFrame) -> Axes:
  """The validation accuracy of every point in the order in which they were proposed, and the best so far."""
  frame = frame.sort_values('number')
  number, score = frame['number'].to_numpy() + 1, frame[SCORE].to_numpy()
  axes = panel(None, xlabel='points tried', ylabel=LABEL)
  axes.plot(number, score, 'o', color='0.6', markersize=4, label='point')
  axes.plot(number, np.maximum.accumulate(score), drawstyle='steps-post', label='best so far')
  whole_numbers(axes.xaxis)
  axes.legend(frameon=False)
  return axes


def _place(values) -> np.ndarray:
  """Where values stand between 0 and 1: numbers on the scale on which they are the more even, others by their order."""
  if _is_number(values):
    at = np.log(values.to_numpy(float)) if _is_wide(values) else values.to_numpy(float)
  else:
    at = pd.Categorical(values.astype(str)).codes.astype(float)
  span = at.max() - at.min()
  return (at - at.min()) / span if span else np.full(len(at), 0.5)


def _is_number(values) -> bool:
  return pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)


def _is_wide(values) -> bool:
  """Whether numbers are more even on a logarithmic scale."""
  return values.min() > 0 and values.max() >= 20 * values.min()


def _short(value) -> str:
  return f'{value:.4g}' if isinstance(value, float) else str(value)
