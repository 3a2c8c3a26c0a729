"""What a run measures of its clients, where some logits are NaN."""

from types import SimpleNamespace

import numpy as np
import pytest

from fedkd import totals
from fedkd.experiment import scoring

NAN = np.nan
DOMAINS = [np.arange(6), np.arange(6, 12)]  # whose test rows are which


def scored(*undefined):
  """Accuracy fields of two clients with a domain each, right on the rows of both, but for some (client, row), where
  logits are NaN."""
  right = np.ones((1, 2, 12), np.float32)
  for client, row in undefined:
    right[0, client, row] = NAN
  correct = lambda state, x, y: {'': np.where(np.asarray(y)[:, None] >= 0, right[:, :, np.asarray(x)[0]], 0.0)}
  parts = SimpleNamespace(
    config=SimpleNamespace(eval_rows=0),
    source=SimpleNamespace(test_label=np.zeros(0), public_test=None),
    splits=[SimpleNamespace(test=DOMAINS, validation=[[], []])],
  )
  state, phase = {'weights': np.zeros(1)}, SimpleNamespace(correct=correct)
  found, rows = scoring._correct(parts, phase, state, np.arange(12), np.zeros(12, int), [DOMAINS])
  return totals.of_domains(found[''], rows, np.array([0, 0]), 1)


@pytest.mark.parametrize(
  ('undefined', 'own', 'others'),
  [
    ([], [1, 1], [1, 1]),
    ([(0, 7)], [1, 1], [NAN, 1]),
    ([(0, 2)], [NAN, 1], [1, 1]),
    ([(0, 2), (1, 2)], [NAN, 1], [1, NAN]),
  ],
)
def test_logits_that_are_nan_count_where_the_row_does(undefined, own, others, monkeypatch):
  for block in (12, 5):  # of rows in a call
    monkeypatch.setattr(scoring, 'EVAL_BLOCK', (1, block))
    fields = scored(*undefined)
    np.testing.assert_array_equal(fields['accuracy_local_per_client'], [own])
    np.testing.assert_array_equal(fields['accuracy_others_per_client'], [others])
    np.testing.assert_array_equal(fields['accuracy_per_client'], np.add([own], [others]) / 2)
