"""Figures of runs and results."""

import io
import itertools
import pathlib

import matplotlib
import matplotlib.figure
import matplotlib.ticker
import numpy as np

from fedkd import files
from fedkd.analysis import results
from fedkd.analysis.frames import by_seed, read

# Okabe and Ito's colours, distinguishable with any colour vision; the markers differ too.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000', '#F0E442')
MARKERS = 'osD^vP*X'


def _axes(title, x, y):
  figure = matplotlib.figure.Figure(figsize=(6.4, 4), layout='constrained')
  axes = figure.add_subplot(title=title, xlabel=x, ylabel=y)
  axes.grid(alpha=0.3)
  axes.spines[['top', 'right']].set_visible(False)
  return figure, axes


def _band(axes, x, values, label, i):
  """The mean over seeds of [seeds, points] as a line, their range as a band."""
  colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
  every = max(1, len(x) // 10)
  style = {'color': colour, 'marker': marker, 'linestyle': ('-', '--')[i // len(COLOURS) % 2]}
  axes.plot(x, values.mean(0), markersize=5, markevery=every, label=label, **style)
  axes.fill_between(x, values.min(0), values.max(0), color=colour, alpha=0.2, linewidth=0)


def lines(values, x_label, title='Test accuracy, mean over clients', y_label='accuracy (%)'):
  """Means over seeds as lines, ranges as bands; `values` is {label: (x [points], y [seeds, points])}."""
  figure, axes = _axes(title, x_label, y_label)
  for i, (label, (x, y)) in enumerate(values.items()):
    _band(axes, x, y, label, i)
  axes.legend(frameon=False, **({'fontsize': 7, 'ncols': 2} if len(values) > 5 else {}))
  return figure


def bars(values, title, y_label='accuracy (%)'):
  """Means of [seeds] as bars, ranges as error bars; `values` is {label of a bar: [seeds]}."""
  figure, axes = _axes(title, '', y_label)
  for label, each in values.items():
    error = [[each.mean() - each.min()], [each.max() - each.mean()]]
    axes.bar(label, each.mean(), yerr=error, color=COLOURS[0], ecolor='0.3', capsize=3)
  axes.tick_params(axis='x', labelrotation=30)
  return figure


def curves(frames, x='round', x_label='round', scale=1.0):
  """Accuracy of several runs over rounds, client updates or megabytes; `frames` is {label: frame of `read`}."""
  of = lambda frame: (by_seed(frame, x).mean(0) * scale, 100 * by_seed(frame, 'accuracy'))
  return lines({label: of(frame) for label, frame in frames.items()}, x_label)


def megabytes(frames):
  """Accuracy over all megabytes sent and received so far by all clients; runs that send nothing as a dashed level."""
  both = {k: f.assign(megabytes=(f['bytes_up'] + f['bytes_down']) / 1e6) for k, f in frames.items()}
  talking = {k: f for k, f in both.items() if f['megabytes'].max() > 0}
  figure = curves(talking or both, 'megabytes', 'megabytes sent and received by all clients')
  axes = figure.axes[0]
  for i, label in enumerate(k for k in both if talking and k not in talking):
    final = 100 * by_seed(both[label], 'accuracy')[:, -1].mean()
    colour = COLOURS[(len(talking) + i) % len(COLOURS)]
    axes.axhline(final, color=colour, linestyle=('--', ':', '-.')[i % 3], label=f'{label} at its end (sends nothing)')
  axes.legend(frameon=False)
  return figure


def against_megabytes(panels):
  """Accuracy over all megabytes sent and received, a panel per setting; methods that send nothing as a dashed level.

  Args:
    panels: {title: {label: (megabytes [seeds], accuracy [seeds])}}; a label looks the same in all of them.
  """
  labels = list(dict.fromkeys(label for points in panels.values() for label in points))
  columns = min(3, len(panels))
  rows = -(-len(panels) // columns)
  figure = matplotlib.figure.Figure(figsize=(4 * columns + 1, 3.2 * rows + 1), layout='constrained')
  drawn = {}
  for place, (title, points) in enumerate(panels.items()):
    axes = figure.add_subplot(rows, columns, place + 1, title=title, xlabel='megabytes', ylabel='accuracy (%)')
    logarithmic(axes)
    axes.title.set_fontsize(9)
    axes.grid(alpha=0.3)
    axes.spines[['top', 'right']].set_visible(False)
    for label, (sent, accuracy) in points.items():
      drawn[label] = _point(axes, labels.index(label), sent.mean(), accuracy)
  figure.legend(drawn.values(), drawn, loc='outside lower center', ncols=7, frameon=False, fontsize=8)
  return figure


def logarithmic(axes):
  """Makes the horizontal axis logarithmic, with plain numbers at 1, 2 and 5 times the powers of ten."""
  axes.set_xscale('log')
  axes.xaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
  axes.xaxis.set_major_formatter('{x:g}')
  axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())


def _point(axes, i, x, values):
  """The mean of [seeds] and their range at x, or at 0 as a level."""
  colour, marker = COLOURS[i % len(COLOURS)], MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]
  mean = values.mean()
  if x == 0:
    return axes.axhline(mean, color=colour, linestyle=('--', ':')[i % 2])
  error = [[mean - values.min()], [values.max() - mean]]
  return axes.errorbar(x, mean, yerr=error, color=colour, marker=marker, linestyle='none', capsize=2)


def clients(workdir, summary=None):
  """Final accuracy of every client, mean and range over seeds, each architecture in its own colour.

  `summary`: of the run, if `summary.json` is not written yet.
  """
  frame, summary = read(workdir), summary or results.summary(workdir)
  final = 100 * by_seed(frame, 'accuracy_per_client')[:, -1]  # [seeds, K]
  figure, axes = _axes(f'{summary["method"]}: test accuracy of each client', 'client', 'accuracy (%)')
  sizes, names = [g['clients'] for g in summary['groups']], [g['name'] for g in summary['groups']]
  in_order = all(g.get('first', a) == a for g, a in zip(summary['groups'], np.cumsum([0, *sizes]), strict=False))
  if final.shape[1] != sum(sizes) or not in_order:  # only a sample was evaluated: all in one colour
    sizes, names = [final.shape[1]], ['clients evaluated']
  x, low, mean, high = np.arange(final.shape[1]), final.min(0), final.mean(0), final.max(0)
  for i, (a, b) in enumerate(itertools.pairwise(np.cumsum([0, *sizes]))):
    style = {'color': COLOURS[i % len(COLOURS)], 'marker': MARKERS[i % len(MARKERS)]}
    error = [(mean - low)[a:b], (high - mean)[a:b]]
    axes.errorbar(x[a:b], mean[a:b], yerr=error, linestyle='none', capsize=3, label=names[i], **style)
  axes.legend(frameon=False, fontsize=8, ncols=3, loc='upper center', bbox_to_anchor=(0.5, -0.16))
  axes.set_xticks(x if len(x) <= 20 else x[:: len(x) // 10])
  return figure


def labels(counts, seed):
  """Training examples per client and class, int[K, C], as a map."""
  figure, axes = _axes(f'Training examples per client and class (seed {seed})', 'client', 'class')
  axes.grid(False)
  image = axes.imshow(counts.T, aspect='auto', cmap='cividis', origin='lower', vmin=0)
  figure.colorbar(image, label='examples')
  return figure


def collaboration(result, bounds):
  """Accuracy of every model over the rounds of a result's last phase, its start as a dashed level (FedMD, Figure 2).

  Args:
    result: from `results.read`.
    bounds: {label: result} whose final mean is drawn as a level.
  """
  rows = [row for row in result['curve'] if row['phase'] == result['curve'][-1]['phase']]
  accuracy = 100 * np.mean([row['accuracy_per_client'] for row in rows], 1)  # [evaluations, K], mean over seeds
  figure, axes = _axes(f'{result["method"]}: {result["id"]} ({result["profile"]})', 'round', 'accuracy (%)')
  for k, values in enumerate(accuracy.T):
    name = result['config']['groups'][k]['model'] if len(result['config']['groups']) == accuracy.shape[1] else ''
    colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
    axes.plot([row['round'] for row in rows], values, color=colour, marker=marker, markersize=4, label=f'{k} {name}')
  axes.axhline(accuracy[0].mean(), color='0.4', linestyle='--', label='mean at the start')
  for label, other in bounds.items():
    axes.axhline(100 * np.mean(other['per_seed']['final']), color='0.4', linestyle='-.', label=f'{label}, mean')
  axes.legend(frameon=False, fontsize=7, ncols=2)
  return figure


def principal(features) -> np.ndarray:
  """The first two principal components [T, 2] of features [T, d]."""
  centred = features - features.mean(0)
  return centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T


def components(points, label, domain, titles, domains):
  """Principal components of features, one panel per method (FedH2L, Li et al., 2021, Figure 1).

  Args:
    points: list of [T, 2], one per panel.
    label, domain: int[T]; classes are colours, domains markers.
    titles: of the panels.
    domains: names.
  """
  figure = matplotlib.figure.Figure(figsize=(3.4 * len(points), 3.6), layout='constrained')
  for axes, xy, title in zip(figure.subplots(1, len(points), squeeze=False)[0], points, titles, strict=True):
    for d in range(len(domains)):
      rows = domain == d
      style = {'cmap': 'tab10', 'vmin': 0, 'vmax': 9, 's': 12, 'marker': MARKERS[d], 'alpha': 0.7, 'linewidths': 0}
      dots = axes.scatter(xy[rows, 0], xy[rows, 1], c=label[rows], label=domains[d], **style)
    axes.set(title=title, xlabel='first component', ylabel='second component')
    axes.spines[['top', 'right']].set_visible(False)
  axes.legend(frameon=False, fontsize=7, title='domain')
  figure.colorbar(dots, ax=axes, label='class', ticks=range(10))
  return figure


def save(figure, path):
  """Writes a PNG, atomically."""
  path.parent.mkdir(parents=True, exist_ok=True)
  drawn = io.BytesIO()
  figure.savefig(drawn, dpi=150, format='png')
  files.write(path, drawn.getvalue())


def save_figures(workdir, counts, summary):
  """Draws a finished run's `figures/`; `counts` are the first seed's labels per client, int[K, C]."""
  workdir = pathlib.Path(workdir)
  frame = read(workdir)
  runs, folder = {frame['method'][0]: frame}, workdir / 'figures'
  save(curves(runs), folder / 'accuracy_rounds.png')
  save(megabytes(runs), folder / 'accuracy_megabytes.png')
  save(clients(workdir, summary), folder / 'accuracy_clients.png')
  save(labels(counts, frame['seed'][0]), folder / 'labels.png')
