"""Small files of a run: JSON, lines of JSON, directories; and warnings."""

import contextlib
import json
import sys

from fedkd.errors import ConfigError


def read(path) -> list[dict]:
  """The evaluations in a metrics file, oldest first; a line cut off by a crash is left out."""
  rows = []
  if path.exists():
    for line in path.read_text().splitlines():
      with contextlib.suppress(json.JSONDecodeError):
        rows.append(json.loads(line))
  return rows


def cut(path, phase, round):
  """Keeps the evaluations up to `round` of `phase`, so that a resumed run writes each exactly once."""
  kept = [row for row in read(path) if (row['phase'], row['round']) <= (phase, round)]
  partial = path.with_suffix('.tmp')
  partial.write_text(''.join(json.dumps(row) + '\n' for row in kept))
  partial.replace(path)


def append(path, row):
  """Adds one evaluation."""
  with path.open('a') as file:
    file.write(json.dumps(row) + '\n')


def write_json(path, value):
  """Writes JSON atomically."""
  partial = path.with_name(path.name + '.tmp')
  partial.write_text(json.dumps(value, indent=1) + '\n')
  partial.replace(path)


def make(workdir):
  """Makes the run directory.

  Raises:
    ConfigError: if it cannot be made.
  """
  try:
    workdir.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise ConfigError(f'workdir={workdir} cannot be made ({error.strerror}); choose another') from error


def warn(text):
  """A warning on standard error."""
  print(f'fedkd: warning: {text}', file=sys.stderr, flush=True)


def read_json(path):
  """A JSON file of a run directory.

  Raises:
    ConfigError: if it is damaged.
  """
  try:
    return json.loads(path.read_text())
  except ValueError as error:
    raise ConfigError(f'workdir={path.parent}: {path.name} is damaged ({error}); choose another workdir') from error
