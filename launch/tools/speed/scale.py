"""The cost of a round with many clients, and with many devices, measured on whole runs of the library.

  python -m launch.bench scale --json=results/bench_scale.json --figure=results/bench_scale.png
  python -m launch.bench scale --clients=1000 --devices=1,2 --rounds=15                           # quick

FedHe with LeNet on random digits, ten a client, 100 participants a round, three batches of 10; clients' states in RAM
(while they fit) and on disk (`client_store`). And FedAvg, whose clients keep no state. Then the same round with
100 of 100 clients over 1, 2, 4, 8 devices. Every row runs in a process of its own; seconds per round are a median over
intervals of five rounds, without the first. Data and states are under $TMPDIR, which must not be in memory.
"""

import argparse
import json
import os
import pathlib
import resource
import tempfile
import time

import numpy as np

from fedkd import config as base
from fedkd import experiment
from fedkd.experiment import progress
from launch.tools.speed import report

PARTICIPANTS, ROWS_EACH, STRETCH, TEST = 100, 10, 5, 200
MOST_IN_MEMORY = 10_000  # clients with LeNet and Adam's moments: 7.4 GB


def config_of(folder, row):
  """The config of a row: {'method', 'clients', 'store', 'devices', 'rounds'}; writes its data."""
  draw, path = np.random.default_rng(0), folder / 'digits.npz'
  arrays = {}
  for part, many in (('train', row['clients'] * ROWS_EACH), ('test', TEST)):
    arrays[f'x_{part}'] = draw.integers(0, 256, (many, 28, 28, 1), np.uint8)
    arrays[f'y_{part}'] = np.arange(many) % 10
  np.savez(path, **arrays)
  config = base.default()
  config.data.name, config.data.normalise, config.data.validation = f'npz:{path}', 'unit', 0.0
  config.data.clients, config.groups = row['clients'], ({'model': 'LeNet', 'clients': row['clients']},)
  config.method = base.method(row['method'], steps=3, batch=10)
  config.optimizer = base.optimizer('adam', learning_rate=1e-3)
  config.plan = base.plan('sampled', ratio=PARTICIPANTS / row['clients'])
  config.rounds, config.eval_every = row['rounds'], STRETCH
  config.eval_clients, config.eval_rows, config.devices = 10, TEST, row['devices']
  config.checkpoint_every = STRETCH
  config.client_store = str(folder / 'store') if row['store'] == 'disk' else ''
  return config


def measure(row):
  """Runs a row in this process and returns it with what was measured."""
  with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(scratch)
    config = config_of(folder, row)
    stamps = []  # of every evaluation: seconds of training so far, and the clock's
    note = lambda round, rate, line=None: line and stamps.append((line['seconds'], time.monotonic()))
    summary = experiment.run(config, folder / 'run', show=progress.SILENT._replace(update=note))
    rounds, clock = np.median(np.diff(np.array(stamps), axis=0)[1:], 0) / STRETCH  # of training alone, and in all
    stored = sum(file.stat().st_blocks * 512 for file in folder.glob('store/group*'))
  return {
    **row,
    'seconds_per_round': float(rounds),
    'seconds_per_round_with_saving': float(clock),  # a checkpoint and an evaluation of ten clients every STRETCH rounds
    'examples_per_second': float(PARTICIPANTS * 30 / rounds),
    'process_peak_mb': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    'disk_mb': stored / 1e6,
    'state_sha256': summary['state_sha256'],
  }


def spawn(row):
  """`measure` in a process of its own."""
  report.wait_for_idle(60)
  return {**row, **report.measured('launch.bench', 'scale', '--row', json.dumps(row))}


def draw(rows, path):
  """Seconds per round and memory over clients, seconds per round over devices."""
  import matplotlib.figure

  figure = matplotlib.figure.Figure(figsize=(12, 3.6), layout='constrained')
  time, memory, spread = figure.subplots(1, 3)
  kinds = {
    ('fedhe', 'memory'): ('o-', '#0072B2'),
    ('fedhe', 'disk'): ('s-', '#D55E00'),
    ('fedavg', 'memory'): ('^-', '#009E73'),
  }
  done = [row for row in rows if 'note' not in row]
  for (method, store), (style, color) in kinds.items():
    of_axis = [r for r in done if (r['method'], r['store']) == (method, store) and r['axis'] == 'clients']
    label = 'FedAvg' if method == 'fedavg' else f'FedHe, states {"on disk" if store == "disk" else "in memory"}'
    x = [r['clients'] for r in of_axis]
    time.plot(x, [r['seconds_per_round'] for r in of_axis], style, color=color, label=label)
    memory.plot(x, [r['process_peak_mb'] * 2**20 / 1e9 for r in of_axis], style, color=color, label=label)
  of_axis = [r for r in done if r['axis'] == 'devices']
  spread.plot([r['devices'] for r in of_axis], [r['seconds_per_round'] for r in of_axis], 'o-', color='#0072B2')
  for axes, y in ((time, 'seconds per round'), (memory, 'peak memory of the process, GB')):
    axes.set(xscale='log', xlabel='clients, 100 of them in a round', ylabel=y, ylim=(0, None))
  memory.legend(frameon=False)
  spread.set(xlabel=f'CPU devices on {os.cpu_count()} cores', ylabel='seconds per round, 100 clients', ylim=(0, None))
  figure.savefig(path, dpi=120)


def main(words=None, program='python -m launch.bench scale'):
  """Measures all rows, or with --row one of them (how the program calls itself)."""
  flags = argparse.ArgumentParser(program, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  flags.add_argument('--json', help='write the results here')
  flags.add_argument('--figure', help='and draw them here')
  flags.add_argument('--clients', default='1000,10000,100000')
  flags.add_argument('--devices', default='1,2,4,8')
  flags.add_argument('--rounds', type=int, default=25)
  flags.add_argument('--row', help=argparse.SUPPRESS)
  args = flags.parse_args(words)
  if args.rounds % STRETCH or args.rounds < 3 * STRETCH:
    flags.error(f'--rounds={args.rounds} must be a multiple of {STRETCH}, at least {3 * STRETCH}')
  if args.row:
    print(json.dumps(measure(json.loads(args.row))))
    return
  common, rows = {'rounds': args.rounds}, []
  for clients in map(int, args.clients.split(',')):
    for method, store in (('fedhe', 'memory'), ('fedhe', 'disk'), ('fedavg', 'memory')):
      if (method, store) != ('fedhe', 'memory') or clients <= MOST_IN_MEMORY:
        rows.append({'axis': 'clients', 'method': method, 'clients': clients, 'store': store, 'devices': 1, **common})
  for devices in map(int, args.devices.split(',')):
    rows.append({'axis': 'devices', 'method': 'fedhe', 'clients': 100, 'store': 'memory', 'devices': devices, **common})
  result = {**report.machine(), 'rows': []}
  for row in rows:
    result['rows'].append(spawn(row))
    print(json.dumps(result['rows'][-1]), flush=True)
    if args.json:
      pathlib.Path(args.json).write_text(json.dumps(result, indent=1) + '\n')
  if args.figure:
    draw(result['rows'], args.figure)


if __name__ == '__main__':
  main()
