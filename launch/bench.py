"""Speed of local training, measured through the library's own code; also the command `fedkd bench`.

  python -m launch.bench --suite=cpu --json=results/bench_cpu.json     # about 40 minutes on two cores
  python -m launch.bench --suite=gpu --json=results/bench_gpu.json     # on a machine with a GPU, hours (see below)
  python -m launch.bench --suite=peers --json=results/bench_peers.json # compared with other systems
  python -m launch.bench --suite=seeds --json=results/bench_seeds.json # seeds as one run and apart, about 5 minutes
  python -m launch.bench --suite=cpu --cases=lenet --quick             # the shipped settings only
  python -m launch.bench report results/bench_cpu.json                 # a finished benchmark as Markdown
  python -m launch.bench scale|stages --help                           # many clients or devices; where the time goes

A row is one case under one lowering of the convolution, one way of mapping the clients, a number of devices and a
precision. Every row runs in a process of its own: `fedkd.round.client_updates` of one round, compiled once, warmed up
once, median of repetitions. Rows of engine `torch` are `torch_loop.py` in `launch/tools/speed/` (not measured where
PyTorch is missing).

The GPU suite has nets x 10, 100, 1 000 clients x lowerings x mappings x precisions; in addition PyTorch's loop over
clients, `torch.func.vmap` (`stacked.py`) and one model with a large batch, the ceiling; and the 50 000 client updates
of FedHe's asynchronous run (`phases.py`), or as many as ten minutes allow. What does not fit into the GPU, or takes too
long, becomes a row with a note. About 300 rows of half a minute to eight minutes each:
expect three to six hours (an estimate from nine rows on an H200, 38 seconds each), `--quick` about half of that;
`--cases=lenet-100 --precisions=highest --seconds=1` takes seven minutes. The file is written after every row.

The suite of seeds measures 1, 2 and 3 seeds as one program, mapped by a loop or by vmap, against as many runs one after
the other, on the default device, with an empty compilation cache for each row.
"""

import argparse
import importlib
import json
import os
import pathlib
import sys
from collections.abc import Sequence

import jax

from launch import exits
from launch.tools.speed import report, suite
from launch.tools.speed.cases import CASES, SUITES
from launch.tools.speed.clock import BUDGET
from launch.tools.speed.rows import PRECISIONS, Config, configs

COMMANDS = ('scale', 'stages', 'report')
__path__ = [str(pathlib.Path(__file__).parent / 'tools' / 'speed')]  # `python -m launch.bench.scale`, as it was once


def parsed(words: Sequence[str] | None, program: str) -> argparse.Namespace:
  """The command line of a suite."""
  flags = argparse.ArgumentParser(program, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  flags.add_argument('--suite', choices=list(SUITES), default='cpu')
  flags.add_argument('--json', help='write the results here')
  flags.add_argument('--cases', default='', help='instead of all cases of the suite, of ' + ', '.join(CASES))
  flags.add_argument('--quick', action='store_true', help='the shipped lowering and mapping only, short repetitions')
  flags.add_argument('--precisions', default=','.join(PRECISIONS), help='only these (suite gpu)')
  flags.add_argument('--seconds', type=float, help=f'of repetitions per net; default {BUDGET}, with --quick 1')
  flags.add_argument('--markdown', action='store_true', help='print the table as Markdown')
  flags.add_argument('--row', help=argparse.SUPPRESS)
  args = flags.parse_args(words)
  args.cases = args.cases.split(',') if args.cases else SUITES[args.suite]
  if unknown := [name for name in args.cases if name not in CASES]:
    flags.error(f'unknown cases {", ".join(unknown)}; choose from {", ".join(CASES)}')
  args.precisions = args.precisions.split(',')
  if unknown := [name for name in args.precisions if name not in PRECISIONS]:
    flags.error(f'unknown precisions {", ".join(unknown)}; choose from {", ".join(PRECISIONS)}')
  args.seconds = args.seconds or (1 if args.quick else BUDGET)
  return args


def main(words: Sequence[str] | None = None, program: str = 'python -m launch.bench') -> None:
  """Starts a subcommand, measures a suite, or with --row one of its rows (in the subprocess of a suite)."""
  words = sys.argv[1:] if words is None else words
  if words and not words[0].startswith('-'):
    if words[0] not in COMMANDS:
      exits.refuse(f'benchmark {words[0]!r} is unknown; choose one of {", ".join(COMMANDS)}, or give --suite')
    importlib.import_module(f'launch.tools.speed.{words[0]}').main(words[1:], f'{program} {words[0]}')
    return
  args = parsed(words, program)
  # On a GPU this process and its rows share the memory: allocate on demand.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  os.environ.setdefault('XLA_CLIENT_MEM_FRACTION', '0.95')
  if args.row:
    name, *config = json.loads(args.row)
    suite.one_row(name, Config(*config), args.seconds)
    return
  if args.suite == 'gpu' and jax.default_backend() != 'gpu':
    print('no GPU: JAX finds none here; install jax[cuda13] on a machine with one, or use --suite=cpu', file=sys.stderr)
    sys.exit(2)
  table = {name: configs(args.suite, CASES[name], args.quick, args.precisions) for name in args.cases}
  rows, verdicts = suite.run(args.suite, table, args.seconds, args.json)
  print(report.table(rows, ' | ' if args.markdown else '  '), *verdicts, sep='\n')


if __name__ == '__main__':
  main()
