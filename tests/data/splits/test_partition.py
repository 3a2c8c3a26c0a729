import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkd import config as base
from fedkd.data import sources
from fedkd.data.splits import partition, skews
from fedkd.errors import ConfigError
from fedkd.experiment.build import assembly
from fedkd.federation import table

PARTITIONERS = [partition.iid, partition.contiguous, partition.dirichlet, partition.shards]
QUICK = settings(max_examples=60, deadline=None)

labels_of = st.lists(st.integers(0, 5), min_size=40, max_size=200).map(np.array)
seeds = st.integers(0, 2**32)


def same(a, b):
  return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize('make', PARTITIONERS)
@QUICK
@given(labels=labels_of, clients=st.integers(1, 4), seed=seeds)
def test_parts_are_disjoint_complete_sorted_deterministic_and_not_empty(make, labels, clients, seed):
  extra = {'concentration': 5.0, 'smallest': 1} if make is partition.dirichlet else {}
  before = labels.copy()
  parts = make(labels, clients, seed, **extra)
  assert len(parts) == clients
  assert min(map(len, parts)) >= 1
  np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
  assert all(np.all(np.diff(part) > 0) for part in parts)
  assert same(parts, make(labels, clients, seed, **extra))
  np.testing.assert_array_equal(labels, before)


@pytest.mark.parametrize('make', [partition.iid, partition.contiguous])
@QUICK
@given(count=st.integers(1, 300), clients=st.integers(1, 20), seed=seeds)
def test_equal_parts_differ_by_one_row_and_the_first_are_larger(make, count, clients, seed):
  clients = min(clients, count)
  sizes = [len(part) for part in make(np.zeros(count), clients, seed)]
  assert sizes == [count // clients + (k < count % clients) for k in range(clients)]


def test_contiguous_is_published_cut_and_ignores_the_seed():
  parts = partition.contiguous(np.zeros(60000), 10, seed=3)
  np.testing.assert_array_equal(parts[4], np.arange(24000, 30000))
  assert same(parts, partition.contiguous(np.zeros(60000), 10, seed=4))


@pytest.mark.parametrize('make', [partition.iid, partition.dirichlet, partition.shards])
def test_another_seed_is_another_split(make):
  labels = np.arange(1000) % 10
  assert not same(make(labels, 10, 0), make(labels, 10, 1))


def test_iid_clients_have_nearly_the_shares_of_all():
  labels = np.repeat(np.arange(4), 2500)
  counts = partition.overview(partition.iid(labels, 10, 0), labels, 4)
  # Hypergeometric, mean 250, standard deviation 13: five of them.
  assert np.abs(counts - 250).max() < 65


@QUICK
@given(seed=seeds, per_client=st.sampled_from([1, 2, 4]))
def test_shards_give_few_labels_to_each_client(seed, per_client):
  labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(10), 40))
  counts = partition.overview(partition.shards(labels, 10, seed, per_client), labels, 10)
  assert np.all(counts.sum(1) == 40)
  # 10 * per_client shards of 400 / (10 * per_client) rows: none spans two labels.
  assert np.all((counts > 0).sum(1) <= per_client)


@QUICK
@given(labels=labels_of, clients=st.integers(1, 4), seed=seeds, smallest=st.integers(1, 5))
def test_dirichlet_keeps_its_smallest_client(labels, clients, seed, smallest):
  parts = partition.dirichlet(labels, clients, seed, concentration=1.0, smallest=smallest)
  assert min(map(len, parts)) >= smallest


@QUICK
@given(
  labels=labels_of,
  clients=st.integers(1, 30),
  seed=seeds,
  exponent=st.floats(-300, 6),
)
def test_dirichlet_ends_with_a_split_or_a_remedy(labels, clients, seed, exponent):
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(partition, 'MOST_REDRAWS', 5)
    try:
      parts, message = partition.dirichlet(labels, clients, seed, 10**exponent, smallest=1), ''
    except ConfigError as error:
      parts, message = [labels], str(error)
  assert sum(map(len, parts)) == len(labels)
  assert not message or message.endswith('raise concentration or lower clients')


