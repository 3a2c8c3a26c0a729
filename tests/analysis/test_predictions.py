"""What predictions are like, counted one by one."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedkd
from fedkd import analysis, experiment

RANDOM = np.random.default_rng(0)
K, N, C = 3, 50, 4
LOGITS = RANDOM.normal(size=(K, N, C)) * 3
Y = RANDOM.integers(0, 3, N)  # class 3 has no example
PREDICTED = LOGITS.argmax(-1)
SHARES = np.asarray(jax.nn.softmax(LOGITS), np.float16)
WITH_NAN = np.where(np.arange(K)[:, None, None] == 1, np.nan, SHARES)  # of client 1


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
  logarithms = np.log(np.asarray(jax.nn.softmax(LOGITS)))
  np.testing.assert_allclose(
    analysis.calibration_error(logarithms, Y), analysis.calibration_error(LOGITS, Y), atol=1e-6
  )
  sure = np.eye(C)[Y] * 100
  assert analysis.calibration_error(sure, Y) == pytest.approx(0)


def test_disagreement_of_pairs():
  found = analysis.disagreement(PREDICTED)
  for i, j in itertools.product(range(K), range(K)):
    assert found[i, j] == np.mean(PREDICTED[i] != PREDICTED[j])
  of_seeds = np.stack([PREDICTED, PREDICTED[::-1]])
  np.testing.assert_array_equal(analysis.disagreement(of_seeds), [found, found[::-1, ::-1]])


def test_accuracy_on_own_and_on_others_rows():
  owner = np.where(np.arange(N) < 40, np.arange(N) % 2, -1)  # client 2 owns none
  found = analysis.across(PREDICTED, Y, owner)
  for i, j in itertools.product(range(K), range(2)):
    assert found[i, j] == pytest.approx(np.mean((PREDICTED[i] == Y)[owner == j]))
  assert np.isnan(found[:, 2]).all()


def test_what_does_not_fit_is_refused():
  owner = np.arange(N) % K
  for call, said in (
    (lambda: analysis.confusion(PREDICTED, Y[1:], C), r'^y has shape \[49\] for 50 predictions'),
    (lambda: analysis.confusion(PREDICTED, Y, 2.5), '^classes=2.5 must be a whole number'),
    (lambda: analysis.confusion(PREDICTED, Y + 0.5, C), r'^y is float64\[50\]; give int\[..., N\]'),
    (
      lambda: analysis.confusion(PREDICTED - 1, Y, C),
      '^predicted has class -1 of 4, as predict gives where a logit is NaN; give',
    ),
    (lambda: analysis.per_class(PREDICTED, Y + 2, C), '^y has class 4 of 4; give class numbers from 0 to 3'),
    (lambda: analysis.calibration_error(LOGITS, Y + 2), '^y has class 4 of 4; give class numbers from 0 to 3'),
    (lambda: analysis.calibration_error(SHARES, Y), '^logits has probabilities, .*; give the numbers before softmax'),
    (lambda: analysis.calibration_error(WITH_NAN, Y), '^logits has probabilities'),
    (lambda: analysis.calibration_error(LOGITS, Y, bins=0), '^bins=0 must be a whole number, at least 1'),
    (
      lambda: analysis.calibration_error(LOGITS[:, :0], Y[:0]),
      r'^logits is float64\[3, 0, 4\]; give float\[..., N, C\]',
    ),
    (lambda: analysis.disagreement(LOGITS), r'^predicted is float64\[3, 50, 4\]; give int\[..., K, N\]'),
    (lambda: analysis.disagreement(PREDICTED[0]), r'^predicted is int64\[50\]; give int\[..., K, N\]'),
    (lambda: analysis.across(PREDICTED, Y, owner + 1), '^owner has client 3 of 3; give client numbers from -1 to 2'),
    (lambda: analysis.across(PREDICTED, Y, owner / 1), r'^owner is float64\[50\]; give int'),
    (lambda: analysis.across(PREDICTED, Y - 5, owner), '^y has class -[345]; give class numbers from 0 up'),
  ):
    with pytest.raises(ValueError, match=said):
      call()


def test_small_integers_do_not_overflow():
  y = np.arange(200) % 40
  for dtype in (np.int8, np.uint8):
    np.testing.assert_array_equal(analysis.confusion(y.astype(dtype), y.astype(dtype), 40), 5 * np.eye(40))


def test_a_model_whose_logits_are_nan_predicts_no_class():
  federation = fedkd.federation(np.eye(3), np.arange(3), [[0], [1]], fedkd.models.MLP((), classes=3))
  simulation = fedkd.simulation(fedkd.methods.private(optax.sgd(0.1), steps=1, batch=1), federation)
  state = simulation.init(jax.random.key(0))
  broken = state._replace(client=jax.tree.map(lambda leaf: leaf.at[1].set(jnp.nan), state.client))
  predicted = simulation.predict(broken, np.eye(3))
  np.testing.assert_array_equal(predicted[0], simulation.predict(state, np.eye(3))[0])
  np.testing.assert_array_equal(predicted[1], [-1] * 3)
  assert np.isnan(analysis.calibration_error(simulation.logits(broken, np.eye(3)), np.arange(3))).tolist() == [
    False,
    True,
  ]


@pytest.mark.parametrize(
  ('predicted', 'y', 'said'),
  [([0, 2, 1], [0, 0, 1], r'predicted has class 2'), ([0, 1, 1], [0, -1, 1], r'y has class -1')],
)
def test_a_class_that_there_is_not_is_refused_and_not_counted_as_another(predicted, y, said):
  with pytest.raises(ValueError, match=f'^{said} of 2; give class numbers from 0 to 1'):
    analysis.confusion(predicted, y, 2)


def test_names_are_listed():
  assert {'confusion', 'runs', 'summary', 'curves'} <= set(dir(analysis))
  assert 'logits' in experiment.__all__
