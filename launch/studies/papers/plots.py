"""The figures of the papers, drawn from results: one picture per id, of the profile with the most rows."""

import json
import pathlib

import numpy as np

from fedkd.analysis import figures
from launch.studies import papers
from launch.studies.papers import values

LOSSES = ('loss', 'kl', 'ce')  # FedH2L, Figure 2: of the local phase, of both parts of the global one


def draw(out, everything):
  """Writes the figures of all ids into `out`/figures."""
  for id in papers.registry():
    for name, figure in of(out, id, everything).items():
      figures.save(figure(), pathlib.Path(out) / 'figures' / f'{name}.png')


def profile_of(id, everything) -> str | None:
  """The profile that is drawn: that with the most rows, the longest of several; None where there is none."""
  run = [profile for profile in values.PROFILES if (id, profile) in everything]
  return max(run, key=lambda profile: len(_plain(id, everything, profile)), default=None)


def _plain(id, everything, profile) -> dict:
  """{row: result} of the rows that are methods of the paper as they are."""
  plain = {row.name for row in papers.registry()[id].rows if not row.overrides}
  return {row: result for row, result in everything[id, profile].items() if row in plain}


def of(out, id, everything) -> dict:
  """{name: function that draws it} of an id's figures."""
  profile = profile_of(id, everything)
  if not profile or id.startswith(('why-', 'fv-interval')):
    return {}
  done = _plain(id, everything, profile)
  drawable = {row: result for row, result in done.items() if len(values.last_phase(result)) > 2}
  where, found = f'{id}, {profile}', {}
  if len(drawable) > 1:
    x = 'share of the rounds (%)'
    found[id] = lambda: figures.lines(_accuracies(drawable), x, f'{where}: test accuracy')
  if id.startswith('md-') and 'fedmd' in drawable:
    bounds = {'pooled': done['pooled']} if 'pooled' in done else {}
    found[f'{id}-models'] = lambda: figures.collaboration(drawable['fedmd'], bounds)
  if id.startswith('fv-'):
    halves = {row: values.of(result, 'second_half_mean') for row, result in done.items()}
    found[f'{id}-second-half'] = lambda: figures.bars(halves, f'{where}: mean over the second half')
  if 'fedh2l' in drawable and drawable['fedh2l']['curve'][-1].get('kl'):
    found[f'{id}-losses'] = lambda: figures.lines(_losses(drawable['fedh2l']), 'round', f'{where}: FedH2L', 'loss')
  path = pathlib.Path(out) / id / profile / 'features.json'
  if path.exists():
    found[f'{id}-features'] = lambda: _components(json.loads(path.read_text()))
  return found


def _accuracies(done) -> dict:
  """Accuracy over the last phase; methods differ in what a round is, so over its share of all rounds."""
  lines = {}
  for row, result in done.items():
    curve = values.last_phase(result)
    x = 100 * np.array([one['round'] for one in curve]) / curve[-1]['round']
    lines[row] = x, 100 * np.array([one['accuracy'] for one in curve]).T
  return lines


def _losses(result) -> dict:
  """What FedH2L's nodes minimise, over rounds; undefined where nothing was exchanged."""
  curve = [row for row in values.last_phase(result) if all(row.get(name) and None not in row[name] for name in LOSSES)]
  x = [row['round'] for row in curve]
  return {name: (x, np.array([row[name] for row in curve]).T) for name in LOSSES}


def _components(found):
  points = [np.array(xy) for xy in found['rows'].values()]
  label, domain = np.array(found['label']), np.array(found['domain'])
  return figures.components(points, label, domain, list(found['rows']), found['domains'])
