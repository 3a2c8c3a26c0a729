"""What the benchmark has cost in processor time, and what is missing of it with the hours that it would take."""

import numpy as np
import pandas as pd

from fedkd import analysis
from launch.studies.comparison import budget, cells, controls, scores
from launch.studies.comparison.settings import SIZES, SUITES, TIERS, TITLES, settings

PROFILE = 'whole'


def page(out) -> list:
  """The section of the page: a row per suite and tier."""
  there = _there(out)
  if not any(found['tuning'] for cell, found in there.items() if cell.method == 'private'):
    return []
  lines, seconds = [], _of_a_run(there)
  for suite in SUITES:
    for tier in TIERS:
      of = {cell: found for cell, found in there.items() if (cell.place.suite, cell.place.tier) == (suite, tier)}
      if of:
        lines.append(_line(suite, tier, of, seconds))
  more = (cells.read(cell, out) for cell in _controls(there))
  total = sum(sum(scores.spent(found)) for found in (*there.values(), *more)) / 3600
  said = (
    f'All results on this page took {total:.1f} processor hours. Hours that are left are estimated from runs of the '
    'same cell, else from those of `private` on the same data and nets times what the method costs beside `private` '
    'elsewhere; "~" marks data or nets on which nothing has been run yet, for which the seconds of digits are taken. A '
    'cell is a method in a setting: eight runs of tuning and six of test, and with public rows six at equal examples, '
    'which are taken for half a run each and are not among the runs made.'
  )
  return ['## What it costs, and what is missing', '', said, '', analysis.markdown(pd.DataFrame(lines)), '']


def _there(out) -> dict:
  every = (cell for suite in SUITES for cell in cells.cells(suite, PROFILE))
  return {cell: cells.read(cell, out) for cell in every}


def _controls(there) -> list:
  """The cells of controls beside those of the methods."""
  places = dict.fromkeys(cell.place for cell in there)
  return [cells.Cell(place, controls.name_of(control)) for place in places for control in controls.CONTROLS]


def _runs(found) -> list:
  return [*found['tuning'], *found['runs']]


def _equal_left(cell, found) -> int:
  """How many runs of fewer rounds are missing, which methods with public rows need."""
  return (len(SIZES[PROFILE].seeds) - len(found['equal'])) * (cell.method in budget.PUBLIC_CLIENTS)


def _of_a_run(there) -> dict:
  """{cell: (processor seconds of a run, whether data and nets were measured)}."""
  measured = {cell: np.mean([one['seconds'] for one in _runs(found)]) for cell, found in there.items() if _runs(found)}
  alone: dict = {}
  for cell, value in measured.items():
    if cell.method == 'private':
      own = alone.setdefault((cell.place.suite, cell.place.tier), [])
      own.append(value / settings(cell.place.suite, PROFILE)[cell.place.setting].length)
  ratios: dict = {}
  for cell, value in measured.items():
    beside = cells.Cell(cell.place, 'private')
    if beside in measured:
      ratios.setdefault(cell.method, []).append(value / measured[beside])
  usual = np.mean([np.mean(each) for each in ratios.values()])
  somewhere = np.mean(next(iter(alone.values())))

  def of(cell):
    place = cell.place.suite, cell.place.tier
    length = settings(cell.place.suite, PROFILE)[cell.place.setting].length
    base = np.mean(alone.get(place, somewhere)) * length * np.mean(ratios.get(cell.method, usual))
    return measured.get(cell, base), place in alone

  return {cell: of(cell) for cell in there}


def _line(suite, tier, of, seconds) -> dict:
  size, every = SIZES[PROFILE], list(of)
  whole = lambda found: len(found['grid']) + len(size.seeds)
  left = {cell: whole(found) - len(_runs(found)) for cell, found in of.items()}
  equal = {cell: _equal_left(cell, found) for cell, found in of.items()}
  hours = sum((left[cell] + equal[cell] / 2) * seconds[cell][0] for cell in of) / 3600
  compiled = [sum(one['compiling'] for one in _runs(found)) for found in of.values() if _runs(found)]
  hours += (np.mean(compiled) if compiled else 45.0) * sum(not _runs(found) for found in of.values()) / 3600
  spent = sum(sum(scores.spent(found)) for found in of.values()) / 3600
  return {
    'data': TITLES[suite],
    'tier': tier,
    'settings': len({cell.place.setting for cell in every}),
    'cells whole': f'{sum(not left[cell] + equal[cell] for cell in of)} of {len(every)}',
    'runs made': f'{sum(len(_runs(found)) for found in of.values())} of {sum(map(whole, of.values()))}',
    'hours spent': f'{spent:.2f}',
    'hours left': ('' if seconds[every[0]][1] else '~') + f'{hours:.1f}',
  }
