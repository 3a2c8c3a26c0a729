"""A table of a paper in the report: printed numbers beside ours, per client where they are printed so, and notes."""

import numpy as np
import pandas as pd
from ml_collections import ConfigDict

from fedkd import analysis
from fedkd import config as base
from fedkd.analysis import results
from launch.studies import stale
from launch.studies.comparison.settings import ONCE
from launch.studies.papers import values
from launch.studies.papers.common import Experiment

FAR = 5  # points from the printed value that need a sentence
LENGTHS = (1500, 3000, 10_000)  # rounds at which long runs are looked at
SERVER_METRICS = {  # server metrics and their names
  'knowledge_age': 'age of logits',
  'feature_age': 'age of features',
  'cvae_reconstruction': 'reconstruction',
  'cvae_kl': 'KL',
  'cvae_active': 'active units',
}


def section(entries: dict, profile: str, done: dict) -> list:
  """The lines of a table: of one id, or of several with one title.

  Args:
    entries: {id: experiment} of the registry, at least one.
    done: {id: {row: result}}, for each of them at least one.
  """
  ids, first = list(entries), next(iter(entries.values()))
  title = first.together if len(entries) > 1 else first.title
  lines = [f'### {title} ({", ".join(ids)}, {profile})', '', f'{first.source}. {_made(done)}.', '']
  for make in (table, clients, kinds, lengths, servers):
    parts = {id: make(entry, profile, done[id]) for id, entry in entries.items()}
    parts = {id: part for id, part in parts.items() if part is not None and len(part)}
    several = [part.assign(id=id).iloc[:, [0, -1, *range(1, part.shape[1])]] for id, part in parts.items()]
    shown = several if len(entries) > 1 else list(parts.values())
    lines += [analysis.markdown(pd.concat(shown).fillna('-')), ''] if shown else []
  for id, entry in entries.items():
    for note in filter(None, notes(id, entry, done[id])):
      lines += [note, ''] if note not in lines else []
    lines += far(entry, profile, done[id])
  return [*lines, '']


def notes(id: str, entry: Experiment, done: dict) -> list:
  """What is to be known of a table's rows; '' where there is nothing."""
  special = [
    _gain(done) if id.startswith('md-') and 'fedmd' in done else '',
    nets(done) if id.startswith('fv-') else '',
  ]
  return [*special, stale.note(done), _same(done), _leaks(done), _images(done), _missing(entry, done), entry.remarks]


def _made(done) -> str:
  """On what, and by which code, results were made."""
  made = {}
  for result in (result for rows in done.values() for result in rows.values()):
    made.setdefault(f'{result["device"]}, JAX {result["versions"]["jax"]}', set()).add(_code(result))
  return '; '.join(f'{where}, {", ".join(sorted(codes))}' for where, codes in sorted(made.items()))


def table(entry: Experiment, profile: str, done: dict) -> pd.DataFrame:
  """One line per row; printed values stand in brackets after ours, with their ± where there is one."""
  lines = []
  for row in entry.rows:
    if row.name in done:
      result, line = done[row.name], {'method': stale.marked(row.name, done[row.name])}
      for name, metric in entry.metrics.items():
        line[name] = _cell(entry, profile, row, name, values.of(result, metric))
      lines.append({**line, **_common(entry, result)})
  return pd.DataFrame(lines).dropna(axis=1, how='all').fillna('-')


def _cell(entry, profile, row, name, ours):
  printed = values.printed(entry, profile, row, name)
  text = None if ours is None else analysis.spread(ours)
  if printed is None:
    return text
  around = dict(row.deviation or {}).get(name)
  return f'{text or "-"} ({printed:.2f}{f" ± {around:.2f}" if around else ""})'


def _common(entry, result) -> dict:
  """What every table says of a run."""
  quarter, train = (values.of(result, metric) for metric in ('last_quarter_mean', 'train'))
  final = values.of(result, 'final')
  return {
    'last quarter': None if quarter is None else f'{quarter.mean():.2f}',
    'training above test': None if train is None else f'{np.mean(train - final):+.1f}',
    'numbers up / down': ' / '.join(f'{numbers:,.0f}' for numbers in _per_update(result)),
    'seeds': len(result['seeds']),
    'minutes': f'{result["seconds"] / 60:.0f}',
    'made': _code(result).removeprefix('commit ') + (', changed files' if result.get('dirty') else ''),
  }


