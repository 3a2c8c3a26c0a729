"""Label skews of published experiments: their laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkd.data.splits import partition, skews
from fedkd.errors import ConfigError

QUICK = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32)
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 300)).astype(np.int32)
SPLITS = {
  'pathological': {},
  'exdir': {'ways': 3, 'concentration': 1.0, 'smallest': 5},
  'feddf_dirichlet': {'concentration': 1.0},
  'kt_pfl': {},
}
COMPLETE = ('pathological', 'exdir', 'feddf_dirichlet')
every_split = pytest.mark.parametrize('name', SPLITS)


def made(name, seed=0, clients=20, labels=LABELS, **how):
  return getattr(skews, name)(labels, clients, seed, **{**SPLITS[name], **how})


def counts(parts, labels=LABELS):
  return partition.overview(parts, labels, 10)


@every_split
@QUICK
@given(seed=seeds)
def test_parts_are_disjoint_ascending_and_deterministic(name, seed):
  parts, again = made(name, seed), made(name, seed)
  rows = np.concatenate(parts)
  assert len(parts) == 20
  assert min(map(len, parts)) >= 1
  assert len(np.unique(rows)) == len(rows)
  assert all(np.all(np.diff(part) > 0) for part in parts)
  assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
  assert len(rows) == len(LABELS) or name not in COMPLETE


@QUICK
@given(seed=seeds, balanced=st.booleans())
def test_pathological_clients_have_consecutive_classes(seed, balanced):
  """Of 20 clients with 2 of 10 classes, 0 to 3 have the classes 0 and 1, and so on."""
  found = counts(made('pathological', seed, balanced=balanced))
  for k in range(20):
    np.testing.assert_array_equal(np.flatnonzero(found[k]), [k // 4 * 2, k // 4 * 2 + 1])
  if balanced:
    assert set(np.unique(found)) == {0, 75}
  assert found[np.arange(20) % 4 < 3].max() < 75 + balanced
  np.testing.assert_array_equal(found.sum(0), 300)


@QUICK
@given(seed=seeds)
def test_exdir_clients_have_few_classes(seed):
  found = counts(made('exdir', seed))
  assert (found > 0).sum(1).max() <= 3
  assert found.sum(1).min() >= 5
  np.testing.assert_array_equal(found.sum(0), 300)


@QUICK
@given(seed=seeds, clients=st.sampled_from([10, 12, 20]))
def test_feddf_clients_are_of_equal_size(seed, clients):
  assert {len(part) for part in made('feddf_dirichlet', seed, clients)} == {3000 // clients}


def test_feddf_is_skewed_by_its_concentration():
  most = [(counts(made('feddf_dirichlet', 0, concentration=c)) / 150).max(1).mean() for c in (0.1, 1.0, 100.0)]
  assert most[0] > most[1] > most[2]
  assert most[2] < 0.25


@QUICK
@given(seed=seeds)
def test_kt_pfl_clients_have_neighbouring_labels_and_ten_rows_of_each(seed):
  labels = np.repeat(np.arange(10), 6000)
  found = partition.overview(made('kt_pfl', seed, labels=labels), labels, 10)
  for k in range(20):
    np.testing.assert_array_equal(np.flatnonzero(found[k]), np.sort((k + np.arange(3)) % 10))
  assert found[found > 0].min() >= 10
  more = found[found > 10]
  assert more.min() >= 10 + 2 * 300  # twice a number of 300 and more
  assert np.all((more - 10) % 2 == 0)
  assert found.sum(0).max() < 6000


@pytest.mark.parametrize(
  ('name', 'how', 'message'),
  [
    ('pathological', {'ways': 11}, r'ways=11 must be between 1 and the 10 classes of the data'),
    ('pathological', {'clients': 2000}, r'class 0 has 300 rows for 400 clients, too few to be cut'),
    ('exdir', {'ways': 1, 'clients': 9}, r'ways=1 for clients=9 cannot hold 10 classes'),
    ('feddf_dirichlet', {'clients': 9}, r'clients=9 is less than a block of 10'),
    ('kt_pfl', {'clients': 101}, r'class \d has 300 rows, less than 10 for each of its clients'),
    ('kt_pfl', {'clients': 0}, r'clients=0 must be a whole number of at least 1'),
  ],
)
def test_impossible_splits_are_refused_in_a_sentence(name, how, message):
  with pytest.raises(ConfigError, match=message):
    made(name, **how)


def test_labels_that_are_no_class_numbers_are_refused():
  for name in ('pathological', 'exdir', 'kt_pfl'):
    for labels, told in ((LABELS.astype(str), '[0-9]'), (LABELS - 1, '-1'), (LABELS * 1.0, r'[0-9]\.0')):
      with pytest.raises(ConfigError, match=rf'labels has {told} \(.*\); give class numbers from 0 up'):
        made(name, labels=labels)
