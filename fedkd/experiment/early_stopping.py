"""Early stopping: clients whose accuracy no longer improves skip the rest of a phase."""

from typing import Literal, NamedTuple

import numpy as np

from fedkd.checks.ranges import Positive, Share


class EarlyStop(NamedTuple):
  """When a client stops, with Keras's rule: after `patience` evaluations in a row of which none, less `min_delta`,
  beats the best one before it. It makes no further updates in the phase, which ends when all clients have stopped,
  unless the server goes on alone (`Server.alone`).

  watch: 'validation_accuracy'; or 'accuracy' or 'accuracy_public', on the test set or that of the public data. Those
    two leak the test set into training: for methods whose published code did so (FedMD, Li and Wang, 2019).
  """

  watch: Literal['validation_accuracy', 'accuracy', 'accuracy_public']
  patience: Positive = 3
  min_delta: Share = 0.0


def update(early, patience_state, accuracy) -> dict:
  """The patience state of a phase, {'best', 'waited'} per seed and client, after one more evaluation.

  Args:
    early: `EarlyStop`.
    patience_state: after the evaluations before; {} at the start of a phase.
    accuracy: [seeds, K].

  Returns:
    JSON-ready lists, because a checkpoint carries them.
  """
  now = np.asarray(accuracy)
  best, waited = (
    np.asarray(patience_state.get(name, np.full(now.shape, first))) for name, first in (('best', -1.0), ('waited', 0))
  )
  training = waited < early.patience
  better = training & (now - early.min_delta > best)
  return {
    'best': np.where(better, now, best).tolist(),
    'waited': np.where(better, 0, waited + training).tolist(),
  }


def stopped(early, patience_state) -> np.ndarray | None:
  """Who has stopped, bool[seeds, K]; None where nothing is known."""
  return np.asarray(patience_state['waited']) >= early.patience if patience_state else None


def slots(participants, ids, stopped) -> np.ndarray:
  """Slots of a group for every seed, int[seeds, ...], without those that have stopped.

  Args:
    participants: int[...], rows of the group, -1 for an empty slot.
    ids: int[n], its clients; rows from n on are padding.
    stopped: bool[seeds, clients].
  """
  rows = stopped[:, ids]
  taken = (participants >= 0) & (participants < len(ids))
  return np.where(taken & rows[:, np.where(taken, participants, 0)], -1, participants)
