import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkd.data import sources
from fedkd.data.splits import partition, split
from fedkd.errors import ConfigError

QUICK = settings(max_examples=40, deadline=None)


def same(a, b):
  return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def fake(labels, origin=None, origins=(), public=0, tested=False):
  labels = np.asarray(labels, np.int32)
  image = np.zeros((len(labels), 1, 1, 1), np.uint8)
  classes = int(labels.max()) + 1
  names = tuple(map(str, range(classes)))
  tests = 3 if tested else 0
  return sources.Source('fake', image, labels, image[:tests], labels[:tests], classes, names, origin, origins, public)


@pytest.mark.parametrize(('alpha', 'sizes'), [(0.05, (700, 50)), (0.1, (650, 100)), (0.15, (600, 150))])
@pytest.mark.parametrize('aligned', [True, False])
def test_rotated_mnist_has_the_published_sizes(alpha, sizes, aligned):
  label = np.tile(np.arange(1000) % 10, 4)
  origin = np.repeat(np.arange(4), 1000)
  source = fake(label, origin, ('M0', 'M20', 'M40', 'M60'))
  parts = partition.by_origin(label, 4, 0, origin)
  found = split.shares(source, parts, 0, 0.1, alpha, 0.15, aligned)
  for k in range(4):
    parts = found.private[k], found.shared[k], found.validation[k], found.test[k]
    assert tuple(map(len, parts)) == (*sizes, 100, 150)
    assert np.bincount(label[found.test[k]]).tolist() == [15] * 10
  assert np.array_equal(found.public, np.concatenate(found.shared))
  # Aligned domains test the same digits.
  assert same([rows % 1000 for rows in found.test], [found.test[0]] * 4) == aligned


