"""Partitions in files: what is written is read, and what is not that is refused."""

import json

import numpy as np
import pytest

from fedkd.data.splits import stored
from fedkd.errors import ConfigError

LABELS = np.array([0, 1, 0, 1, 2, 2, 0], np.int32)
PARTS = [[0, 3], [6, 1, 2]]  # rows 4 and 5 have no owner


@pytest.mark.parametrize('name', ['parts.json', 'parts.npz'])
def test_round_trip(tmp_path, name):
  stored.write(tmp_path / name, PARTS, LABELS)
  parts = stored.stored(LABELS, 2, 5, str(tmp_path / name))
  assert [part.tolist() for part in parts] == [[0, 3], [1, 2, 6]]
  assert all(part.dtype == np.int64 for part in parts)
  assert [part.tolist() for part in stored.read(tmp_path / name)] == [[0, 3], [1, 2, 6]]


def test_each_seed_may_have_a_file(tmp_path):
  for seed in (3, 4):
    (tmp_path / f'parts-{seed}.json').write_text(json.dumps([[seed], [0, 1]]))
  file = str(tmp_path / 'parts-{seed}.json')
  assert [stored.stored(LABELS, 2, seed, file)[0].tolist() for seed in (3, 4)] == [[3], [4]]
  (tmp_path / 'named.json').write_text(json.dumps({'clients': {'ann': [1], 'bob': [2, 5]}}))
  assert [part.tolist() for part in stored.stored(LABELS, 2, 0, str(tmp_path / 'named.json'))] == [[1], [2, 5]]


@pytest.mark.parametrize(
  ('text', 'match'),
  [
    ('[[0], [1], [2]]', r' has 3 clients, and data.clients=2; make them equal'),
    ('[[0], []]', r': client 1 has no rows; give it at least one, or leave it out'),
    ('[[0], [1, 7]]', r': the 2 rows of client 1, from 1 to 7, must be distinct numbers from 0 to 6'),
    ('[[0, 0], [1]]', r': the 2 rows of client 0, from 0 to 0, must be distinct'),
    ('[[-1], [1]]', r': the 1 rows of client 0, from -1 to -1, must be'),
    ('[[0.5], [1]]', r' cannot be read \(a client has float64\[1\] in place of row numbers\); give a .json of a list'),
    ('[0, 1]', r' cannot be read \(a client has int64\[\] in place of'),
    ('{}', r' cannot be read \(it has nothing and no clients\); give'),
    ('{"parts": [[0], [1]]}', r' cannot be read \(it has parts and no clients\); give'),
    ('[[0', r' cannot be read \(.*\); give'),
    (
      '{"clients": [[0], [1]], "rows": 8}',
      r' was written for 8 rows of other data than these 7; choose',
    ),
  ],
)
def test_other_files_are_refused(tmp_path, text, match):
  (tmp_path / 'parts.json').write_text(text)
  with pytest.raises(ConfigError, match=r'^data.partition.file=.*parts.json' + match):
    stored.stored(LABELS, 2, 0, str(tmp_path / 'parts.json'))


def test_a_partition_of_other_labels_is_refused(tmp_path):
  stored.write(tmp_path / 'parts.npz', PARTS, LABELS)
  with pytest.raises(ConfigError, match=r'was written for 7 rows of other data than these 7'):
    stored.stored(LABELS[::-1], 2, 0, str(tmp_path / 'parts.npz'))
  for make, match in (
    (lambda: stored.stored(LABELS, 2, 0), r"^data.partition.file='' names no file"),
    (lambda: stored.stored(LABELS, 2, 0, str(tmp_path / 'no.npz')), r'no.npz cannot be read \(.*No such file'),
    (lambda: stored.write(tmp_path / 'parts.csv', PARTS, LABELS), r'give a name that ends in .json or .npz'),
    (lambda: stored.write(tmp_path / 'no' / 'parts.npz', PARTS, LABELS), r'cannot be written to .*No such file'),
  ):
    with pytest.raises(ConfigError, match=match):
      make()


@pytest.mark.parametrize(
  ('rows', 'match'),
  [
    ([0.5, 3.7], r'parts\[1\] is float64\[2\]; give row numbers'),
    (LABELS == 0, r'parts\[1\] is bool\[7\]; give row numbers'),
    ([1, 7], r'parts\[1\] names row 7 of 7'),
    ([1, 1], r'parts\[1\] names row 1 twice'),
  ],
)
def test_what_are_no_row_numbers_is_not_written(tmp_path, rows, match):
  with pytest.raises(ValueError, match=match):
    stored.write(tmp_path / 'a.json', [[0, 3], rows], LABELS)
  assert not (tmp_path / 'a.json').exists()