def _per_update(result) -> list:
  """Numbers up and down of one client update, in the mean over all in which clients train."""
  sent, rounds = results.sent(result, 'numbers'), result['config']['rounds']
  updates = result['turns'] / (rounds if result['config'].get('method', {}).get('name') in ONCE else 1)
  return [sent[way].mean() / max(updates, 1) for way in ('up', 'down')]


def far(entry: Experiment, profile: str, done: dict) -> list:
  """The printed values that ours misses by more than FAR points, a line for the rows of each size."""
  out = {}
  for row in entry.rows:
    for name, metric in entry.metrics.items():
      ours = values.of(done[row.name], metric) if row.name in done else None
      printed = values.printed(entry, profile, row, name)
      away = 0 if ours is None or printed is None else ours.mean() - printed
      if abs(away) > FAR:
        out.setdefault(_size(done[row.name]['config']), []).append(f'{row.name}, {name} {away:+.1f}')
  about = f'* More than {FAR} points from the printed value, profile {profile}'
  return [f'{about}, {size}: {"; ".join(texts)}.' for size, texts in out.items()]


def _size(config) -> str:
  width = min((group.get('width', 1) for group in config['groups']), default=1)
  side = config['data'].get('size', 0)
  text = f'{config["rounds"]:,} rounds, {config["data"]["clients"]} clients'
  text += f', nets of {width:g} of the width' if width < 1 else ''
  return text + (f', images of {side} pixels' if side not in (0, 224) else '')


def clients(entry: Experiment, profile: str, done: dict) -> pd.DataFrame | None:
  """Per client or architecture, in the rows that have the first one's nets: ours, and what is printed in brackets."""
  config = next(iter(done.values()))['config']
  groups = config['groups']
  owner = np.repeat(np.arange(len(groups)), [entry['clients'] for entry in base.entries(ConfigDict(config))])
  detail = lambda g: '-'.join(map(str, g.get('filters', g.get('hidden', ()))))
  names = [f'{i}: {g["model"]} {detail(g)}'.rstrip() for i, g in enumerate(groups)]  # two may be alike
  if entry.parts:
    owner, names = np.arange(len(entry.parts)), entry.parts
  lines = []
  for row in entry.rows if len(names) > 1 else ():
    for name, metric in entry.metrics.items():
      each = values.per_client(done[row.name], metric) if row.name in done else None
      shown = name in dict(row.parts or {}) or name == next(iter(entry.metrics)) or not entry.parts
      if each is None or not shown or done[row.name]['config']['groups'] != groups:
        continue
      printed = values.of_paper(entry, profile, dict(row.parts or {}).get(name, ()))
      line, each = {'method': row.name, 'value': name}, each.mean(0)
      for part, called in enumerate(names):
        line[called] = f'{each[owner == part].mean():.1f}' + _brackets(printed, owner, part)
      lines.append(line)
  return pd.DataFrame(lines) if lines else None


def _brackets(printed, owner, part) -> str:
  if not printed:
    return ''
  mine = [value for value, of in zip(printed, owner, strict=True) if of == part]
  return f' ({mine[0]})' if isinstance(mine[0], str) else f' ({np.mean(mine):.1f})'


def kinds(entry: Experiment, profile: str, done: dict) -> pd.DataFrame | None:
  """Means over kinds of clients, where a paper prints them."""
  lines = []
  for row in [row for row in entry.rows if row.name in done] if entry.kinds else []:
    means = [values.of(done[row.name], f'kind_{i}') for i in range(len(entry.kinds))]
    if means[0] is None:
      continue
    line = {'method': row.name}
    for i, (name, _) in enumerate(entry.kinds):
      printed = values.printed(entry, profile, row, f'kind_{i}')
      line[name] = analysis.spread(means[i]) + ('' if printed is None else f' ({printed:.1f})')
    lines.append(line)
  return pd.DataFrame(lines) if lines else None


def lengths(entry: Experiment, profile: str, done: dict) -> pd.DataFrame | None:
  """Accuracy of long runs after fewer rounds: what length settles."""
  del entry, profile
  lines = []
  for name, result in done.items():
    after = {row['round']: row['accuracy'] for row in values.last_phase(result)}
    if set(LENGTHS) <= set(after):
      spread = {f'after {t:,} rounds': analysis.spread(100 * np.asarray(after[t])) for t in LENGTHS}
      lines.append({'method': name, **spread})
  return pd.DataFrame(lines) if lines else None


