"""RESULTS.md from the JSON objects in results/: printed numbers beside ours, claims, communication. Nothing is written
by hand."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from fedkd import analysis, ledger, models, servers
from fedkd.analysis import results
from launch import papers

PROFILES = papers.PROFILES[:-1]  # smoke runs are too short
FAR = 5  # points from the printed value that need a sentence
HEAD = """# Results

Written by `python -m launch.reproduce --report` from the JSON objects in `results/`; nothing here is typed by hand.
Accuracies are percent. Ours is the mean over seeds ± a 95 % Student t interval (below three seeds the range); in
brackets, what is printed. ACC: test rows of all nodes, BWT: the node's own, FWT: the others', each at the node's best
validation round. Second half: mean over the evaluations after half of the rounds. A turn is one client in one round.
`paper` is the published setting; `light` has full nets and rounds, but Adam and batches of 64; `small` is for machines
without an accelerator, and its distance from a printed number says little. Differences between our rows are paired over
seeds. Minutes are the clock's while training, on cores that other work shared and that were sometimes taken away.
"""


def found(out) -> dict:
  """{(id, profile): {row: result}} of everything in `out`, for known ids."""
  everything, known = {}, papers.registry()
  for path in sorted(pathlib.Path(out).glob('*/*/*.json')):
    id, profile, row = path.parts[-3], path.parts[-2], path.stem
    if id in known and profile in PROFILES and row in {r.name for r in known[id].rows}:
      everything.setdefault((id, profile), {})[row] = results.read(path)
  return everything


def _values(result, metric) -> np.ndarray | None:
  """A metric in percent, [seeds]; `second_half_swing` is how far the accuracy of an evaluation in the second half lies
  from the line between its neighbours: the root mean square of second differences, by the square root of 6, so that it
  is the deviation of noise, and 0 for steady progress."""
  if metric == 'second_half_swing':
    rows = [row for row in result['curve'] if row['phase'] == result['curve'][-1]['phase']]
    half = [r['accuracy'] for r in rows if r['round'] > rows[-1]['round'] / 2]
    if result['config'].get('eval_rows'):
      half = half[:-1]  # the last is of all test images
    return 100 * np.sqrt(np.mean(np.square(np.diff(half, 2, axis=0)), 0) / 6)
  values = result['per_seed'].get(metric)
  return None if values is None else 100 * np.asarray(values)


def _printed(row, name) -> str:
  value = row.printed.get(name)
  if value is None:
    return '-'
  return f'{np.mean(value):.2f}' + (' (mean of models)' if isinstance(value, tuple) else '')


def table(entry, done) -> pd.DataFrame:
  """Printed and measured values of an experiment, one line per row."""
  lines = []
  for row in entry.rows:
    if row.name not in done:
      continue
    result, line = done[row.name], {'method': row.name}
    for name, metric in entry.metrics.items():
      ours = _values(result, metric)
      line[f'{name} printed'] = _printed(row, name)
      line[name] = '-' if ours is None else analysis.spread(ours)
      known = row.printed.get(name) and ours is not None
      line[f'{name} difference'] = f'{ours.mean() - np.mean(row.printed[name]):+.2f}' if known else '-'
    per_turn = max(len(result['seeds']) * result['turns'], 1)
    sent = results.sent(result, 'numbers')
    line |= {f'numbers {way} per turn': f'{sent[way].sum() / per_turn:,.1f}' for way in sent}
    line['seeds'], line['minutes'] = len(result['seeds']), f'{result["seconds"] / 60:.0f}'
    lines.append(line)
  return pd.DataFrame(lines)


def far(entry, done, profile) -> list:
  """A sentence for every printed value that ours misses by more than FAR points."""
  out = []
  for row in entry.rows:
    for name, metric in entry.metrics.items():
      ours = _values(done[row.name], metric) if row.name in done else None
      if ours is None or not row.printed.get(name):
        continue
      away = ours.mean() - np.mean(row.printed[name])
      if abs(away) > FAR:
        config = done[row.name]['config']
        why = f'profile {profile}, {config["rounds"]:,} rounds, {config["data"]["clients"]} clients'
        width = min((group.get('width', 1) for group in config['groups']), default=1)
        why += f', nets of {width:g} of the width' if width < 1 else ''
        side = config['data'].get('size', 0)
        why += f', images of {side} pixels' if side not in (0, 224) else ''
        out.append(
          f'* {row.name}, {name}: {abs(away):.1f} points {"above" if away > 0 else "below"} the printed value; {why}.'
        )
  return out


def _parts(entry, done) -> pd.DataFrame | None:
  """Per client or architecture, in the rows that have the first one's nets: ours, and what is printed in brackets."""
  groups = next(iter(done.values()))['config']['groups']
  owner = np.repeat(np.arange(len(groups)), [group['clients'] for group in groups])
  detail = lambda g: '-'.join(map(str, g.get('filters', g.get('hidden', ()))))
  names = [f'{i}: {g["model"]} {detail(g)}'.rstrip() for i, g in enumerate(groups)]  # two may be alike
  if entry.parts:
    owner, names = np.arange(len(entry.parts)), entry.parts
  shown = dict(list(entry.metrics.items())[:1]) if entry.parts else entry.metrics
  lines = []
  for row in entry.rows if len(names) > 1 else ():
    for name, metric in shown.items():
      each = done[row.name]['per_seed'].get(f'{metric}_per_client') if row.name in done else None
      if each is None or done[row.name]['config']['groups'] != groups:
        continue
      each, line = 100 * np.mean(each, 0), {'method': row.name, 'value': name}
      for part, called in enumerate(names):
        line[called] = f'{each[owner == part].mean():.1f}'
        if row.parts and name == next(iter(shown)):
          line[called] += f' ({np.asarray(row.parts)[owner == part].mean():.1f})'
      lines.append(line)
  return pd.DataFrame(lines) if lines else None


