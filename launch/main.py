"""Runs one experiment; also the command `fedkd run`.

python -m launch.main --config=configs/NAME.py[:PROFILE,method=...,zoo=...] --workdir=DIR [--config.FIELD=VALUE ...]

Exit codes: 2 refused before training, 3 stopped while training (checkpoint kept), 130 or 143 on a signal.
"""

import contextlib
import copy
import functools
import gc
from collections.abc import Sequence

from absl import app, flags, logging

from fedkd import errors
from launch import exits

_WORKDIR = flags.DEFINE_string('workdir', None, 'The run directory.')
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print parameters, message sizes and memory, and exit.')
_HOSTS = flags.DEFINE_string('hosts', '', 'HOST:PORT,COUNT,INDEX: this process is one of several (launch/cluster.sh).')
_PROFILE_DIR = flags.DEFINE_string('profile_dir', None, "Write a trace of the run there, for JAX's profiler.")


def parse(argv: Sequence[str]) -> list:
  """Flags, or exit 2 with one sentence."""
  try:
    check_known(argv)
    collect_less_garbage()
    from fedkd.config import command_line  # with JAX and Flax, a second or more

    if 'config' not in flags.FLAGS:
      command_line.define()
    rest = command_line.parse(argv)
    if len(rest) > 1:
      raise errors.ConfigError(f'argument {rest[1]!r} is not a flag; write --config.FIELD=VALUE')
    if flags.FLAGS.config is None:
      raise errors.ConfigError('give --config and --workdir, as in --config=configs/quickstart.py --workdir=runs/try')
    if flags.FLAGS['hosts'].present and not _HOSTS.value:
      raise errors.ConfigError('--hosts= is empty; give HOST:PORT,COUNT,INDEX, or leave it out for one host')
    if not _WORKDIR.value and not _DRY_RUN.value:
      raise errors.ConfigError('give --workdir, the run directory, as in --workdir=runs/try')
    return rest
  except errors.ConfigError as error:
    return exits.refuse(error)


def check_known(argv: Sequence[str]) -> None:
  """Checks the flags that are no fields of the config, before anything slow is imported.

  Raises:
    ConfigError: for one that does not exist.
  """
  known = copy.deepcopy(flags.FLAGS)
  if 'config' not in known:
    flags.DEFINE_string('config', None, 'A name to suggest.', known)
  try:
    known([word for word in argv if not word.lstrip('-').startswith(('config', 'noconfig'))])
  except flags.Error as error:
    raise errors.ConfigError(' '.join(str(error).split())) from error


def collect_less_garbage() -> None:
  """Imports and tracing create millions of long-lived objects, which Python's garbage collector would scan repeatedly:
  an eighth of the processor time of a refusal, a twentieth of that of a short run."""
  gc.freeze()
  gc.set_threshold(100_000, 50, 100)


def main(argv: Sequence[str]) -> None:
  """Runs, and turns the errors of fedkd into exit codes."""
  del argv
  logging.set_verbosity(logging.ERROR)  # JAX logs every platform that it does not find
  import jax

  from fedkd import experiment
  from fedkd.experiment import dry_run
  from fedkd.experiment.hosts import devices, hosts

  config = flags.FLAGS.config
  collect_less_garbage()
  with exits.codes():
    if _HOSTS.value:
      hosts.join(_HOSTS.value)
    if _DRY_RUN.value:
      print(dry_run.text(config, _WORKDIR.value))
      return
    devices.request(config.devices)  # before the profiler initialises JAX's devices
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # calls of Python functions would hide the device's work
    trace = functools.partial(jax.profiler.trace, profiler_options=options)
    with trace(_PROFILE_DIR.value) if _PROFILE_DIR.value else contextlib.nullcontext():
      summary = experiment.run(config, _WORKDIR.value)
    print(outcome(summary))
    print(f'figures and metrics: {_WORKDIR.value}')


def outcome(summary: dict) -> str:
  """What a finished run has come to, in a line."""
  accuracy = ' '.join(f'{100 * a:.2f}' for a in summary['final'])
  per_seed = ' (per seed)' if len(summary['final']) > 1 else ''
  return f'{summary["method"]}: test accuracy {accuracy} %{per_seed}, {summary["seconds"]:.0f} s of training'


if __name__ == '__main__':
  app.run(main, flags_parser=parse)
