"""The laws of aggregation rules, and their values against NumPy."""

from functools import cache, partial
from math import floor

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from fedkd import aggregate
from helpers import assert_close, assert_same_bits

trim = partial(aggregate.trimmed_mean, share=0.25)
RULES = {'mean': aggregate.mean, 'median': aggregate.median, 'trimmed_mean': trim}
JITTED = {name: jax.jit(rule) for name, rule in RULES.items()}
every_rule = pytest.mark.parametrize('name', RULES)
SLOTS = 6  # one shape, one compilation


@st.composite
def uploads(draw):
  """(rows [SLOTS, 2, 3], weight [SLOTS]) with at least one present row."""
  rng = np.random.default_rng(draw(st.integers(0, 2**31)))
  weight = np.array(draw(st.lists(st.integers(0, 9), min_size=SLOTS, max_size=SLOTS)), np.float32)
  weight[draw(st.integers(0, SLOTS - 1))] = draw(st.integers(1, 9))
  return rng.normal(size=(SLOTS, 2, 3)).astype(np.float32) * 10, weight


def in_numpy(name, rows, weight):
  present = rows[weight > 0].astype(np.float64)
  if name == 'mean':
    return np.average(present, 0, weight[weight > 0])
  if name == 'median':
    return np.median(present, 0)
  cut = floor(len(present) / 4)
  return np.sort(present, 0)[cut : len(present) - cut].mean(0)


@pytest.mark.parametrize('weight', [np.array([1, 0, 3]), np.array([1.0, 0.0, 3.0]), np.array([True, False, True])])
def test_weights_may_be_counts(weight):
  rows = np.arange(6, dtype=np.float32).reshape(3, 2)
  assert_close(aggregate.mean(rows, weight), np.average(rows, 0, weight))


@every_rule
@given(uploads())
def test_rule_equals_numpy(name, upload):
  rows, weight = upload
  np.testing.assert_allclose(JITTED[name](rows, weight), in_numpy(name, rows, weight), rtol=1e-5, atol=1e-5)


@every_rule
@given(uploads(), st.permutations(range(SLOTS)))
def test_rule_ignores_the_order(name, upload, order):
  rows, weight = upload
  order = np.array(order)
  np.testing.assert_allclose(JITTED[name](rows[order], weight[order]), JITTED[name](rows, weight), rtol=1e-5, atol=1e-5)


@every_rule
@pytest.mark.parametrize('hole', [np.nan, np.inf, -np.inf, 1e38])
@given(uploads())
def test_absent_rows_do_not_matter(name, hole, upload):
  rows, weight = upload
  padded = np.where((weight > 0)[:, None, None], rows, np.float32(hole))
  assert_same_bits(JITTED[name](padded, weight), JITTED[name](rows, weight))


@every_rule
@pytest.mark.parametrize('rows', [3, 8, 33])
@pytest.mark.parametrize('empty', [1, 5, 30])
def test_empty_slots_do_not_change_a_bit(name, rows, empty):
  rng = np.random.default_rng(rows * empty)
  slots = np.sort(rng.choice(rows + empty, rows, replace=False))
  value, weight = rng.normal(size=(rows, 10, 10)).astype(np.float32), rng.integers(1, 9, rows).astype(np.float32)
  wide, sparse = np.zeros((rows + empty, 10, 10), np.float32), np.zeros(rows + empty, np.float32)
  wide[slots], sparse[slots] = value, weight
  assert_same_bits(JITTED[name](wide, sparse), JITTED[name](value, weight))


@every_rule
@given(uploads())
def test_identical_rows_stay_what_they_are(name, upload):
  rows, weight = upload
  same = np.broadcast_to(rows[:1], rows.shape)
  np.testing.assert_allclose(JITTED[name](same, weight), rows[0], rtol=1e-6)


@every_rule
@given(uploads(), st.integers(0, SLOTS - 1))
def test_a_single_row_is_the_result(name, upload, slot):
  rows, weight = upload
  alone = np.zeros(SLOTS, np.float32)
  alone[slot] = max(weight[slot], 1)
  assert_same_bits(JITTED[name](rows, alone), jnp.asarray(rows[slot]))
  assert_same_bits(JITTED[name](rows[:1], np.ones(1, np.float32)), jnp.asarray(rows[0]))


@given(uploads())
def test_only_the_mean_weighs(upload):
  rows, weight = upload
  once = (weight > 0).astype(np.float32)
  for name in ('median', 'trimmed_mean'):
    assert_same_bits(JITTED[name](rows, weight), JITTED[name](rows, once))