def _gain(done) -> str:
  """What collaboration adds to transfer learning, and how far the models stay below all private data (FedMD)."""
  own, best = done['fedmd']['per_seed'], done.get('pooled', {}).get('per_seed')
  gain = 100 * (np.asarray(own['final']) - np.asarray(own['start']))
  text = f'Gain of fedmd over its own start: {analysis.spread(gain)} points'
  if best:
    text += f'; below pooled: {analysis.spread(100 * (np.asarray(best["final"]) - np.asarray(own["final"])))} points'
  public = [row.get('accuracy_public_per_client') for row in done['fedmd'].get('curve') or () if row['phase'] == 0][-1:]
  if any(public):
    text += f'; on the public test set after the public phase: {analysis.spread(100 * np.mean(public[0], -1))}'
  return f'{text}.'


def _nets(done) -> str:
  """Which rows have other nets or images than the first, where rows are compared with each other."""
  sentences = []
  nets = {name: _named(result['config']['groups']) + _server(result['config']) for name, result in done.items()}
  usual = next(iter(nets.values()))
  others = [f'{name}: {", ".join(named)}' for name, named in nets.items() if named != usual]
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
  net = {
    'model': f'{method["server"]} on the server',
    'width': method['server_width'],
    'blocks': method['server_blocks'],
  }
  return _named([net])


SERVER_METRICS = {  # server metrics and their names
  'knowledge_age': 'age of logits',
  'feature_age': 'age of features',
  'cvae_reconstruction': 'reconstruction',
  'cvae_kl': 'KL',
  'cvae_active': 'active units',
}


def _learned(entry, done) -> pd.DataFrame:
  """What servers keep and learn, after the last round; where features differ in width, for each."""
  lines = []
  for name in (row.name for row in entry.rows if row.name in done):
    last = (done[name].get('curve') or [{}])[-1]
    line = {}
    for field, called in SERVER_METRICS.items():
      for key in (key for key in last if key.startswith(field)):
        known = [value for value in last[key] if value is not None]
        of_width = key.removeprefix(field).replace('_', ', width ')
        line |= {called + of_width: f'{np.mean(known):.2f}'} if known else {}
    lines += [{'method': name, **line}] if line else []
  return pd.DataFrame(lines).fillna('-')


def _lengths(done, rounds=(1500, 3000, 10_000)) -> pd.DataFrame:
  """Accuracy of long runs after fewer rounds: what length settles."""
  lines = []
  for name, result in done.items():
    curve = result.get('curve') or [{'phase': 0, 'round': 0, 'accuracy': ()}]
    after = {row['round']: row['accuracy'] for row in curve if row['phase'] == curve[-1]['phase']}
    if set(rounds) <= set(after):
      spread = {f'{t:,} rounds': analysis.spread(100 * np.asarray(after[t])) for t in rounds}
      lines.append({'method': name, **spread})
  return pd.DataFrame(lines)


