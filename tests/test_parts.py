"""Natural partitions: every row has the owner that its column names."""

import numpy as np
import optax
import pandas as pd
import pytest

import fedkd


@pytest.mark.parametrize(
  'users', [['b', 'a', 'b', 'c'], [2**40, -3, 2**40, 2**41], [2**63, -1, 2**63, 2**63 + 1], [0.5, 0.1, 0.5, 9.0]]
)
def test_rows_are_those_of_the_value(users):
  parts = fedkd.parts.by(users)
  assert [part.tolist() for part in parts] == [[1], [0, 2], [3]]


def test_of_many_rows_each_is_owned_once():
  column = np.random.default_rng(0).integers(0, 30, 1000)
  parts = fedkd.parts.by(column)
  assert sorted(np.concatenate(parts)) == list(range(1000))
  for value, part in zip(np.unique(column), parts, strict=True):
    np.testing.assert_array_equal(part, np.flatnonzero(column == value))


def test_a_federation_has_a_client_per_user():
  x, y, users = np.eye(4, dtype=np.float32), np.arange(4) % 2, ['b', 'a', 'b', 'c']
  federation = fedkd.federation(x, y, fedkd.parts.by(users), [fedkd.models.MLP((), classes=2)] * 3)
  fedkd.simulation(fedkd.methods.private(optax.sgd(0.1), steps=1, batch=2), federation)
  np.testing.assert_array_equal(federation.private[0].size, [1, 2, 1])


@pytest.mark.parametrize(
  ('column', 'said'),
  [
    ([], r'^column is'),
    ([[1, 2]], r'^column is int64\[1, 2\]; give one value'),
    ([1.0, np.nan], '^column has nan in row 1; leave out'),
    (['a', float('nan'), 'b'], '^column has nan in row 1; leave out'),
    (['7', 7, 'x'], '^column has values of several types, int, str; make them all'),
    (np.array(['a', None, 'a'], object), '^column has None in row 1; leave out'),
    (np.array(['2024-01-01', 'NaT'], 'datetime64[D]'), '^column has NaT in row 1; leave out'),
    (pd.Series(['a', None], dtype='string'), '^column has <NA> in row 1; leave out'),
    (np.array(['1', 1, 'a'], object), '^column has values of several types, int, str; make them all text or numbers'),
  ],
)
def test_what_names_no_owner_is_refused(column, said):
  with pytest.raises(ValueError, match=said):
    fedkd.parts.by(column)
