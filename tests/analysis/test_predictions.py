"""What predictions are like, counted one by one."""

import itertools

import jax
import numpy as np
import pytest

from fedkd import analysis, experiment

RANDOM = np.random.default_rng(0)
K, N, C = 3, 50, 4
LOGITS = RANDOM.normal(size=(K, N, C)) * 3
Y = RANDOM.integers(0, 3, N)  # class 3 has no example
PREDICTED = LOGITS.argmax(-1)


def test_confusion_counts_every_example_once():
  counts = analysis.confusion(PREDICTED, Y, C)
  for k, true, other in itertools.product(range(K), range(C), range(C)):
    assert counts[k, true, other] == sum(p == other and t == true for p, t in zip(PREDICTED[k], Y, strict=True))
  np.testing.assert_array_equal(analysis.confusion(PREDICTED[1], Y, C), counts[1])


def test_accuracy_per_class():
  accuracy = analysis.per_class(PREDICTED, Y, C)
  for k, c in itertools.product(range(K), range(3)):
    assert accuracy[k, c] == np.mean(PREDICTED[k][c == Y] == c)
  assert np.isnan(accuracy[:, 3]).all()


def test_calibration_error_bin_by_bin():
  for k in range(K):
    p = np.asarray(jax.nn.softmax(LOGITS[k])).max(-1)
    total = 0.0
    for b in range(15):
      here = (p > b / 15) & (p <= (b + 1) / 15)
      total += here.mean() * abs((PREDICTED[k] == Y)[here].mean() - p[here].mean()) if here.any() else 0.0
    assert analysis.calibration_error(LOGITS, Y)[k] == pytest.approx(total, abs=1e-6)
  sure = np.eye(C)[Y] * 100
  assert analysis.calibration_error(sure, Y) == pytest.approx(0)


def test_disagreement_of_pairs():
  found = analysis.disagreement(PREDICTED)
  for i, j in itertools.product(range(K), range(K)):
    assert found[i, j] == np.mean(PREDICTED[i] != PREDICTED[j])


def test_accuracy_on_own_and_on_others_rows():
  owner = np.where(np.arange(N) < 40, np.arange(N) % 2, -1)  # client 2 owns none
  found = analysis.across(PREDICTED, Y, owner)
  for i, j in itertools.product(range(K), range(2)):
    assert found[i, j] == pytest.approx(np.mean((PREDICTED[i] == Y)[owner == j]))
  assert np.isnan(found[:, 2]).all()


def test_what_does_not_fit_is_refused():
  with pytest.raises(ValueError, match=r'^y has shape \[49\] for 50 predictions'):
    analysis.confusion(PREDICTED, Y[1:], C)


@pytest.mark.parametrize(
  ('predicted', 'y', 'said'),
  [([0, 2, 1], [0, 0, 1], r'predicted has class 2'), ([0, 1, 1], [0, -1, 1], r'y has class -1')],
)
def test_a_class_that_there_is_not_is_refused_and_not_counted_as_another(predicted, y, said):
  with pytest.raises(ValueError, match=f'^{said} of classes=2'):
    analysis.confusion(predicted, y, 2)


def test_names_are_listed():
  assert {'confusion', 'runs', 'summary', 'curves'} <= set(dir(analysis))
  assert 'logits' in experiment.__all__
