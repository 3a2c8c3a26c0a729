"""docs/benchmark.md and its figure from the results; nothing of them is written by hand."""

import itertools
import os
import pathlib
import textwrap

import matplotlib.figure
import numpy as np
import pandas as pd

from fedkd import analysis, methods
from fedkd.analysis import figures
from fedkd.errors import ConfigError
from launch.studies.comparison import advice, cells, controls, costs, prose, scores, tables
from launch.studies.comparison.settings import (
  REDUCES,
  SIZES,
  SUITES,
  TIERS,
  TITLES,
  reason,
  settings,
)

PROFILE = 'whole'
NAMES = {
  'different': 'all different: every client has an architecture of its own',
  'pairs': 'pairs: two clients of each architecture',
  'one': 'one: all clients have the same architecture',
}
CONTROLLED = ('digits', 'different', 'skew-0.5')


def write(out, path) -> None:
  """Writes the page, and beside it the figure of its answer.

  Raises:
    ConfigError: for a folder without results of `PROFILE`, or results that cannot be compared.
  """
  path, out = pathlib.Path(path), pathlib.Path(out)
  everything = {tier: _of_tier(out, tier) for tier in TIERS}
  if not any(everything.values()):
    raise ConfigError(
      f'out={out} has no method beside private of the profile {PROFILE}; run fedkd benchmark --suite=digits '
      f'--out={out} first'
    )
  rows = {tier: overviews(found) for tier, found in everything.items()}
  optimizer = _optimizer(_controlled(out), out, path)
  head = prose.HEAD.replace('RESULTS', os.path.relpath(out, path.parents[1]))
  lines = [head, *_answer(everything['different'], *rows['different'], path), prose.how(PROFILE), *optimizer, prose.RUN]
  for tier in TIERS:
    if everything[tier]:
      lines += [f'## {NAMES[tier][0].upper()}{NAMES[tier][1:]}', '', *_overviews(everything[tier], *rows[tier])]
      for (suite, setting), here in everything[tier].items():
        lines += _section(suite, tier, setting, here, out, path)
  lines += [*costs.page(out), *_absent()]
  path.write_text('\n'.join(lines).rstrip('\n') + '\n')


def _of_tier(out, tier) -> dict:
  """{(suite, setting): {method: (cell, what is there)}} of the settings in which a method is there beside Private.

  Raises:
    ConfigError: for a setting with methods, but without Private.
  """
  places = [(suite, name) for suite in SUITES for name, one in settings(suite, PROFILE).items() if tier in one.tiers]
  there = {place: tables.found(out, place[0], PROFILE, tier, place[1]) for place in places}
  compared = {place: here for place, here in there.items() if {*here} - {*tables.REFERENCES}}
  for (suite, name), here in compared.items():
    if 'private' not in here:
      raise ConfigError(
        f'{out} has no run of private in {suite}, {tier}, {name}, with which {", ".join(here)} could be compared; run '
        f'fedkd benchmark --suite={suite} --tiers={tier} --settings={name} --methods=private first'
      )
  return compared


def overviews(everything: dict) -> tuple[list, dict]:
  """(rows of `tables.overview` over all settings, {suite: those over its own})."""
  suites = dict.fromkeys(suite for suite, _ in everything)
  of = lambda name: {place: here for place, here in everything.items() if place[0] == name}
  by_suite = {name: tables.overview(of(name)) for name in suites}
  return tables.overview(everything) if len(suites) > 1 else [*itertools.chain(*by_suite.values())], by_suite


def _overviews(everything, over_all, by_suite) -> list:
  """A table over the settings of each suite; over several suites, one of the methods that were run in all of them."""
  lines = []
  if len(by_suite) > 1:
    rows = advice.everywhere(over_all)
    lines = [
      f'### Over {len(rows[0]["places"])} settings, the methods that were run in as many',
      '',
      tables.of_tier(rows),
      '',
    ]
  for suite, rows in by_suite.items():
    count = _settings_of(everything, suite)
    over = f'{count} settings' if count > 1 else 'one setting'
    lines += [f'### {TITLES[suite]}, over {over}', '', tables.of_tier(rows), '']
  return lines


def _settings_of(everything, suite) -> int:
  return sum(of == suite for of, _ in everything)


def _answer(different, rows, by_suite, path) -> list:
  """The answer of the tier of different architectures: sentences, a figure, and a table of decisions."""
  if not different:
    return ['Nothing has been run yet.', '']
  name = f'{path.stem}.png'
  figures.save(figure(different, by_suite), path.parent / name)
  return [
    advice.sentences(rows, different),
    '',
    f'![Gain over Private on own rows against megabytes, clients of different architectures]({name})',
    '',
    '| your situation | method | what it gains on own rows | at equal examples | MB | how sure '
    '| without public images, in the same settings |',
    '| --- | --- | --- | --- | --- | --- | --- |',
    *advice.decisions(rows, different),
    '',
    *advice.carried_by(rows, different),
    '',
  ]


