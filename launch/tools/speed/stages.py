"""Where the device's time goes, from a trace that `launch.main --profile_dir=DIR` wrote, or in the benchmark's cases.

  python -m launch.bench stages DIR
  python -m launch.bench stages --cases=conv4,lenet     # a round of each, client after client, as a Markdown table

XLA names a fused operation after what it computes last; the stages are sums over such names. Containers (loops, calls)
are excluded, their contents are counted. On a CPU the operations of all threads are added.
"""

import argparse
import collections
import pathlib
import tempfile

import jax

from launch.tools.speed import client_updates, report
from launch.tools.speed.cases import CASES
from launch.tools.speed.rows import Config

# The first stage that has one of these in an operation's name.
STAGES = {
  # XLA:CPU gives matrix products and sums over many numbers to one library, YNN, under one name.
  'matrix products, convolutions, large sums': (
    'ynn',
    'dot',
    'convolution',
    'gemm',
    'cutlass',
    'cublas',
    'custom-call',
  ),
  'windows and copies (pads, slices, transposes)': ('concatenate', 'slice', 'pad', 'transpose', 'copy', 'gather'),
  'other sums': ('reduce',),
  'random bits and sorting': ('rng', 'threefry', 'sort', 'top'),
  'number by number (activations, dropout, normalisation, optimizer)': ('',),
}
CONTAINERS = ('while', 'call', 'conditional', 'ThunkExecutor', 'end', 'D2D', 'H2D', 'SlinkyThreadPool')


def operations(folder) -> dict:
  """Seconds by name of operation, without its number.

  Raises:
    ValueError: for a folder without a trace.
  """
  paths = sorted(pathlib.Path(folder).rglob('*.xplane.pb'))
  if not paths:
    raise ValueError(f'{folder} holds no trace; write one with launch.main --profile_dir={folder}')
  planes = list(jax.profiler.ProfileData.from_file(str(paths[-1])).planes)
  devices = [plane for plane in planes if plane.name.startswith('/device:')]
  seconds = collections.Counter()
  for plane in devices or planes:
    for line in plane.lines:
      if line.name.startswith(('tf_XLAEigen', 'tf_XLAPjRt', 'Stream', 'XLA Ops')):
        for event in line.events:
          name = event.name.split('.')[0]
          if not name.startswith(CONTAINERS) and '::' not in event.name and ' ' not in event.name:
            seconds[name] += event.duration_ns / 1e9
  return dict(seconds)


def shares(seconds) -> dict:
  """The stages' parts of the whole, from seconds by operation."""
  found = dict.fromkeys(STAGES, 0.0)
  for name, spent in seconds.items():
    found[next(stage for stage, words in STAGES.items() if any(word in name for word in words))] += spent
  whole = sum(found.values()) or 1.0
  return {stage: spent / whole for stage, spent in found.items()}


def trace(case) -> dict:
  """Seconds by operation of one round of a benchmark case, on one device, clients one by one, after one round more."""
  seconds = collections.Counter()
  for net in case.nets:
    updates, (state, *rest) = client_updates.prepare(case, net, Config())
    updates = jax.jit(updates, donate_argnums=0)
    state, _ = jax.block_until_ready(updates(state, *rest))
    with tempfile.TemporaryDirectory() as folder:
      with jax.profiler.trace(folder):
        jax.block_until_ready(updates(state, *rest))
      seconds.update(operations(folder))
  return dict(seconds)


def table(found) -> str:
  """Shares by case as a Markdown table. `found`: (title, seconds by operation) of every case."""
  lines = [(title, *(f'{share:.0%}' for share in shares(seconds).values())) for title, seconds in found]
  return report.markdown(('case', *STAGES), lines)


def main(words=None, program='python -m launch.bench stages'):
  """Prints the stages, and of one trace the ten operations that took longest."""
  flags = argparse.ArgumentParser(program, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  flags.add_argument('folder', nargs='?', help='of the trace')
  flags.add_argument('--cases', default='', help='instead of a trace: of ' + ', '.join(CASES))
  args = flags.parse_args(words)
  names = args.cases.split(',') if args.cases else []
  if bool(names) == bool(args.folder) or not set(names) <= set(CASES):
    flags.error(f'give the folder of a trace, or --cases from {", ".join(CASES)}')
  if names:
    print(table((CASES[name].title, trace(CASES[name])) for name in names))
    return
  try:
    seconds = operations(args.folder)
  except ValueError as error:
    flags.error(str(error))
  for stage, share in shares(seconds).items():
    print(f'{share:6.1%}  {stage}')
  for name, spent in collections.Counter(seconds).most_common(10):
    print(f'{spent:8.2f} s  {name}')


if __name__ == '__main__':
  main()