def test_concentration_orders_the_skew():
  labels = np.repeat(np.arange(10), 1000)

  def largest_share(concentration):
    counts = partition.overview(partition.dirichlet(labels, 10, 0, concentration), labels, 10)
    return (counts.max(1) / counts.sum(1)).mean()

  skew = [largest_share(c) for c in (0.1, 0.5, 5.0, 1e6)]
  assert skew == sorted(skew, reverse=True)
  assert skew[0] > 0.5
  assert skew[3] == pytest.approx(0.1, abs=0.005)


def test_full_clients_get_nothing_of_the_next_class():
  # Three clients share 300 rows: whoever holds 100 or more after a class is out, so nobody exceeds 99 + 50.
  labels = np.repeat(np.arange(6), 50)
  for seed in range(50):
    parts = partition.dirichlet(labels, 3, seed, concentration=0.5, smallest=1)
    counts = partition.overview(parts, labels, 6)
    held_before = np.cumsum(counts, axis=1) - counts
    assert np.all(counts[held_before >= 100] == 0)


def test_dirichlet_of_one_concentrated_class_gives_it_to_one_client():
  parts = partition.dirichlet(np.repeat([0, 1], 20), 1, 0, 1e-9)
  assert [len(part) for part in parts] == [40]
  with pytest.raises(ConfigError, match=r'concentration=1e-09 .* raise concentration'):
    partition.dirichlet(np.zeros(40, int), 2, 0, 1e-9, smallest=1)


@pytest.mark.parametrize('make', PARTITIONERS)
@pytest.mark.parametrize('clients', [0, -1, 41])
def test_refuses_client_counts(make, clients):
  with pytest.raises(ConfigError, match=rf'clients={clients} .*at (least 1|most 40)'):
    make(np.zeros(40, int), clients, 0)


@pytest.mark.parametrize('concentration', [0, -0.5, float('nan'), float('inf'), 1e308])
def test_refuses_concentration(concentration):
  with pytest.raises(ConfigError, match=r'^concentration=.* must be a number above 0 and at most 1,000,000$'):
    partition.dirichlet(np.zeros(40, int), 2, 0, concentration)


@pytest.mark.parametrize(
  ('smallest', 'remedy'), [(0, 'must be a whole number of at least 1'), (21, r'.*set smallest between 1 and 20')]
)
def test_refuses_smallest(smallest, remedy):
  with pytest.raises(ConfigError, match=f'smallest={smallest} {remedy}'):
    partition.dirichlet(np.zeros(40, int), 2, 0, smallest=smallest)


@pytest.mark.parametrize(
  ('clients', 'per_client', 'match'),
  [
    (2, 0, 'per_client=0 must be a whole number of at least 1'),
    (21, 2, r'clients=21 with 2 shards each need 42 examples, .* are 40; lower clients to 20, or'),
  ],
)
def test_refuses_shards(clients, per_client, match):
  with pytest.raises(ConfigError, match=match):
    partition.shards(np.zeros(40, int), clients, 0, per_client)


def test_the_smallest_client_of_dirichlet_and_a_writer_have_fields_of_their_own():
  config = base.default()
  config.data.update(partition=base.partition('dirichlet', smallest=21), clients=2)
  image, label = np.zeros((40, 1, 1, 1), np.uint8), np.zeros(40, np.int32)
  source = sources.Source('tiny', image, label, image, label, 1, ('0',), origin=label)
  with pytest.raises(ConfigError, match=r'data\.smallest=21'):
    assembly.make_split(config, source, 0)
  config.data.update(partition=base.partition('writers', minimum=41), clients=1)
  with pytest.raises(ConfigError, match=r'data\.minimum=41'):
    assembly.make_split(config, source, 0)


