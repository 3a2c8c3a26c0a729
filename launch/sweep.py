"""Runs one config at many points; also the command `fedkd sweep`.

python -m launch.sweep --config=configs/NAME.py[:STRING] --grid='method.alpha=0.1,1' --seeds=0:3 --out=DIR

Exit codes: 2 refused before training, 3 a point failed (the others are done), 130 or 143 on a signal.
"""

from collections.abc import Sequence

from absl import app, flags, logging

from fedkd import errors
from fedkd.config import command_line
from launch import exits

_GRID = flags.DEFINE_string('grid', None, 'FIELD=VALUES;FIELD=log:LOW:HIGH[:COUNT];...')
_OUT = flags.DEFINE_string('out', None, 'The directory of the sweep.')
_SEEDS = flags.DEFINE_string('seeds', '0:3', 'Seeds of every point, FIRST:END or a list.')
_TEST_SEEDS = flags.DEFINE_string('test_seeds', None, 'Other seeds, for the best point; none: it is not tested.')
_SEARCH = flags.DEFINE_string('search', 'grid', 'grid, random, tpe or halving.')
_POINTS = flags.DEFINE_integer('points', None, 'How many points, of random, tpe and halving.')
_JOBS = flags.DEFINE_integer('jobs', 0, 'Runs at once; 0: one a core, on an accelerator one.', lower_bound=0)
_LAUNCHER = flags.DEFINE_string(
  'launcher', 'local', 'local, here (this process), slurm, or debug (slurm without a cluster).'
)
_TRACED = flags.DEFINE_boolean('traced', True, 'Whether points that differ in numbers share a compiled program.')
_SLURM = flags.DEFINE_list('slurm', [], 'PARAMETER=VALUE,... of submitit, such as timeout_min=60.')
_CONFIG = command_line.define()


def parse(argv: Sequence[str]) -> list:
  """Flags, or exit 2 with one sentence."""
  try:
    rest = command_line.parse(argv)
    if len(rest) > 1:
      raise errors.ConfigError(f'argument {rest[1]!r} is not a flag; write --config.FIELD=VALUE or --grid=...')
    for flag, like in (('config', 'configs/quickstart.py'), ('grid', 'method.alpha=0.1,1'), ('out', 'runs/sweep')):
      if not flags.FLAGS[flag].value:
        raise errors.ConfigError(f"give --config, --grid and --out; --{flag} is missing, as in --{flag}='{like}'")
    return rest
  except errors.ConfigError as error:
    return exits.refuse(error)


def slurm_parameters(words: Sequence[str]) -> dict:
  """{'timeout_min': 60} of `timeout_min=60`.

  Raises:
    ConfigError: for a word without `=`.
  """
  pairs = [word.partition('=') for word in words]
  for name, equals, _ in pairs:
    if not equals:
      raise errors.ConfigError(f'slurm has {name!r}, which is not PARAMETER=VALUE; write for example timeout_min=60')
  return {name: int(value) if value.isdigit() else value for name, _, value in pairs}


def main(argv: Sequence[str]) -> None:
  """Runs the sweep and prints its table."""
  del argv
  logging.set_verbosity(logging.ERROR)
  with exits.codes():
    from fedkd.sweep import grid
    from fedkd.sweep.study import sweep

    tests = _TEST_SEEDS.value
    found = sweep(
      _CONFIG.value,
      _GRID.value,
      _OUT.value,
      seeds=grid.numbers(_SEEDS.value, 'seeds'),
      test_seeds=tests if tests is None else () if tests == 'none' else grid.numbers(tests, 'test_seeds'),
      search=_SEARCH.value,
      points=_POINTS.value,
      jobs=_JOBS.value,
      launcher=_LAUNCHER.value,
      traced=_TRACED.value,
      slurm=slurm_parameters(_SLURM.value),
    )
    print(found.table.drop(columns=['point', 'number', 'rounds', 'failed']).to_string(index=False))
    if found.best and found.best.get('test'):
      accuracy = ' '.join('failed' if a is None else f'{100 * a:.2f}' for a in found.best['test'])
      print(f'best by validation: {found.best["point"]}; test accuracy with seeds of its own: {accuracy} %')
    print(f'table, figures and runs: {_OUT.value}')
    if found.failed:
      label, reason = next(iter(found.failed.items()))
      more = f', and {len(found.failed) - 1} more' if len(found.failed) > 1 else ''
      exits.refuse(f'{label} failed{more}: {reason}', 3)


if __name__ == '__main__':
  app.run(main, flags_parser=parse)