@QUICK
@given(
  labels=st.lists(st.integers(0, 3), min_size=80, max_size=200),
  clients=st.integers(1, 3),
  shares=st.tuples(*[st.sampled_from([0.0, 0.1, 0.29, 0.3])] * 3),
  aligned=st.booleans(),
  seed=st.integers(0, 2**32),
)
def test_shares_cut_each_class_of_each_client(labels, clients, shares, aligned, seed):
  source = fake(labels * clients if aligned else labels, tested=True)
  parts = (partition.contiguous if aligned else partition.iid)(source.train_label, clients, seed)
  validation, public, test = shares
  enough = True
  try:
    found = split.shares(source, parts, seed, validation, public, test, aligned)
  except ConfigError as error:
    enough = 'no class has enough' not in str(error)
    found = None
  assert enough == (found is not None)
  if not found:
    return
  assert same(found.private, split.shares(source, parts, seed, validation, public, test, aligned).private)
  for k, part in enumerate(parts):
    pieces = [found.private[k], found.shared[k], found.validation[k], found.test[k]]
    assert all(np.all(np.diff(piece) > 0) and piece.dtype == np.int64 for piece in pieces)
    assert np.array_equal(np.sort(np.concatenate(pieces)), part)
    if public or test:
      count = np.bincount(source.train_label[part], minlength=4)
      for piece, share in zip(pieces[1:], (public, validation, test), strict=True):
        expected = [round(share * 100) * n // 100 for n in count]
        assert np.bincount(source.train_label[piece], minlength=4).tolist() == expected


def test_clients_that_are_no_copies_of_each_other_are_not_aligned():
  source = fake(np.arange(120) % 3, tested=True)
  for parts in ([np.arange(60), np.arange(61, 120)], [np.arange(60), np.arange(61, 121) % 120]):
    with pytest.raises(ConfigError, match=r'^data.aligned=True is for .* set data.partition=by_origin and data.rows=0'):
      split.shares(source, parts, 0, 0.1, 0.1, 0.1, aligned=True)


@pytest.mark.parametrize('deal', [partition.by_origin, partition.writers, partition.few_by_origin])
def test_rows_without_an_owner_are_dealt_out_by_none(deal):
  origin = np.array([0] * 40 + [1] * 40 + [-1] * 8)
  with pytest.raises(ConfigError, match=r'^origin has -1, which is no owner') as refused:
    deal(np.arange(88) % 2, 2, 0, origin)
  assert 'official test rows that data.merge_test=True adds have none; set' in refused.value.of_config


def test_without_public_and_test_shares_it_is_hold_out():
  source = fake(np.arange(100) % 7, tested=True)
  parts = partition.iid(source.train_label, 3, 5)
  found = split.shares(source, parts, 5, 0.2)
  private, validation = partition.hold_out(parts, 0.2, 5)
  assert same(found.private, private)
  assert same(found.validation, validation)
  assert [len(rows) for rows in (*found.shared, *found.test, found.public)] == [0] * 7


# Dog, elephant, giraffe, guitar, horse, house, person.
PACS = {
  'photo': [189, 202, 182, 186, 199, 280, 432],
  'art': [379, 255, 285, 184, 201, 295, 449],
  'cartoon': [389, 457, 346, 135, 324, 288, 405],
  'sketch': [772, 740, 753, 608, 816, 80, 160],
}


@pytest.fixture(scope='module')
def pacs():
  label = np.concatenate([np.repeat(np.arange(7), count) for count in PACS.values()])
  origin = np.repeat(np.arange(4), [sum(count) for count in PACS.values()])
  source = fake(label, origin, tuple(PACS))
  return source, partition.by_origin(label, 4, 0, origin)


def test_pacs_paper_has_the_sizes_of_table_3(pacs):
  source, parts = pacs
  found = split.pacs_paper(source, parts, 0)
  assert [len(rows) for rows in found.private] == [1499, 1840, 2107, 3531]
  assert [len(rows) for rows in found.shared] == [164, 201, 230, 391]
  assert [len(rows) for rows in found.validation] == [171, 208, 237, 398]
  assert [len(rows) for rows in found.test] == [1506, 1847, 2114, 3538]
  for k, part in enumerate(parts):
    assert np.array_equal(np.union1d(found.private[k], found.validation[k]), part)
    assert not set(found.private[k]) & set(found.validation[k])
    assert np.array_equal(np.union1d(found.shared[k], found.test[k]), part)
    assert not set(found.shared[k]) & set(found.test[k])
    # The leak that the name and the docstring promise: about nine of ten test rows are trained on.
    assert len(set(found.test[k]) & set(found.private[k])) > 0.8 * len(found.test[k])
  assert same(found.shared, split.pacs_paper(source, parts, 0).shared)
  assert not same(found.shared, split.pacs_paper(source, parts, 1).shared)


def test_shares_of_pacs_are_floors_of_each_class_without_leaks(pacs):
  source, parts = pacs
  found = split.shares(source, parts, 0, 0.1, 0.1, 0.15)
  for k, counts in enumerate(PACS.values()):
    assert len(found.test[k]) == sum(15 * n // 100 for n in counts)
    assert len(found.shared[k]) == len(found.validation[k]) == sum(n // 10 for n in counts)
    together = np.concatenate([found.private[k], found.shared[k], found.validation[k], found.test[k]])
    assert np.array_equal(np.sort(together), parts[k])


def test_seeds_and_clients_draw_differently():
  source = fake(np.tile(np.arange(200) % 4, 2))
  parts = [np.arange(200), np.arange(200, 400)]
  one, other = (split.shares(source, parts, seed, 0.1, 0.1, 0.2) for seed in (0, 1))
  assert not same(one.test, other.test)
  assert not np.array_equal(one.test[0], one.test[1] - 200)
  # What a client's split is does not depend on who else there is.
  assert same(split.shares(source, parts[:1], 0, 0.1, 0.1, 0.2).test, one.test[:1])


def test_aligned_copies_never_leak_a_test_example():
  source = fake(np.tile(np.arange(100) % 5, 3))
  parts = np.split(np.arange(300), 3)
  found = split.shares(source, parts, 3, 0.1, 0.1, 0.2, aligned=True)
  tested = {row % 100 for row in np.concatenate(found.test)}
  trained = {row % 100 for row in np.concatenate([*found.private, *found.shared, *found.validation])}
  assert len(tested) == 20
  assert not tested & trained


def test_aligned_copies_never_leak_an_example_that_is_held_out():
  """Also where nothing else is cut off, as of a set with test rows for all clients."""
  source = fake(np.tile(np.arange(100) % 5, 3))._replace(test_label=np.arange(5))
  found = split.shares(source, np.split(np.arange(300), 3), 3, 0.1, aligned=True)
  held, trained = ({row % 100 for row in np.concatenate(rows)} for rows in (found.validation, found.private))
  assert len(held) == 10
  assert not held & trained


def test_public_rows_of_the_source_are_everybodys():
  source = fake(np.arange(60) % 3, public=20, tested=True)
  found = split.shares(source, partition.iid(source.train_label[:40], 4, 0), 0)
  assert np.array_equal(found.public, np.arange(40, 60))
  assert [len(rows) for rows in found.shared] == [0] * 4
  assert max(map(max, found.private)) < 40


@pytest.mark.parametrize(
  ('asked', 'message'),
  [
    ({'validation': 1.0}, r'validation=1\.0 must be a number of at least 0 and below 1'),
    ({'public_share': -0.1}, r'public_share=-0\.1 must be a number of at least 0 and below 1'),
    ({'test_share': float('nan')}, r'test_share=nan must be a number of at least 0 and below 1'),
    (
      {'validation': 0.2, 'public_share': 0.3, 'test_share': 0.5},
      r'data\.test_share=0\.5 \+ data\.public_share=0\.3 \+ data\.validation=0\.2 leaves nothing to train on; lower',
    ),
    ({}, r'data\.test_share=0 leaves data\.name=fake without test rows, .*set it above 0'),
    (
      {'test_share': 0.01},
      r'data\.test_share=0\.01 gives domain Alps no row of its 40, .*raise data\.test_share or lower',
    ),
    ({'test_share': 0.2, 'public_share': 0.01}, r'data\.public_share=0\.01 gives domain Alps no row'),
    ({'test_share': 0.2, 'validation': 0.01}, r'data\.validation=0\.01 gives domain Alps no row'),
  ],
)
def test_shares_refuses(asked, message):
  origin = np.repeat([0, 1], 40)
  source = fake(np.tile(np.arange(40) % 2, 2), origin, ('Alps', 'Andes'))
  with pytest.raises(ConfigError, match=message):
    split.shares(source, partition.by_origin(source.train_label, 2, 0, origin), 0, **asked)


def test_shares_names_clients_that_are_no_domains():
  source = fake(np.tile(np.arange(40) % 2, 2), np.repeat([0, 1], 40), ('Alps', 'Andes'))
  with pytest.raises(ConfigError, match=r'gives client 0 no row'):
    split.shares(source, partition.iid(source.train_label, 2, 0), 0, test_share=0.01)


@pytest.mark.parametrize('make', [split.shares, split.pacs_paper])
def test_refuses_an_empty_client_and_two_public_sets(make):
  source = fake(np.arange(60) % 3, public=20, tested=True)
  with pytest.raises(
    ConfigError, match=r'data\.public_share=0\.1 cannot be combined with the 20 public rows .*set data\.publ'
  ):
    make(source, [np.arange(40)], 0, public_share=0.1)
  with pytest.raises(ConfigError, match=r'client 1 of the split has no example to train on; lower data\.clients'):
    make(source._replace(public=0), [np.arange(60), np.arange(0)], 0, public_share=0.1)


def test_floors_are_those_of_exact_arithmetic():
  source = fake(np.zeros(100))  # 0.29 * 100 is 28.999999999999996
  found = split.shares(source, [np.arange(100)], 0, 0.29, 0.29, 0.29)
  assert [len(rows[0]) for rows in found[:4]] == [13, 29, 29, 29]
