"""Small files of a run: JSON with a checksum, lines of JSON each with a checksum, directories; and warnings.

What is written here is on the disk before the function returns, and is either there or not: a file is written beside
its place and renamed. A checksum stands in the file itself, since nothing can end a process between the two. Files of
older versions, which have none, are read as they are.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import re
import sys
from typing import NamedTuple

from fedkd.errors import ConfigError, in_a_sentence

_SEAL = re.compile(rb',\n ".{6}": ".{64}"\n}\n?\Z', re.DOTALL)
_LINE_SEAL = ', "sha256": "%s"}'
# What a run makes again when it is started again: an evaluation where a checkpoint is older.
REPAIRED = {'metrics.jsonl': 'what can be repaired', 'split.npz': 'it', 'summary.json': 'it'}
WEIGHTS = 'model.safetensors'  # of an exported model


def with_string(path: str) -> tuple[str, str, str]:
  """('FILE', ':', 'STRING') of 'FILE:STRING', the last two empty without one; the colon of a drive, C:\\FILE, is of the
  file."""
  drive, rest = (path[:2], path[2:]) if re.match(r'[A-Za-z]:[\\/]', path) else ('', path)
  file, colon, string = rest.partition(':')
  return drive + file, colon, string


def sync(folder):
  """Makes the names of a directory durable: new ones, and those that a rename has changed."""
  with contextlib.suppress(PermissionError):  # one may write into a directory that one may not read
    opened = os.open(folder, os.O_RDONLY)
    try:
      os.fsync(opened)
    except OSError as error:
      if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot
        raise
    finally:
      os.close(opened)


def opener(path, flags) -> int:
  """For `open`: what a run writes goes into its own directory, not where somebody's symbolic link of that name leads.

  Raises:
    OSError: if `path` is a symbolic link.
  """
  try:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)
  except OSError as error:
    if error.errno == errno.ELOOP:
      error.strerror = f'{os.path.basename(path)} is a symbolic link'
    raise


def write(path, content):
  """Writes bytes atomically."""
  partial = path.with_name(path.name + '.tmp')
  extend(partial, content, 'wb')
  partial.replace(path)
  sync(path.parent)


def extend(path, content, mode='ab'):
  """Adds bytes to a file."""
  with open(path, mode, buffering=0, opener=opener) as file:  # what a full disk refuses is not tried again at exit
    while content:
      content = content[file.write(content) :]
    os.fsync(file.fileno())


def write_json(path, value):
  """Writes JSON atomically."""
  write(path, (json.dumps(value, indent=1) + '\n').encode())


def write_sealed(path, value):
  """Writes a JSON object atomically, with a last field `sha256`: the checksum of the text before it."""
  body = json.dumps(value, indent=1).encode()[: -len('\n}')]
  write(path, body + _seal(body))


def _seal(body) -> bytes:
  return f',\n "sha256": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()


def read_sealed(path, field='workdir') -> dict:
  """The object that `write_sealed` wrote, or one that has no checksum, of an older run.

  Raises:
    ConfigError: if it is damaged or cannot be read; `field` is that of the config that names its directory.
  """
  damaged = lambda error: (
    f'{field}={path.parent}: {path.name} is damaged ({getattr(error, "strerror", None) or error}); '
    f'{remedy(path.name, field)}'
  )
  with in_a_sentence(damaged):
    content = path.read_bytes()
    value = json.loads(content)
    sealed = _SEAL.search(content)
    if not isinstance(value, dict):
      raise ValueError('it is not a JSON object')
    if sealed or 'sha256' in value:
      body = content[: sealed.start()] if sealed else content
      if content.rstrip(b'\n') != (body + _seal(body)).rstrip(b'\n'):
        raise ValueError('its contents do not match its checksum')
      del value['sha256']
  return value


def remedy(name, field='workdir') -> str:
  """What to do about a damaged file of a run; `field`: of the config, that names its directory."""
  if name in REPAIRED:
    return f'start the run again, which repairs {REPAIRED[name]}, or restore the file'
  return f'restore the file, or choose another {field}'


def checksum(path) -> str:
  """The SHA-256 of a file; '' if it is missing or cannot be read."""
  try:
    return hashlib.sha256(path.read_bytes()).hexdigest()
  except OSError:
    return ''


def changed(folder, digests: dict, checksum_of=checksum) -> str:
  """The first of the files {name: checksum} in `folder` that is not what it was then; '' if all are.

  checksum_of: how a file's checksum is found, for callers that remember those of files that have not changed.
  """
  return next((name for name, then in digests.items() if checksum_of(folder / name) != then), '')


def append(path, row, after) -> str:
  """Adds one evaluation.

  Args:
    path: `metrics.jsonl`.
    row: JSON-ready.
    after: checksum of the line before, '' for the first line.

  Returns:
    The checksum of the line, which enters that of the next: it stands for the whole file up to here.
  """
  text, sealed = _line(json.dumps(row), after)
  extend(path, text.encode() + b'\n')
  return sealed


def _line(body, after) -> tuple:
  """A line with its checksum, and the checksum."""
  sealed = hashlib.sha256((after + body).encode()).hexdigest()[:16]
  return body[:-1] + _LINE_SEAL % sealed, sealed


def _parse(line, after) -> tuple:
  """(evaluation, its text without checksum) of a line.

  Raises:
    ValueError: if it is damaged, or does not follow the line with the checksum `after`.
  """
  text = line.decode()
  row, body = json.loads(text), text
  if text.endswith('"}'):  # the last field of an evaluation is a number, and text only where it is the checksum
    body = text[: -len(_LINE_SEAL % ('0' * 16))] + '}'
    if text != _line(body, after)[0]:
      raise ValueError('its contents do not match its checksum')
    del row['sha256']
  if not isinstance(row, dict) or not all(isinstance(row.get(name), int) for name in ('phase', 'round')):
    raise ValueError('it is not an evaluation')
  return row, body


class Evaluations(NamedTuple):
  """A metrics file as far as it is intact."""

  rows: list
  texts: list  # of the rows, without their checksums
  sums: list  # their checksums
  damage: str  # what is wrong with the line after them; '' if there is none, or a crash cut it off


def evaluations(path) -> Evaluations:
  """What can be read of a metrics file; nothing if it is missing."""
  found, last = Evaluations([], [], [], ''), (-1, -1)
  try:
    lines = path.read_bytes().split(b'\n') if path.exists() else []
  except OSError as error:
    return found._replace(damage=str(error.strerror))
  for number, line in enumerate(lines, 1):
    ended, after = number < len(lines), found.sums[-1] if found.sums else ''
    try:
      row, body = _parse(line, after)
      if (row['phase'], row['round']) <= last:
        raise ValueError('it is not of a later round than the line before')
    except (ValueError, RecursionError) as error:
      return found._replace(damage=f'line {number}: {str(error)[:120]}' if ended else '')
    last = row['phase'], row['round']
    for column, value in zip(found[:3], (row, body, _line(body, after)[1]), strict=True):
      column.append(value)
  return found


def read(path) -> list[dict]:
  """The evaluations in a metrics file, oldest first; a line cut off by a crash is left out.

  Raises:
    ConfigError: if a line is damaged.
  """
  found = evaluations(path)
  if found.damage:
    raise ConfigError(f'{path} is damaged ({found.damage}); {remedy(path.name)}')
  return found.rows


def cut(path, count) -> str:
  """Keeps the first `count` evaluations, so that a resumed run writes each once; returns the checksum of the last."""
  lines, after = [], ''
  for body in evaluations(path).texts[:count]:
    text, after = _line(body, after)
    lines.append(text + '\n')
  write(path, ''.join(lines).encode())
  return after


def is_exported(folder) -> bool:
  """Whether a directory is an exported model, which has a config.json as a run has."""
  return pathlib.Path(folder, WEIGHTS).exists()


def why_no_run(folder) -> str:
  """Why a directory is not that of a run; '' if it is."""
  if is_exported(folder):
    return 'it is an exported model, which fedkd.load_exported loads'
  return '' if pathlib.Path(folder, 'config.json').exists() else 'no config.json'


def runs_below(folder) -> list:
  """The run directories at or below a folder, sorted; runs inside of runs are none."""
  found = []
  for place, folders, _ in os.walk(folder):
    if not why_no_run(place):
      found.append(pathlib.Path(place))
      folders.clear()
    folders.sort()
  return found


@contextlib.contextmanager
def writing(what):
  """Around what writes to a place before training; `what`: the field of the config that names it, and its value.

  Raises:
    ConfigError: for what the system refuses.
  """
  try:
    yield
  except OSError as error:
    raise ConfigError(f'{what} cannot be written ({error.strerror}); choose another') from error


def make(folder, field='workdir'):
  """Makes a directory, that of a run or another.

  Raises:
    ConfigError: if it cannot be made; `field` names it.
  """
  with writing(f'{field}={folder}'):
    if not folder.is_dir():
      folder.mkdir(parents=True, exist_ok=True)
      sync(folder.parent)


def warn(text):
  """A warning on standard error."""
  print(f'fedkd: warning: {text}', file=sys.stderr, flush=True)
