"""Early stopping: clients whose accuracy no longer rises sit out the rest of a phase."""

from typing import NamedTuple

import numpy as np

WATCH = ('validation_accuracy', 'accuracy', 'accuracy_public')


class EarlyStop(NamedTuple):
  """When a client stops, with Keras's rule: after `patience` evaluations in a row of which none, less `min_delta`,
  beats the best one before it. It takes no more turns in the phase, which ends when everybody has stopped.

  watch: 'validation_accuracy'; or 'accuracy' or 'accuracy_public', on the test set or that of the public data. Those
    two leak the test set into training: for codes that did so (FedMD, Li and Wang, 2019).
  """

  watch: str
  patience: int = 3
  min_delta: float = 0.0


def update(early, memory, accuracy) -> dict:
  """What is remembered of a phase, {'best', 'waited'} per seed and client, after one more evaluation.

  Args:
    early: `EarlyStop`.
    memory: of the evaluations before; {} at the start of a phase.
    accuracy: [seeds, K].

  Returns:
    JSON-ready lists, because a checkpoint carries them.
  """
  now = np.asarray(accuracy)
  best, waited = (
    np.asarray(memory.get(name, np.full(now.shape, first))) for name, first in (('best', -1.0), ('waited', 0))
  )
  training = waited < early.patience
  better = training & (now - early.min_delta > best)
  return {
    'best': np.where(better, now, best).tolist(),
    'waited': np.where(better, 0, waited + training).tolist(),
  }


def stopped(early, memory) -> np.ndarray | None:
  """Who has stopped, bool[seeds, K]; None where nothing is known."""
  return np.asarray(memory['waited']) >= early.patience if memory else None


def slots(participants, ids, stopped) -> np.ndarray:
  """Seats of a group for every seed, int[seeds, ...], without those that have stopped.

  Args:
    participants: int[...], rows of the group, -1 for an empty slot.
    ids: int[n], its clients; rows behind them stand for nobody.
    gone: bool[seeds, clients].
  """
  rows = stopped[:, ids]
  sits = (participants >= 0) & (participants < len(ids))
  return np.where(sits & rows[:, np.where(sits, participants, 0)], -1, participants)
