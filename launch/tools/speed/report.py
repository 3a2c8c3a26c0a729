"""How `launch.bench` compares its rows, prints them, and describes the machine they were measured on.

python -m launch.bench report results/bench_cpu.json     # the overview of a finished benchmark, as Markdown
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

import flax
import jax

import fedkd
from fedkd.errors import ConfigError
from fedkd.experiment import provenance
from launch import exits


def compare(rows):
  """Adds `ratio_to_torch` to every measured row: its speed over that of PyTorch's loop in the same precision and its
  faster memory format."""
  for row in rows:
    alike = lambda r, row=row: (r['case'], r['precision']) == (row['case'], row['precision'])
    same = [r for r in rows if alike(r) and r['engine'] == 'torch' and 'note' not in r]
    best = max((r['examples_per_second'] for r in same), default=None)
    row['ratio_to_torch'] = row['examples_per_second'] / best if best and 'note' not in row else None
  return rows


def table(rows, separator='  '):
  """The rows as lines of text; with separator ' | ' as a Markdown table."""
  head = ('case', 'engine', 'convolution', 'clients', 'devices', 'precision', 'examples/s', 'to PyTorch', 'of peak',
          'compile s', 'peak MB')  # fmt: skip
  lines = [head]
  for row in rows:
    seeds = f', {row["seeds"]} seeds {row["seed_axis"]}' if row.get('seed_axis') else ''
    how = row['mapping'] + seeds
    first = (row['case'], row['engine'], row['lowering'], how, str(row['devices']), row['precision'])
    if 'note' in row:
      lines.append((*first, row['note'], *[''] * 4))
      continue
    ratio, compiling = row.get('ratio_to_torch'), row['compile_seconds']
    last = (f'{row["examples_per_second"]:.0f}', f'{ratio:.2f}' if ratio else '', f'{row["share_of_matmul_peak"]:.0%}',
            '' if compiling is None else f'{compiling:.1f}', str(_peak_mb(row) or ''))  # fmt: skip
    lines.append((*first, *last))
  widths = [max(len(line[i]) for line in lines if i == 0 or len(line[i]) < 40) for i in range(len(head))]
  lines = [separator.join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in lines]
  if '|' in separator:
    lines = [f'| {line} |' for line in [lines[0], separator.join('-' * w for w in widths), *lines[1:]]]
  return '\n'.join(lines)


def _peak_mb(row):
  """The most memory in use: of the GPU where there is one, else of the process; None where it has several."""
  return row.get('device_peak_mb') or row['process_peak_mb']


def overview(result):
  """The fastest row of every case and system, as a Markdown table: a benchmark's JSON on one screen."""
  rows = [row for row in result['rows'] if 'note' not in row]
  kinds = {'torch': 'PyTorch', 'torch, files': 'PyTorch, models in files', 'jit loop': 'JAX, a jitted step in a loop'}
  kinds |= {'torch vmap': 'PyTorch, vmap', 'one model': 'one model, a large batch', 'flower': 'Flower'}
  kinds |= {('fedkd', 1): 'fedkd, one device', ('fedkd', result['cores']): 'fedkd, one device per core'}
  kind_of = lambda row: (row['engine'], row['devices']) if row['engine'] == 'fedkd' else row['engine']
  kinds = {kind: name for kind, name in kinds.items() if any(kind_of(row) == kind for row in rows)}
  lines = []
  for case, title in result['cases'].items():
    cells = [title]
    for kind in kinds:
      of_case = [row for row in rows if row['case'] == case and kind_of(row) == kind]
      best = max(of_case, key=lambda row: row['examples_per_second'], default=None)
      cells.append('-' if best is None else _cell(best))
    lines.append(cells)
  return markdown(('case', *kinds.values()), lines)


def overview_of(path):
  """The overview of a file.

  Raises:
    ConfigError: if `launch.bench` has not written it.
  """
  try:
    return overview(json.loads(path.read_bytes()))
  except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
    reason = error.strerror if isinstance(error, OSError) else f'{type(error).__name__}: {error}'
    raise ConfigError(f'file={path} is no benchmark ({reason}); give what fedkd bench --json=FILE wrote') from error


def markdown(head, lines):
  """A Markdown table of cells that are text."""
  return '\n'.join(f'| {" | ".join(line)} |' for line in (head, ('---',) * len(head), *lines))


def _cell(row):
  words = [f'{row["examples_per_second"]:,.0f} examples/s']
  if row['precision'] != 'highest':
    words.append(row['precision'])
  if row['ratio_to_torch'] and row['engine'] != 'torch':
    words.append(f'{row["ratio_to_torch"]:.2f} x')
  if row['engine'] in ('fedkd', 'one model'):
    words.append(f'{row["share_of_matmul_peak"]:.0%} of matmul peak')
    words.append(f'{row["compile_seconds"]:.1f} s to compile')
    words.append(f'{_peak_mb(row):,} MB')
  return ', '.join(words)


def conclusions(suite, rows, bars):
  """The conclusions from a suite, one line each. `bars`: as in `verdicts`."""
  if suite == 'seeds':
    return seeds(rows)
  if suite == 'peers':
    return against(rows)
  promised = verdicts(rows, {name: bar for name, bar in bars.items() if bar})
  return [*promised, *winners(rows), *against(rows)] if suite == 'gpu' else promised


