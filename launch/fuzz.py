"""Fuzzes every reader of untrusted files and text.

python -m launch.fuzz --target=npz --inputs=100000 --seed=0 [--json=FILE]

An input either is taken or is refused with a ConfigError of one sentence; any other exception, a crash of C code, more
than 4 GB beyond what the program itself takes, or more than ten seconds is a finding. Inputs are made and tried in a
worker process, from the seed and their number alone: a finding names the number, and `--first=NUMBER --inputs=1` tries
it again. `--target=all` goes through all targets, with the given number of inputs each.
"""

import os
import pathlib
import time

from absl import app, flags

from launch.tools.fuzz import trials

_TARGET = flags.DEFINE_string('target', 'all', 'What is tried: a name of `targets()`, or all.')
_INPUTS = flags.DEFINE_integer('inputs', 1000, 'How many inputs, of each target.')
_SEED = flags.DEFINE_integer('seed', 0, 'Of the inputs.')
_FIRST = flags.DEFINE_integer('first', 0, 'Number of the first input.')
_JSON = flags.DEFINE_string('json', None, 'Where the counts and findings go; those of other targets there stay.')


def main(argv):
  """Prints a line per target, and every finding."""
  del argv
  os.environ.setdefault('JAX_PLATFORMS', 'cpu')
  found = {}
  for name in trials.targets() if _TARGET.value == 'all' else [_TARGET.value]:
    begun = time.monotonic()
    found[name] = one = trials.fuzz(name, _INPUTS.value, _SEED.value, _FIRST.value)
    print(
      f'{name}: {one["inputs"]:,} inputs in {time.monotonic() - begun:.0f} s, {one["taken"]:,} taken, '
      f'{one["refused"]:,} refused, {len(one["findings"])} findings; slowest {one["slowest"]} s, at most '
      f'{one["peak"] / 1e6:,.0f} MB',
      flush=True,
    )
    for number, text in one['findings']:
      print(f'  {number}: {text}', flush=True)
  if _JSON.value:
    trials.write(pathlib.Path(_JSON.value), {name: {'seed': _SEED.value, **one} for name, one in found.items()})


if __name__ == '__main__':
  app.run(main)
