import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fedkd import plan
from fedkd.errors import ConfigError
from fedkd.experiment.build.from_config import make_plan

sizes_of_groups = st.lists(st.integers(1, 5), min_size=1, max_size=4)
seeds = st.integers(0, 2**31 - 1)


def participants_of(participants, sizes):
  """Per round, the set of global numbers of the clients that are seated."""
  starts = np.cumsum([0, *sizes])
  rounds = zip(*(table for table in participants), strict=True)
  return [{int(starts[g] + row) for g, slots in enumerate(tables) for row in slots if row >= 0} for tables in rounds]


def assert_slots_in_range(participants, sizes, rounds):
  assert len(participants) == len(sizes)
  for table, size in zip(participants, sizes, strict=True):
    assert table.dtype == np.int32
    assert len(table) == rounds
    assert ((table >= -1) & (table < size)).all()
    for slots in table:
      taken = slots[slots >= 0]
      assert len(set(taken)) == len(taken)
      assert (slots[len(taken) :] == -1).all()  # empty slots last
    if table.shape[1]:
      assert (table >= 0).sum(1).max() == table.shape[1]  # as wide as the busiest round


def assert_prefix(short, long):
  for few, many in zip(short.participants, long.participants, strict=True):
    many = many[: len(few)]
    np.testing.assert_array_equal(few, many[:, : few.shape[1]])
    assert (many[:, few.shape[1] :] == -1).all()


@given(sizes_of_groups, st.integers(1, 6))
def test_synchronous_includes_everybody(sizes, rounds):
  made = plan.synchronous()(sizes, rounds)
  assert_slots_in_range(made.participants, sizes, rounds)
  assert participants_of(made.participants, sizes) == [set(range(sum(sizes)))] * rounds
  np.testing.assert_array_equal(plan.client_updates(made), sum(sizes))


@given(sizes_of_groups, st.integers(1, 8), seeds, st.floats(0, 1))
def test_sampled_picks_exactly_the_floor_of_the_ratio(sizes, rounds, seed, share):
  total = sum(sizes)
  ratio = max(share, 1 / total)
  made = plan.sampled(seed=seed, ratio=ratio)(sizes, rounds)
  assert_slots_in_range(made.participants, sizes, rounds)
  many = int(ratio * total + 1e-9)
  assert [len(clients) for clients in participants_of(made.participants, sizes)] == [many] * rounds
  np.testing.assert_array_equal(plan.client_updates(made), many)


def test_sampled_counts_as_written():
  for clients, ratio, many in [(10, 0.1, 1), (10, 0.3, 3), (100, 0.29, 29), (10, 0.19, 1), (7, 1.0, 7)]:
    for share in (ratio, np.float32(ratio), np.float16(ratio)):
      assert plan.client_updates(plan.sampled(ratio=share)([clients], 1)) == many


def test_sampled_varies_per_group_and_is_uniform():
  made = plan.sampled(seed=1, ratio=0.5)([4, 6], 600)
  first = (made.participants[0] >= 0).sum(1)
  assert set(first) == {0, 1, 2, 3, 4}
  picks = np.bincount([c for clients in participants_of(made.participants, [4, 6]) for c in clients])
  np.testing.assert_allclose(picks, 300, atol=4 * np.sqrt(600 * 0.25))


@pytest.mark.parametrize('ratio', [0.0, 0.09, 1.11, -1.0])
def test_sampled_refuses_bad_ratios(ratio):
  with pytest.raises(
    ValueError,
    match=r'ratio=.* (must be a number above 0 and at most 1$|selects 0 of 10 clients; set ratio )',
  ):
    plan.sampled(ratio=ratio)([10], 5)


@given(sizes_of_groups, st.integers(1, 6), st.integers(0, 6), seeds)
def test_a_longer_plan_begins_with_the_shorter(sizes, rounds, more, seed):
  for make in (
    plan.synchronous(seed),
    plan.sampled(1 / sum(sizes), seed),
    plan.sampled(max(0.5, 1 / sum(sizes)), seed),
    plan.asynchronous(delay=0.5, dropout=0.3, seed=seed),
  ):
    assert_prefix(make(sizes, rounds), make(sizes, rounds + more))


def test_seeds_differ():
  for make in (lambda seed: plan.sampled(seed=seed)([10], 20), lambda seed: plan.asynchronous(seed=seed)([10], 20)):
    assert (make(0).participants[0] != make(1).participants[0]).any()