def verdicts(rows, bars):
  """One line per case of `bars` (name -> promised ratio): its fastest row against the promise."""
  for name, bar in bars.items():
    of_case = [r for r in rows if r['case'] == name and r['engine'] == 'fedkd' and r.get('ratio_to_torch')]
    if of_case:
      best = max(of_case, key=lambda r: r['ratio_to_torch'])
      kept = 'kept' if best['ratio_to_torch'] >= bar else 'MISSED'
      how = f'{best["lowering"]}, {best["mapping"]}, {best["devices"]} device(s)'
      share = f'{best["share_of_matmul_peak"]:.0%} of matmul peak'
      at = '' if best['precision'] == 'highest' else f', {best["precision"]}'
      yield f'{name}: {best["ratio_to_torch"]:.2f} x PyTorch (promised {bar}: {kept}), {share}; {how}{at}'


def winners(rows):
  """One line per case and precision: the lowering and mapping that `auto` should be."""
  done = [row for row in rows if 'note' not in row and row['engine'] == 'fedkd']
  for case, precision in dict.fromkeys((row['case'], row['precision']) for row in done):
    of_case = [row for row in done if (row['case'], row['precision']) == (case, precision)]
    best = max(of_case, key=lambda row: row['examples_per_second'])
    speed = f'{best["examples_per_second"]:,.0f} examples/s, {best["share_of_matmul_peak"]:.0%} of matmul peak'
    if 'turns' in best:
      speed += f', {best["turns"]:,} of {best["turns_planned"]:,} client updates in {best["seconds"]:,.0f} s'
      speed += f', {best["turns_per_second"]:,.0f} a second'
    yield f'{case}, {precision}: {best["lowering"]}, {best["mapping"]}: {speed}'


def seeds(rows):
  """One line per case, number and axis of seeds: a round, and compiling, over as many runs one after the other."""
  done = {(row['case'], row['seeds'], row['seed_axis']): row for row in rows if 'note' not in row}
  for (case, many, axis), row in done.items():
    apart = done.get((case, many, 'apart'))
    if axis != 'apart' and apart:
      ratios = [f'{row[name] / apart[name]:.2f} x' for name in ('seconds', 'compile_seconds')]
      yield f'{case}: {many} seeds, {axis}: {ratios[0]} a round, {ratios[1]} compiling of {many} runs'


def measured(*words, limit=None) -> dict:
  """The row that `python -m words` prints as its last line within `limit` seconds, or a note why there is none."""
  command = [sys.executable, '-m', *words]
  try:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
  except subprocess.TimeoutExpired:
    return {'note': f'not measured: more than {limit} s'}
  lines = done.stdout.strip().splitlines()
  if not done.returncode and lines:
    return json.loads(lines[-1])
  reason = next((line for line in reversed(done.stderr.splitlines()) if 'Error' in line), 'the process died')
  return {'note': f'not measured: {reason[:150]}'}


def against(rows):
  """One line per case, precision and other system: the fastest row of fedkd over the fastest of that system."""
  best = {}
  for row in (r for r in rows if 'note' not in r):
    key = row['case'], row['precision'], row['engine']
    best[key] = max(best.get(key, 0), row['examples_per_second'])
  for (case, precision, engine), speed in best.items():
    if engine != 'fedkd' and (case, precision, 'fedkd') in best:
      ratio = best[case, precision, 'fedkd'] / speed
      at = '' if precision == 'highest' else f', {precision}'
      yield f'{case}{at}: fedkd is {ratio:.2f} x {engine}' + (' (SLOWER)' if ratio < 1 else '')


def machine():
  """What the numbers depend on: device, versions, commit."""
  cpuinfo = pathlib.Path('/proc/cpuinfo')
  lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
  names = [line.split(':')[1].strip() for line in lines if line.startswith('model name')]
  versions = {'python': platform.python_version(), 'jax': jax.__version__, 'flax': flax.__version__}
  for name in ('torch', 'flwr'):
    with contextlib.suppress(ImportError):
      versions[name] = importlib.metadata.version(name)
  return {
    'device': jax.devices()[0].device_kind,
    'cpu': names[0] if names else platform.processor(),
    'cores': os.cpu_count(),
    'versions': versions,
    **provenance.commit(pathlib.Path(fedkd.__file__).parent),
    'date': datetime.date.today().isoformat(),
  }


def busy_seconds():
  """CPU seconds that all processes of this machine have used so far; None where /proc/stat is missing."""
  try:
    ticks = [int(word) for word in pathlib.Path('/proc/stat').read_text().split('\n')[0].split()[1:]]
  except OSError:
    return None
  return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf('SC_CLK_TCK')


def wait_for_idle(patience=300):
  """Returns once other processes used less than a tenth of a core for a second, or after `patience` seconds."""
  end = time.monotonic() + patience
  while time.monotonic() < end and (before := busy_seconds()) is not None:
    time.sleep(1)
    if busy_seconds() - before < 0.1:
      return


def main(words=None, program='python -m launch.bench report'):
  """Prints the overview of a file."""
  flags = argparse.ArgumentParser(program, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  flags.add_argument('file', type=pathlib.Path, help='what launch.bench wrote')
  with exits.codes():
    print(overview_of(flags.parse_args(words).file))


if __name__ == '__main__':
  main()
