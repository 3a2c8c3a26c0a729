"""Early stopping: clients whose accuracy no longer rises sit out the rest of a phase."""

from typing import NamedTuple

import numpy as np

from fedkd import config as configs
from fedkd.errors import ConfigError

WATCH = ('validation_accuracy', 'accuracy', 'accuracy_public')


class EarlyStop(NamedTuple):
  """When a client stops, with Keras's rule: after `patience` evaluations in a row of which none beats the best one
  before it by more than `min_delta`. It keeps its last weights. A phase ends when everybody has stopped.

  watch: 'validation_accuracy'; or 'accuracy' or 'accuracy_public', on the test set or that of the public data. Those
    two leak the test set into training: for papers that did so (FedMD, Li and Wang, 2019). The metric `turns` goes on
    counting all seats of the plan.
  """

  watch: str
  patience: int = 3
  min_delta: float = 0.0


def parse(fields, config, source) -> EarlyStop | None:
  """The `early_stop` of a phase, or None if its `watch` is missing or ''.

  Raises:
    ConfigError: for a field or a value that cannot be.
  """
  configs.refuse_unknown(fields, EarlyStop._fields, 'early_stop')
  if not fields.get('watch'):
    return None
  early = EarlyStop(**fields)
  if early.watch not in WATCH:
    raise ConfigError(f'early_stop.watch={early.watch!r} is unknown; choose one of {", ".join(WATCH)}')
  if early.patience < 1 or early.min_delta < 0:
    raise ConfigError(
      f'early_stop has patience={early.patience} and min_delta={early.min_delta}; give at least 1, and at least 0'
    )
  if early.watch == 'validation_accuracy' and not config.data.validation:
    raise ConfigError("early_stop.watch='validation_accuracy' needs held-out rows; set data.validation above 0")
  if early.watch == 'accuracy_public' and source.public_test is None:
    raise ConfigError("early_stop.watch='accuracy_public' needs the test set of public data; set data.public")
  for field, usual in (('client_store', ''), ('eval_clients', 0)):
    if config[field] != usual:
      raise ConfigError(
        f'{field}={config[field]!r} does not go with early_stop, which needs all clients; set it to {usual!r}'
      )
  return early


def stopped(early, history) -> np.ndarray:
  """Who has stopped, bool[seeds, K], after the evaluations `history` [E, seeds, K]."""
  best, waited = np.full(history.shape[1:], -np.inf), np.zeros(history.shape[1:], int)
  out = np.zeros(history.shape[1:], bool)
  for now in history:
    better = now > best + early.min_delta
    best = np.where(better, now, best)
    waited = np.where(better, 0, waited + 1)
    out |= waited >= early.patience
  return out


def seats(who, ids, gone) -> np.ndarray:
  """Seats of a group for every seed, int[seeds, ...], without those that have stopped.

  Args:
    who: int[...], rows of the group, -1 for an empty seat.
    ids: int[n], its clients; rows behind them stand for nobody.
    gone: bool[seeds, clients].
  """
  rows = gone[:, ids]
  sits = (who >= 0) & (who < len(ids))
  return np.where(sits & rows[:, np.where(sits, who, 0)], -1, who)