def servers(entry: Experiment, profile: str, done: dict) -> pd.DataFrame | None:
  """What the servers of Felo's tables keep and learn, after the last round; for every width of features."""
  del profile
  lines = []
  for name in (row.name for row in entry.rows if row.name in done and 'second half' in entry.metrics):
    last = (done[name].get('curve') or [{}])[-1]
    line = {}
    for field, called in SERVER_METRICS.items():
      for key in (key for key in last if key.startswith(field)):
        known = [value for value in last[key] if value is not None]
        of_width = key.removeprefix(field).replace('_', ', width ')
        line |= {called + of_width: f'{np.mean(known):.2f}'} if known else {}
    lines += [{'method': name, **line}] if line else []
  return pd.DataFrame(lines).fillna('-') if lines else None


def _gain(done) -> str:
  """What collaboration adds to transfer learning, and how far the models stay below all private data (FedMD)."""
  own, best = done['fedmd']['per_seed'], done.get('pooled', {}).get('per_seed')
  gain = 100 * (np.asarray(own['final']) - np.asarray(own['start']))
  text = f'Gain of fedmd over its own start: {analysis.spread(gain)} points'
  if best:
    text += f'; below pooled: {analysis.spread(100 * (np.asarray(best["final"]) - np.asarray(own["final"])))} points'
  begun = values.begun(done['fedmd'])
  if not begun.all():
    text += f'. Models {", ".join(map(str, np.flatnonzero(~begun)))} still answer with public classes at their start'
  if 0 < begun.sum() < len(begun):
    start, end = (values.of(done['fedmd'], f'{metric}_begun') for metric in ('start', 'final'))
    text += f'; gain of the others: {analysis.spread(end - start)} points'
  return f'{text}.'


def nets(done: dict) -> str:
  """Which rows have other nets or images than the first, where rows are compared with each other."""
  sentences = []
  of = {name: _named(result['config']['groups']) + _server(result['config']) for name, result in done.items()}
  usual = next(iter(of.values()))
  others = [f'{name}: {", ".join(named)}' for name, named in of.items() if named != usual]
  if others:
    sentences.append(f'Nets: {", ".join(usual)}; but {"; ".join(others)}.')
  still = [n for n, r in done.items() if not (r['config']['data']['crop'] or r['config']['data']['flip'])]
  if still and len(still) < len(done):
    sentences.append(f'Without the crops and flips of the others: {", ".join(still)}.')
  return ' '.join(sentences)


def _named(groups) -> list:
  """Architectures of a config, with their factors, each once."""
  factors = lambda g: [f'{g[f]:g} {f}' for f in ('width', 'rate') if g.get(f, 1) != 1]
  blocks = lambda g: ['blocks ' + '-'.join(map(str, g['blocks']))] if g.get('blocks') else []
  return list(dict.fromkeys(' '.join([g['model'], *factors(g), *blocks(g)]) for g in groups))


def _server(config) -> list:
  """The network that a method trains on the server, with its factors."""
  method = config['method']
  if 'server_width' not in method:
    return []
  width, blocks = method['server_width'], method['server_blocks']
  return _named([{'model': f'{method["server"]} on the server', 'width': width, 'blocks': blocks}])


def _code(result) -> str:
  """The provenance of a result: the commits of its run, or outside a checkout the version."""
  commits = ' and '.join(results.commits(result))
  return f'commit {commits}' if commits else f'fedkd {result["versions"]["fedkd"]}'


def _same(done) -> str:
  twice = [f'{name} is the run of {result["same_run"]}' for name, result in done.items() if 'same_run' in result]
  return f'The same settings: {"; ".join(twice)}.' if twice else ''


def _leaks(done) -> str:
  """Whether early stopping in any phase watched test rows."""
  watched = lambda c: [one.get('early_stop', {}).get('watch', '') for one in (*c.get('before', ()), c)]
  leaky = [name for name, r in done.items() if any(w.startswith('accuracy') for w in watched(r['config']))]
  return f"Early stopping watched test rows, as in the authors' code: {', '.join(leaky)}." if leaky else ''


def _images(done) -> str:
  counts = next((result['images'] for result in done.values() if result.get('images')), {})
  listed = ', '.join(f'{count:,} {what}' for what, count in counts.items())
  return f'Images of the data set, of which a run may use fewer: {listed}.' if counts else ''


def _missing(entry, done) -> str:
  missing = [row.name for row in entry.rows if row.name not in done]
  return f'Not run in this profile: {", ".join(missing)}.' if missing else ''