def claims(everything) -> pd.DataFrame:
  """The papers' claims, reproduced or not by the longest profile that has both rows."""
  lines = []
  for claim in papers.claims():
    for profile in PROFILES:
      of = lambda expression, profile=profile, claim=claim: _by_seed(everything, profile, expression, claim.metric)
      more, less = of(claim.more), of(claim.less)
      if more and less:
        lines.append({'claim': claim.text, **_verdict(analysis.paired(more, less), claim.margin), 'profile': profile})
        break
    else:
      lines.append({'claim': claim.text, 'difference': '-', 'verdict': 'not run', 'profile': '-'})
  return pd.DataFrame(lines)


def _reasons(table) -> list:
  """Likely reasons for the claims that we do not reproduce, each reason once."""
  verdicts, reasons = dict(zip(table['claim'], table['verdict'], strict=True)), {}
  for claim in papers.claims():
    if verdicts[claim.text].startswith('not kept'):
      unknown = 'Within the noise of our seeds.' if 'noise' in verdicts[claim.text] else 'No reason known.'
      reasons.setdefault(claim.why or unknown, []).append(claim.text)
  return [f'* {"; ".join(texts)}: {why}' for why, texts in reasons.items()]


def _by_seed(everything, profile, expression, metric) -> dict | None:
  """{seed: value} of `id/row`, or of the difference `id/row - id/row`; None where a row was not run."""
  each = []
  for name in expression.split(' - '):
    id, row = name.split('/')
    result = everything.get((id, profile), {}).get(row)
    values = result and _values(result, metric)
    if values is None:
      return None
    each.append(dict(zip(result['seeds'], values, strict=True)))
  return {seed: each[0][seed] - sum(other[seed] for other in each[1:]) for seed in set.intersection(*map(set, each))}


def _verdict(difference, margin) -> dict:
  _, low, high = analysis.interval(difference)
  word = 'kept' if difference.mean() > -margin else 'not kept'
  noise = ', within noise' if len(difference) < 3 or low <= -margin <= high else ''
  doubt = ', one seed' if len(difference) == 1 else noise
  return {'difference': f'{analysis.spread(difference)} points', 'verdict': word + doubt}


def _count(model, shape) -> int:
  """Weights; with BatchNorm's statistics where Keras counts them, in FedMD's nets."""
  image = jax.ShapeDtypeStruct((1, *shape), 'uint8')
  variables = jax.eval_shape(lambda x: model.init(jax.random.key(0), x / 255, False), image)
  return optax.tree.size(variables if isinstance(model, models.ThreeConv) else variables['params'])


def communication() -> str:
  """FedHe's Tables III and IV, and the bandwidth claims of FedH2L, from the models and messages themselves."""
  lines = []
  class_means = jax.eval_shape(servers.class_message, jnp.zeros((10, 10)), jnp.ones(10, bool))
  fedhe = sum(numbers for numbers, _ in ledger.capacity(class_means).values())
  for data, shape, weights, public in (
    ('MNIST', (28, 28, 1), 324_672, 7940),
    ('CIFAR-10', (32, 32, 3), 326_976, 30_820),
  ):
    net = lambda classes: models.ThreeConv((128, 128, 192), 0.3, classes=classes)
    as_printed, as_trained = _count(net(20), shape), _count(net(10), shape)
    fedmd = 10 * (10 + int(np.prod(shape)))
    for name, printed, ours in (
      ('FedAvg', weights, as_printed),
      ('FedHe', 110, fedhe),
      ('FedMD, 10 images', public, fedmd),
    ):
      cut = f'{100 * (1 - ours / as_printed):.2f} %'
      note = f'{as_trained:,} with the ten outputs that are trained' if name == 'FedAvg' else ''
      lines.append(
        {'data': data, 'method': name, 'printed': f'{printed:,}', 'ours': f'{ours:,}', 'reduced by': cut, 'note': note}
      )
  text = ['## Communication', '', 'FedHe, Tables III and IV: numbers of one client in one round, one direction.', '']
  text += [
    analysis.markdown(pd.DataFrame(lines)),
    '',
    'FedH2L: numbers up per node and exchange, and how many times that FedAvg sends. As in the paper without the',
    'numbers of the 32 rows, which the ledger above counts: 353 for Rotated MNIST.',
    '',
  ]
  lenet = _count(models.LeNet(), (28, 28, 1))
  rows = [('Rotated MNIST, LeNet', 10, lenet), ('PACS, VGG11', 7, _count(models.VGG11(classes=7), (224, 224, 3)))]
  rows.append(('Office-Home, ResNet50', 65, _count(models.ResNet50(classes=65), (224, 224, 3))))
  lines = []
  for name, classes, weights in rows:
    sent = {
      'posterior': jax.ShapeDtypeStruct((32, classes), 'float32'),
      'accuracy': jax.ShapeDtypeStruct((), 'float32'),
    }
    up = ledger.capacity(sent)['knowledge'][0]
    lines.append({'setting': name, 'FedH2L': f'{up:,}', 'weights': f'{weights:,}', 'ratio': f'{weights / up:,.0f}'})
  text += [
    analysis.markdown(pd.DataFrame(lines)),
    '',
    'The paper says "over 1000 times" and, in its limitations, "10e6 times".',
    '',
  ]
  width, weights = 512, _count(models.ResNet18(), (32, 32, 3))
  features = jax.eval_shape(servers.class_message, jnp.zeros((10, width)), jnp.ones(10, bool))
  more = sum(n for n, _ in ledger.capacity(features).values()) + ledger.capacity(class_means)['knowledge'][0]
  text += [
    f'Felo: {more:,} numbers of knowledge beside the {weights:,} weights of a ResNet18, {100 * more / weights:.4f} %.',
    '',
  ]
  return '\n'.join(text)