def test_the_fields_of_a_config_are_named_to_whom_has_one():
  """And in a notebook the arguments."""
  with pytest.raises(ConfigError, match=r'^clients=41 is more than the 40 .*; set it to at most 40$'):
    partition.iid(np.zeros(40, int), 41, 0)
  config = base.default()
  config.data.update(partition=base.partition('writers'), clients=41)
  image, label = np.zeros((40, 1, 1, 1), np.uint8), np.zeros(40, np.int32)
  source = sources.Source('tiny', image, label, image, label, 1, ('0',))
  with pytest.raises(ConfigError, match=r'^data\.clients=41 is more than the 40 .*; set it to at most 40$'):
    assembly.make_split(config, source, 0)
  config.data.clients = 2
  with pytest.raises(ConfigError, match=r'^data\.partition needs rows with an origin, .* neither domains nor writers'):
    assembly.make_split(config, source, 0)


# ---- by origin, and those that leave rows out


@pytest.fixture
def fine():
  """600 shuffled rows: 4 labels times 3 origins, 50 of each."""
  order = np.random.default_rng(0).permutation(600)
  return (np.arange(600) % 4)[order], (np.arange(600) // 4 % 3)[order]


def test_by_origin_gives_each_client_its_domain(fine):
  labels, origin = fine
  parts = partition.by_origin(labels, 3, 0, origin)
  assert [set(origin[part]) for part in parts] == [{0}, {1}, {2}]
  np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(600))
  assert same(parts, partition.by_origin(labels, 3, 1, origin))


@pytest.mark.parametrize('clients', [2, 4])
def test_by_origin_refuses_another_number_of_clients(fine, clients):
  with pytest.raises(ConfigError, match=rf'clients={clients} does not fit .* has 3 owners; set it to 3'):
    partition.by_origin(fine[0], clients, 0, fine[1])


@pytest.mark.parametrize('make', [partition.by_origin, partition.few_by_origin, partition.writers])
def test_refuses_rows_that_belong_to_nobody(make):
  with pytest.raises(ConfigError, match=r'^origin is None; give the owner of each row'):
    make(np.zeros(40, int), 2, 0, None)


@QUICK
@given(clients=st.integers(1, 12), per_class=st.integers(1, 12), seed=seeds)
def test_few_are_disjoint_stratified_and_deterministic(clients, per_class, seed):
  labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(5), 144))
  parts = partition.few(labels, clients, seed, per_class)
  assert np.all(partition.overview(parts, labels, 5) == per_class)
  assert len(np.unique(np.concatenate(parts))) == 5 * clients * per_class
  assert all(np.all(np.diff(part) > 0) and part.dtype == np.int64 for part in parts)
  assert same(parts, partition.few(labels, clients, seed, per_class))


def test_few_refuses_a_scarce_class_and_says_how_scarce():
  labels = np.repeat([0, 1], [40, 29])
  with pytest.raises(
    ConfigError,
    match=r'per_class=3 for 10 clients needs 30 examples of class 1, which has 29; lower per_class or clients',
  ):
    partition.few(labels, 10, 0)


