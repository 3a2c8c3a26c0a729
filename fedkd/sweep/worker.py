"""A process that runs what it is told, one run after the other: `python -m fedkd.sweep.worker`.

Each line of its input is a JSON object, and so is each line that it answers. The process ends with its input, hence
with the one that started it, however that ends: nothing goes on training beside a sweep that was started again.
"""

import gc
import json
import os
import pathlib
import queue
import sys
import threading
from typing import Any

FINGERPRINT = 'fingerprint.json'


def main() -> None:
  """Answers until the input ends."""
  orders: queue.Queue = queue.Queue()
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)  # what a run prints is no answer
  threading.Thread(target=_listen, args=(orders,), daemon=True).start()
  while True:
    answers.write(json.dumps(answer(orders.get())) + '\n')
    answers.flush()
    _forget()


def _forget():
  """Frees the programs of the last run, which no other run of this process finds: its functions are its own."""
  import jax

  jax.clear_caches()
  gc.collect()


def _listen(orders):
  for line in sys.stdin:
    orders.put(json.loads(line))
  os._exit(0)  # the run in progress continues from its newest checkpoint


def answer(order: dict, here: bool = False) -> dict:
  """{'backend'} of a config that can run (order {'check': a run directory}), {} of one that has run ({'run', 'rounds',
  'code'}), or {'reason'}: why it cannot, in one sentence. `here`: in the process of the sweep, which a signal ends."""
  from absl import logging

  from fedkd import errors

  logging.set_verbosity(logging.ERROR)
  known = errors.ConfigError, errors.DivergedError, errors.HostError, errors.StoreError, errors.StoppedError
  try:
    return _check(order['check']) if 'check' in order else _run(order)
  except known as error:
    if here and isinstance(error, errors.StoppedError):
      raise
    return {'reason': str(error)}
  except Exception as error:  # one point's, not the sweep's
    return {'reason': f'{type(error).__name__}: {errors.reason_of(error)}'}


def _check(workdir) -> dict:
  import jax

  from fedkd.experiment import read_config
  from fedkd.experiment.build.assembly import build

  build(read_config(workdir, trust=True), dry=True)
  return {'backend': jax.default_backend()}


def _run(order) -> dict:
  from fedkd import experiment

  config = experiment.read_config(order['run'], trust=True)
  config.rounds = order['rounds'] or config.rounds
  warning = check_fingerprint(pathlib.Path(order['run']), config, order['code'])
  experiment.run(config, order['run'], show=False)
  return warning


def check_fingerprint(workdir: pathlib.Path, config: Any, code: str) -> dict:
  """Keeps which data and which code a run began with; {'warning'} where the code has changed since.

  Raises:
    ConfigError: where the data have changed since.
  """
  from fedkd import files
  from fedkd.errors import ConfigError

  path, now = workdir / FINGERPRINT, {'data': _data_checksum(config), 'code': code}
  if not path.exists():
    files.write_sealed(path, now)
    return {}
  before = files.read_sealed(path)
  if before['data'] != now['data']:
    raise ConfigError(f'{workdir} was begun with other data of data.name={config.data.name!r}; choose another --out')
  return {} if before['code'] == code else {'warning': 'begun with another version of the code'}


_CHECKSUMS: dict[str, str] = {}  # of the data of this process's runs


def _data_checksum(config) -> str:
  from fedkd.config import to_json
  from fedkd.experiment.build.from_config import load_data
  from fedkd.experiment.storage.checkpoint import checksum

  block = json.dumps(to_json(config.data))
  if block not in _CHECKSUMS:
    source = load_data(config)
    _CHECKSUMS[block] = checksum((source.train_image, source.train_label, source.test_image, source.test_label))
  return _CHECKSUMS[block]


if __name__ == '__main__':
  main()