def _code(result) -> str:
  """The provenance of a result: its commit, or outside a checkout the version."""
  return f'commit {result["commit"]}' if result['commit'] else f'fedkd {result["versions"]["fedkd"]}'


def _leaks(config) -> bool:
  """Whether early stopping in any phase watched test rows."""
  watched = [phase.get('early_stop', {}).get('watch', '') for phase in (*config.get('before', ()), config)]
  return any(watch.startswith('accuracy') for watch in watched)


def write(out, path):
  """Writes the report."""
  everything, parts = found(out), [HEAD]
  for id, entry in papers.registry().items():
    for profile in PROFILES:
      done = everything.get((id, profile))
      if not done:
        continue
      sources = sorted({f'{r["device"]}, JAX {r["versions"]["jax"]}, {_code(r)}' for r in done.values()})
      parts += [f'## {entry.title} ({id}, {profile})', '', f'{entry.source}. {"; ".join(sources)}.', '']
      parts += [analysis.markdown(table(entry, done)), '']
      each = _parts(entry, done)
      parts += [analysis.markdown(each), ''] if each is not None else []
      parts += [_gain(done), ''] if id.startswith('md-') and 'fedmd' in done else []
      lengths = _lengths(done)
      parts += ['Mean over nodes, after fewer rounds:', '', analysis.markdown(lengths), ''] if len(lengths) else []
      if id.startswith('fv-'):
        caption = (
          "After the last round, where recorded: rounds since upload of what is stored, Velo's autoencoder's losses:"
        )
        learned = _learned(entry, done)
        parts += [caption, '', analysis.markdown(learned), ''] if len(learned) else []
        nets = _nets(done)
        parts += [nets, ''] if nets else []
      twice = [f'{name} is the run of {result["same_run"]}' for name, result in done.items() if 'same_run' in result]
      parts += [f'The same settings: {"; ".join(twice)}.', ''] if twice else []
      leaky = [name for name, result in done.items() if _leaks(result['config'])]
      leak = f"Early stopping watched test rows, as in the authors' code: {', '.join(leaky)}."
      parts += [leak, ''] if leaky else []
      counts = next((result['images'] for result in done.values() if result.get('images')), {})
      images = ', '.join(f'{count:,} {what}' for what, count in counts.items())
      parts += [f'Images that were there: {images}.', ''] if counts else []
      missing = [row.name for row in entry.rows if row.name not in done]
      parts += [f'Not run in this profile: {", ".join(missing)}.', ''] if missing else []
      parts += [*far(entry, done, profile), '']
  judged = claims(everything)
  parts += [
    '## Claims of the papers',
    '',
    'Judged by the longest profile that has both rows. Within noise: the interval holds 0, or, where a claim allows',
    'some points less (how many is our choice), minus these. Steadiness is how far an evaluation lies from the line',
    'between its neighbours.',
    '',
    analysis.markdown(judged),
    '',
    *_reasons(judged),
    '',
    communication(),
    '## Not run yet at full size',
    '',
  ]
  for id, entry in papers.registry().items():
    if not any((id, profile) in everything for profile in entry.full):
      command = f'`python -m launch.reproduce --id={id} --profile={entry.full[-1]}`'
      small = '' if (id, 'small') in everything else f' (small, not run either: about {entry.cost})'
      parts.append(f'* {entry.title}: {command}{small}')
  pathlib.Path(path).write_text('\n'.join(parts).replace('\n\n\n', '\n\n') + '\n')