@QUICK
@given(clients=st.integers(1, 9), per_class=st.integers(1, 50), seed=seeds)
def test_few_by_origin_takes_turns_and_is_disjoint_where_it_can_be(clients, per_class, seed):
  rng = np.random.default_rng(seed)
  labels, origin = rng.permutation(np.stack(np.divmod(np.arange(600) // 50, 3), 1)).T
  parts = partition.few_by_origin(labels, clients, seed, origin, per_class)
  assert np.all(partition.overview(parts, labels, 4) == per_class)
  for i, part in enumerate(parts):
    assert np.all(origin[part] == i % 3)
    assert np.all(np.diff(part) > 0)  # no row twice
  sharing = -(-clients // 3)
  if sharing * per_class <= 50:
    assert len(np.unique(np.concatenate(parts))) == 4 * clients * per_class
  assert same(parts, partition.few_by_origin(labels, clients, seed, origin, per_class))


def test_few_by_origin_uses_all_rows_before_any_twice(fine):
  parts = partition.few_by_origin(fine[0], 9, 0, fine[1], per_class=20)  # 60 of 50
  assert len(np.unique(np.concatenate(parts))) == 600


def test_few_by_origin_refuses_an_origin_without_a_class(fine):
  labels, origin = (array[(fine[0] != 2) | (fine[1] != 1)] for array in fine)
  with pytest.raises(
    ConfigError, match=r'per_class=20 for 1 clients needs 20 examples of origin 1 of class 2, which has 0; lower'
  ):
    partition.few_by_origin(labels, 2, 0, origin)
  assert len(partition.few_by_origin(labels, 1, 0, origin)) == 1  # which asks origin 0 only


@pytest.mark.parametrize(
  'make', [lambda f: partition.few(f[0], 2, 0, 0), lambda f: partition.few_by_origin(f[0], 2, 0, f[1], 0)]
)
def test_few_refuse_none(fine, make):
  with pytest.raises(ConfigError, match='per_class=0 must be a whole number of at least 1'):
    make(fine)


@QUICK
@given(sizes=st.lists(st.integers(0, 30), min_size=6, max_size=20), clients=st.integers(1, 4), seed=seeds)
def test_writers_are_whole_distinct_and_prolific(sizes, clients, seed):
  origin = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
  able = [w for w, size in enumerate(sizes) if size >= 18]
  if len(able) < clients:
    with pytest.raises(ConfigError, match=r'clients=|at most'):
      partition.writers(np.zeros(len(origin)), clients, seed, origin)
    return
  parts = partition.writers(np.zeros(len(origin)), clients, seed, origin)
  found = [set(origin[part].tolist()) for part in parts]
  assert all(len(own) == 1 for own in found)
  chosen = [own.pop() for own in found]
  assert len(set(chosen)) == clients
  assert set(chosen) <= set(able)
  assert [len(part) for part in parts] == [sizes[w] for w in chosen]
  assert same(parts, partition.writers(np.zeros(len(origin)), clients, seed, origin))


def test_writers_says_how_many_there_are():
  with pytest.raises(
    ConfigError,
    match=r'clients=3 is more than the 2 of 4 writers who have minimum=18 examples; lower clients',
  ):
    partition.writers(np.zeros(60), 3, 0, np.repeat([0, 1, 3, 4], [17, 18, 20, 5]))


def test_another_seed_is_another_few(fine):
  labels, origin = fine
  assert not same(partition.few(labels, 3, 0), partition.few(labels, 3, 1))
  assert not same(partition.few_by_origin(labels, 3, 0, origin), partition.few_by_origin(labels, 3, 1, origin))
  many = np.repeat(np.arange(100), 20)
  assert not same(partition.writers(many, 3, 0, many), partition.writers(many, 3, 1, many))


# ---- held-out rows


@QUICK
@given(
  sizes=st.lists(st.integers(1, 50), min_size=1, max_size=8),
  share=st.floats(0, 1, exclude_max=True),
  seed=seeds,
)
def test_hold_out_splits_each_client(sizes, share, seed):
  parts = np.split(np.random.default_rng(seed).permutation(sum(sizes)), np.cumsum(sizes)[:-1])
  train, validation = partition.hold_out(parts, share, seed)
  for part, kept, held in zip(parts, train, validation, strict=True):
    assert len(kept) >= 1
    assert abs(len(held) - share * len(part)) < 1
    np.testing.assert_array_equal(np.sort(np.concatenate([kept, held])), np.sort(part))


def test_hold_out_floors_and_depends_on_seed_and_client_only():
  parts = [np.arange(100), np.arange(100, 119), np.arange(119, 120)]
  train, validation = partition.hold_out(parts, 0.29, 7)
  assert [len(v) for v in validation] == [29, 5, 0]
  assert same(validation, partition.hold_out(parts, 0.29, 7)[1])
  assert not same(validation, partition.hold_out(parts, 0.29, 8)[1])
  np.testing.assert_array_equal(partition.hold_out(parts[:1], 0.29, 7)[0][0], train[0])


def test_hold_out_nothing_keeps_everything():
  parts = [np.arange(3), np.arange(3, 7)]
  train, validation = partition.hold_out(parts, 0, 0)
  assert same(train, parts)
  assert [v.shape for v in validation] == [(0,), (0,)]


@pytest.mark.parametrize('share', [-0.1, 1, 1.5, float('nan')])
def test_hold_out_refuses_share(share):
  with pytest.raises(ConfigError, match=r'share=.*at least 0 and below 1'):
    partition.hold_out([np.arange(3)], share, 0)


def test_hold_out_refuses_an_empty_client():
  with pytest.raises(ConfigError, match=r'client 1 .*lower clients'):
    partition.hold_out([np.arange(3), np.arange(0)], 0.1, 0)


def test_rows_pads_with_zero():
  made = table([np.array([5, 6, 7]), np.array([9]), np.array([], int)], ids=[4, 2, 0])
  np.testing.assert_array_equal(made.index, [[5, 6, 7], [9, 0, 0], [0, 0, 0]])
  np.testing.assert_array_equal(made.size, [3, 1, 0])
  np.testing.assert_array_equal(made.id, [4, 2, 0])
  assert {leaf.dtype for leaf in made} == {np.dtype(np.int32)}


def test_rows_of_nothing_has_no_column():
  assert table([np.array([], int)] * 2, ids=[0, 1]).index.shape == (2, 0)


def test_overview_counts_absent_classes_too():
  counts = partition.overview([np.array([0, 1, 2]), np.array([3])], np.array([1, 1, 0, 2]), 4)
  np.testing.assert_array_equal(counts, [[1, 2, 0, 0], [0, 0, 1, 0]])


@pytest.mark.parametrize('make', [partition.shards, partition.dirichlet, skews.feddf_dirichlet, skews.exdir])
def test_labels_of_a_pandas_column_are_by_place(make):
  column = pd.Series(np.repeat(np.arange(5), 120)).sample(frac=1, random_state=0)
  of_array, of_column, of_list = (make(labels, 10, 0) for labels in (column.to_numpy(), column, column.tolist()))
  for one, other, last in zip(of_array, of_column, of_list, strict=True):
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(one, last)
  counts = partition.overview(of_column, column, 5)
  np.testing.assert_array_equal(counts[0], np.bincount(column.to_numpy()[of_array[0]], minlength=5))


@pytest.mark.parametrize('make', [partition.shards, partition.few, partition.dirichlet, skews.pathological])
@pytest.mark.parametrize('labels', [np.zeros((100, 1), int), np.eye(10, dtype=int)[np.arange(100) % 10]])
def test_labels_of_another_shape_are_refused(make, labels):
  with pytest.raises(ConfigError, match=r'^labels is int64\[100, 10?\]; give one for each row, \[N\]$'):
    make(labels, 4, 0)


@pytest.mark.parametrize(
  ('origin', 'said'),
  [
    (np.array([0, 0, 2, 2, 2, 0]), '^client 1 of the split has no row'),
    (np.array([0, 1, 2]), r'^origin is int64\[3\] for 6 rows; give the owner of each row, int\[N\] from 0'),
    (list('aabbcc'), r'^origin is <U1\[6\] for 6 rows; give the owner of each row'),
  ],
)
def test_origins_that_do_not_make_clients_are_refused(origin, said):
  with pytest.raises(ConfigError, match=said):
    partition.by_origin(np.zeros(6, int), 3, 0, origin)