@pytest.mark.parametrize(
  ('share', 'count'), [(0.1, 10), (0.1, 9), (0.3, 10), (0.29, 100), (0.7, 10), (0.5, 3), (7 / 23, 23)]
)
def test_trimmed_mean_cuts_as_many_as_written(share, count):
  rows = np.random.default_rng(0).normal(size=count).astype(np.float32)
  cut = min(floor(share * count + 1e-9), (count - 1) // 2)
  expected = np.sort(rows)[cut : count - cut].mean()
  np.testing.assert_allclose(aggregate.trimmed_mean(rows, np.ones(count, np.float32), share), expected, rtol=1e-5)


@pytest.mark.parametrize('rule', [aggregate.mean, aggregate.trimmed_mean, aggregate.centred_clipping(10.0)])
def test_many_rows_of_16_bits_do_not_saturate_their_sum(rule):
  rows = jnp.ones((600, 2), jnp.bfloat16)
  made = aggregate.as_rule(rule)
  tree, _ = made.update(rows, jnp.ones(600), made.init(jnp.zeros(2, jnp.bfloat16)))
  assert tree.dtype == jnp.bfloat16
  np.testing.assert_allclose(np.asarray(tree, float), 1)


def test_one_liar_moves_the_mean_but_not_the_median_or_the_trimmed_mean():
  rows, weight = np.array([1.0, 2, 3, 4, 1e6], np.float32), np.ones(5, np.float32)
  assert aggregate.mean(rows, weight) > 1e5
  assert aggregate.median(rows, weight) == 3
  assert trim(rows, weight) == 3


# Centred clipping, whose memory is the last result.


def clipped_in_numpy(rows, weight, centre, radius, iterations):
  share = weight / weight.sum()
  for _ in range(iterations):
    step = 0
    for row, s in zip(rows, share, strict=True):
      if s > 0:
        away = row.astype(np.float64) - centre
        step = step + s * away * min(1, radius / np.linalg.norm(away))
    centre = centre + step
  return centre


@cache
def clipping(radius):
  rule = aggregate.as_rule(aggregate.centred_clipping(radius, iterations=2))
  return rule._replace(update=jax.jit(rule.update))


@given(uploads(), st.sampled_from([0.5, 5.0, 100.0]), st.permutations(range(SLOTS)))
def test_centred_clipping_equals_numpy_round_after_round(upload, radius, order):
  rows, weight = upload
  rule = clipping(radius)
  start = np.ones((2, 3), np.float32)
  state, turned, expected = rule.init(start), rule.init(start), start
  holes = np.where((weight > 0)[:, None, None], rows, np.float32(np.nan))
  for scale in (1, -0.5):
    expected = clipped_in_numpy(rows * scale, weight, expected, radius, 2)
    found, state = rule.update(holes * np.float32(scale), weight, state)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert_same_bits(found, state)
    other, turned = rule.update(rows[np.array(order)] * np.float32(scale), weight[np.array(order)], turned)
    np.testing.assert_allclose(other, found, rtol=1e-4, atol=1e-4)


def test_centred_clipping_measures_all_leaves_together():
  rule = aggregate.centred_clipping(1.0)
  rows = {'a': jnp.array([[3.0]]), 'b': jnp.array([[4.0]])}  # 5 away
  found, _ = rule.update(rows, jnp.ones(1), {'a': jnp.zeros(1), 'b': jnp.zeros(1)})
  assert_close(found, {'a': jnp.array([0.6]), 'b': jnp.array([0.8])})


def test_one_liar_moves_centred_clipping_by_its_share_of_the_radius():
  rows, weight = np.array([1.0, 1, 1, 1, 1e6], np.float32), np.ones(5, np.float32)
  found, _ = aggregate.centred_clipping(0.5).update(rows, weight, jnp.float32(1))
  np.testing.assert_allclose(found, 1 + 0.5 / 5, rtol=1e-6)


def test_centred_clipping_mapped_is_one_rule_per_entry():
  rule, rng = aggregate.as_rule(aggregate.centred_clipping(0.7)), np.random.default_rng(0)
  rows, centre = rng.normal(size=(4, 3, 2)).astype(np.float32), rng.normal(size=(3, 2)).astype(np.float32)
  weight = np.array([[1, 0, 2], [1, 0, 0], [0, 0, 1], [3, 0, 1]], np.float32)
  found, state = aggregate.mapped(aggregate.centred_clipping(0.7)).update(rows, weight, centre)
  for c in (0, 2):
    alone, memory = rule.update(rows[:, c], weight[:, c], centre[c])
    assert_close((found[c], state[c]), (alone, memory))
  assert_same_bits(state[1], jnp.asarray(centre[1]))  # nothing was uploaded for it


@pytest.mark.parametrize(('radius', 'iterations'), [(0.0, 1), (float('nan'), 1), (1.0, 0)])
def test_centred_clipping_refuses_what_cannot_be(radius, iterations):
  with pytest.raises(ValueError, match=r'^(radius=.* must be a number above 0|iterations=0 must be a whole)'):
    aggregate.centred_clipping(radius, iterations)