def figure(different: dict, by_suite: dict):
  """Gain over Private on own rows against all megabytes with public images, a panel per suite and a point per method:
  mean over settings and the interval of `tables.overview`; a method of fewer settings has their number in brackets.

  Args:
    different: {(suite, setting): ...}.
    by_suite: {suite: its rows} of the `overviews` of it.
  """
  drawn = matplotlib.figure.Figure(figsize=(9, 4.4 * len(by_suite)), layout='constrained')
  for axes, (suite, found) in zip(np.ravel(drawn.subplots(len(by_suite))), by_suite.items(), strict=True):
    rows = [row for row in found if row['method'] not in tables.REFERENCES]
    count = _settings_of(different, suite)
    fewer = [f' ({len(row["places"])})' * (len(row['places']) < count) for row in rows]
    points = {f'{row["method"]}{some}': (row['megabytes'], *row['gain']) for row, some in zip(rows, fewer, strict=True)}
    figures.gain_against_megabytes(points, axes=axes)
    axes.set_title(f'{TITLES[suite]}, {count} setting{"s" * (count > 1)}')
  return drawn


def _controlled(out) -> list:
  """(control's cell, what is there, the method's own, what is other) of the controls that were run."""
  suite, tier, setting = CONTROLLED
  names = {controls.name_of(control): pair for control, pair in controls.CONTROLS.items()}
  here = tables.found(out, suite, PROFILE, tier, setting, more=names)
  return [(*here[name], here[of][1], other) for name, (of, other) in names.items() if name in here and of in here]


def _optimizer(controlled, out, path) -> list:
  """What is other than in most authors' codes, and what controls say about that and about shared rows."""
  suite, _, setting = CONTROLLED
  where = f'{TITLES[suite]}, {settings(suite, PROFILE)[setting].title}'
  text = prose.RULE.replace('STEPS', str(SIZES[PROFILE].steps))
  text += prose.CONTROLS.replace('WHERE', where) if controlled else ''
  rows = [tables.control(*each, out, path) for each in controlled]
  table = [analysis.markdown(pd.DataFrame(rows)), ''] if rows else []
  return ['## The optimizer', '', textwrap.fill(text, 120, break_on_hyphens=False), '', *table]


def _section(suite, tier, setting, here, out, path) -> list:
  """The table of a setting, and what has not been run of it."""
  every = [cell.method for cell in cells.cells(suite, PROFILE, [tier], [setting])]
  missing = [method for method in every if method not in here]
  title = settings(suite, PROFILE)[setting].title
  lines = [f'### {TITLES[suite]}, {title}', '', tables.of_setting(here, out, path), '']
  left = [f'{m}: {REDUCES[tier][m]}' for m in here if m in REDUCES[tier]]
  lines += [f'What is left of methods that average weights: {"; ".join(left)}.', ''] if left else []
  lines += _without_clients_at_chance(suite, here)
  return [*lines, f'Not run: {", ".join(missing)}.', ''] if missing else lines


def _without_clients_at_chance(suite, here) -> list:
  """The gains over the seeds in which all clients of Private have learned, where they have not in all."""
  private = here['private'][1]
  dead = scores.clients_at_chance(private, tables.classes_of(suite))
  of = lambda one: scores.where_all_learned(one, private, tables.classes_of(suite))
  gains = {method: of(one) for method, (_, one) in here.items() if method != 'private'}
  means = {method: np.mean(list(gain.values())) for method, gain in gains.items() if gain}
  if not dead or not means:
    return []
  which = '; '.join(f'seed {seed}: client {", ".join(map(str, clients))}' for seed, clients in dead.items())
  said = ', '.join(f'{method} {mean:+.2f}' for method, mean in sorted(means.items(), key=lambda of: -of[1]))
  return [f'Clients of `private` ended at chance ({which}). The gains on own rows over the other seeds: {said}.', '']


def _absent() -> list:
  """Which methods do not apply where, and why."""
  whys: dict = {}
  for tier in TIERS:
    for setting in settings('digits', PROFILE):
      for method in methods.__all__:
        if why := reason(method, tier, setting):
          whys.setdefault(why, {}).setdefault(method, set()).add(tier)
  where = lambda tiers: '' if len(tiers) == len(TIERS) else f' ({", ".join(t for t in TIERS if t in tiers)})'
  said = [f'* {why}: {", ".join(f"`{m}`{where(t)}" for m, t in each.items())}.' for why, each in whys.items()]
  return ['## What does not apply, and why', '', *said, '']
