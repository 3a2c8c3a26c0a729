"""What runs survive and what is refused: the tables of `launch.crash --json=FILE` and `launch.fuzz --json=FILE`."""

import json
import pathlib

FAULTS = {
  'kill': 'killed before an operation on a file',
  'kills': 'killed at one to three random operations in a row',
  'timed': 'killed after a random time, also while compiling',
  'full': 'the disk is full from an operation on',
  'read-only': 'the file system is read-only from an operation on',
  'broken': 'input/output errors from an operation on',
  'damage': 'a file flipped in a bit, cut in half, emptied, swapped with that of another run, deleted',
  'paused': 'stopped for three seconds',
  'clock': 'the wall clock a day off, times of files from 1970 and 2100',
  'starts': 'many starts at once on one directory',
  'limits': 'few file descriptors, small files',
  'pair': 'one of two hosts killed',
  'seen': 'read before an operation on a file: a result, a frame, a model',
  'watched': 'read 20 times a second while it runs, is killed and goes on',
}
EACH = ('kill', 'full', 'read-only', 'broken')  # at one operation after the other


def table(path) -> str:
  """Markdown, a line per fault over all runs of the harness.

  Args:
    path: the JSON file of `launch.crash`.
  """
  found = json.loads(pathlib.Path(path).read_text())
  titles = 'what happens', 'runs', 'points, of all operations', 'ends with the same bits', 'refused in one sentence'
  lines = [f'| {" | ".join(titles)} | anything else |']
  lines += ['| --- | --- | --- | --- | --- | --- |']
  for fault, words in FAULTS.items():
    of_runs = {name: faults[fault] for name, faults in found['cases'].items() if fault in faults}
    if of_runs:
      add = lambda key, of_runs=of_runs: sum(figures[key] for figures in of_runs.values())
      points = f'{add("points"):,}' + (f' of {add("operations"):,}' if fault in EACH else '')
      lines.append(
        f'| {words} | {", ".join(of_runs)} | {points} | {add("equal"):,} | {add("refused"):,} | {add("other"):,} |'
      )
  every = [figures for faults in found['cases'].values() for figures in faults.values()]
  slowest, seconds = max(one['slowest'] for one in every), sum(one['seconds'] for one in every)
  points = sum(one['points'] for one in every)
  lines += ['', f'{points:,} points in {seconds / 60:.0f} minutes on {found["machine"]}; the slowest start after a']
  lines[-1] += f' fault took {slowest:.0f} s.'
  return '\n'.join(lines) + '\n'


def fuzzed(path) -> str:
  """Markdown, a line per target of the random inputs.

  Args:
    path: the JSON file of `launch.fuzz`.
  """
  found = json.loads(pathlib.Path(path).read_text())['targets']
  lines = ['| target | inputs | taken | refused in one sentence | anything else | slowest, s | most memory, MB |']
  lines += ['| --- | --- | --- | --- | --- | --- | --- |']
  for name, one in found.items():
    counts = one['inputs'], one['taken'], one['refused'], len(one['findings'])
    numbers = ' | '.join(f'{count:,}' for count in counts)
    lines.append(f'| {name} | {numbers} | {one["slowest"]} | {one["peak"] / 1e6:,.0f} |')
  total = sum(one['inputs'] for one in found.values())
  limits = 'the limits are 10 s and 4,000 MB beyond what the program takes'
  return '\n'.join([*lines, '', f'{total:,} inputs; {limits}.', ''])
