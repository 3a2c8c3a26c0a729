import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkd.data import partition, sources, split
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
  source = fake(labels, tested=True)
  parts = partition.iid(source.train_label, clients, seed)
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


def test_without_public_and_test_shares_it_is_hold_out():
  source = fake(np.arange(100) % 7, tested=True)
  parts = partition.iid(source.train_label, 3, 5)
  found = split.shares(source, parts, 5, 0.2)
  private, validation = partition.hold_out(parts, 0.2, 5)
  assert same(found.private, private)
  assert same(found.validation, validation)
  assert [len(rows) for rows in (*found.shared, *found.test, found.public)] == [0] * 7
