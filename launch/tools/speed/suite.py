"""The rows of a suite, each measured in a process of its own."""

import json
import pathlib
import sys
import tempfile

import jax

from launch.tools.speed import machine, report
from launch.tools.speed.cases import CASES
from launch.tools.speed.clock import BUDGET, ROW_LIMIT
from launch.tools.speed.measurement import measure
from launch.tools.speed.rows import Config


def spawn(name: str, config: Config, budget: float) -> dict:
  """`measure` in a process of its own. On a CPU: waits until other processes are idle, and repeats the measurement, up
  to three times, if they used a fifth of a core (except for Flower, which runs other processes itself); returns the
  least disturbed row."""
  command = ['launch.bench', '--row', json.dumps([name, *config]), f'--seconds={budget}']
  rows = []
  for _ in range(3 if config.backend == 'cpu' else 1):
    machine.wait_for_idle(5 if budget < BUDGET or config.backend == 'gpu' else 120)
    rows.append({'case': name, **config._asdict(), **machine.measured(*command, limit=ROW_LIMIT)})
    if 'note' in rows[-1] or (rows[-1]['busy_elsewhere'] or 0) < 0.2:
      break
  return min(rows, key=lambda row: ('note' in row, row.get('busy_elsewhere') or 0))


def one_row(name: str, config: Config, budget: float) -> None:
  """Measures a row in this process, whose devices and caches it sets up, and prints it."""
  if jax.config.jax_platforms != 'cuda' and config.devices > 1:
    jax.config.update('jax_num_cpu_devices', config.devices)
  if config.engine.startswith('torch'):
    jax.config.update('jax_platforms', 'cpu')  # the GPU, and its libraries, are PyTorch's
  with tempfile.TemporaryDirectory() as cache:
    if config.seed_axis:  # runs find each other's programs, as those of `fedkd.experiment`
      jax.config.update('jax_compilation_cache_dir', cache)
    print(json.dumps(measure(name, CASES[name], config, budget)))


def run(suite: str, table: dict[str, list[Config]], budget: float, path: str | None) -> tuple:
  """(rows, verdicts) of a suite's rows: {case: its rows}, each repeated for about `budget` seconds per net.

  They are written to `path`, unless it is None, after every row: a long measurement that is stopped keeps what it has.
  """
  about, rows, result = machine.description(), [], {'verdicts': []}
  bars, titles = {n: CASES[n].bar for n in table}, {n: CASES[n].title for n in table}
  for name, configs in table.items():
    for config in configs:
      rows.append(spawn(name, config, budget))
      print(report.table(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
      result = {**about, 'suite': suite, 'cases': titles, 'rows': report.compare(rows)}
      result['verdicts'] = list(report.conclusions(suite, rows, bars))
      if path:
        pathlib.Path(path).write_text(json.dumps(result, indent=1) + '\n')
  return rows, result['verdicts']