@given(sizes_of_groups, st.integers(1, 30), seeds, st.floats(0, 2), st.floats(0, 3), st.floats(0, 0.9))
def test_asynchronous_has_one_upload_per_round(sizes, rounds, seed, spread, delay, dropout):
  made = plan.asynchronous(seed=seed, spread=spread, delay=delay, dropout=dropout, stale=True)(sizes, rounds)
  assert made.stale
  assert_slots_in_range(made.participants, sizes, rounds)
  assert [len(clients) for clients in participants_of(made.participants, sizes)] == [1] * rounds


@pytest.mark.parametrize('spread', [0.0, 0.5, 1.0])
def test_asynchronous_turns_are_proportional_to_speed(spread):
  sizes, rounds, seed = [3, 4], 2000, 5
  participants = plan.asynchronous(seed=seed, spread=spread)(sizes, rounds).participants
  turns = np.bincount([c for clients in participants_of(participants, sizes) for c in clients], minlength=7)
  # A client's speed is the first number of its own stream; without delay or loss it turns speed * time often.
  speed = np.exp([spread * np.random.default_rng([seed, c]).standard_normal() for c in range(7)])
  np.testing.assert_allclose(turns, rounds * speed / speed.sum(), atol=1.5)


def test_dropout_is_fair_and_delay_evens_out_speeds():
  count = lambda **options: np.bincount(
    plan.asynchronous(seed=3, **options)([6], 6000).participants[0][:, 0], minlength=6
  )
  np.testing.assert_allclose(count(spread=0.0, dropout=0.5), 1000, atol=150)
  assert np.ptp(count(spread=1.0, delay=20.0)) < np.ptp(count(spread=1.0)) / 2


@pytest.mark.parametrize('bad', [{'spread': -0.1}, {'delay': -1.0}, {'dropout': 1.0}, {'dropout': -0.1}])
def test_asynchronous_refuses_what_cannot_be(bad):
  with pytest.raises(ValueError, match=r'^(spread|delay|dropout)=.* must be a number of at least 0'):
    plan.asynchronous(**bad)([3], 5)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 6), st.integers(0, 4), seeds, st.floats(0, 1))
def test_dynamic_includes_every_sampled_client_in_one_group(clients, groups, rounds, more, seed, share):
  sizes, ratio = [clients] * groups, max(share, 1 / clients)
  made = plan.dynamic(seed=seed, ratio=ratio)(sizes, rounds)
  assert_slots_in_range(made.participants, sizes, rounds)
  (sampled,) = plan.sampled(seed=seed, ratio=ratio)([clients], rounds).participants
  for t in range(rounds):
    slotted = np.sort(np.concatenate([table[t][table[t] >= 0] for table in made.participants]))
    np.testing.assert_array_equal(slotted, np.sort(sampled[t][sampled[t] >= 0]))  # each of them, once
  assert_prefix(made, plan.dynamic(seed=seed, ratio=ratio)(sizes, rounds + more))


def test_dynamic_groups_are_uniform():
  participants = plan.dynamic(seed=1, ratio=0.5)([4] * 3, 600).participants
  counts = np.array([(table >= 0).sum() for table in participants])
  np.testing.assert_allclose(counts, 400, atol=4 * np.sqrt(1200 * 2 / 9))


def test_dynamic_refuses_groups_of_other_clients():
  with pytest.raises(
    ValueError, match=r'plan dynamic needs groups of the same clients, not of 2, 3; in a config set first=0'
  ):
    plan.dynamic()([2, 3], 5)


def of_tables(rows, rounds=1, seed=0):
  """Somebody's planner, which a config names."""
  return lambda sizes, _: plan.Plan(tuple(np.broadcast_to(np.array(rows, np.int32), (rounds, 2)) for _ in sizes))


def test_tables_of_a_planner_in_a_config_begin_again_after_their_last_round():
  made = make_plan({'name': f'{__name__}:of_tables', 'rows': (1, -1)}, [3, 2], 4)
  for table in made.participants:
    np.testing.assert_array_equal(table, [[1, -1]] * 4)


@pytest.mark.parametrize(
  ('rows', 'reason'),
  [
    ((0, 0), 'round 0 of group 0 has row 0 twice'),
    ((5, -1), r'is \[4, 2\] with rows to 5'),
    ((-1, -1), 'names no client in any of its 4 rounds'),
  ],
)
def test_wrong_tables_of_a_planner_in_a_config_are_refused(rows, reason):
  with pytest.raises(ConfigError, match=rf"^plan.name='.*:of_tables': plan.*{reason}.*give"):
    make_plan({'name': f'{__name__}:of_tables', 'rows': rows, 'rounds': 4}, [3], 4)
