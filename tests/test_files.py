"""Files with checksums: whatever bit is flipped and wherever they are cut, they hold what was written or say so."""

import json

import pytest
from matplotlib.figure import Figure

from fedkd import files
from fedkd.analysis import figures
from fedkd.errors import ConfigError
from fedkd.experiment.storage import lock

VALUE = {'rounds': 3, 'seeds': [0, 1], 'state_sha256': 'a' * 64}
ROWS = [{'phase': 0, 'round': at, 'accuracy': [0.1 * at], 'seconds': 0.5 + at} for at in (0, 2, 4)]


def flips(content):
  for at in range(len(content)):
    for bit in range(8):
      changed = bytearray(content)
      changed[at] ^= 1 << bit
      yield bytes(changed)


def cuts(content):
  return (content[:length] for length in range(len(content)))


@pytest.mark.parametrize(
  ('text', 'parts'),
  [
    ('mine.py', ('mine.py', '', '')),
    ('configs/mine.py:small,data=npz:a.npz', ('configs/mine.py', ':', 'small,data=npz:a.npz')),
    ('C:\\own\\mine.py', ('C:\\own\\mine.py', '', '')),
    ('c:/own/mine.py:small,data=npz:D:\\a.npz', ('c:/own/mine.py', ':', 'small,data=npz:D:\\a.npz')),
    ('c:small', ('c', ':', 'small')),
  ],
)
def test_the_colon_of_a_drive_begins_no_string(text, parts):
  assert files.with_string(text) == parts


@pytest.fixture
def path(tmp_path):
  return tmp_path / 'file.json'


def test_a_sealed_object_comes_back(path):
  files.write_sealed(path, VALUE)
  assert files.read_sealed(path) == VALUE
  assert len(json.loads(path.read_text())['sha256']) == 64
  assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize('damage', [flips, cuts])
def test_a_damaged_object_is_refused(path, damage):
  files.write_sealed(path, VALUE)
  written, refused = path.read_bytes(), 0
  for changed in damage(written):
    path.write_bytes(changed)
    try:
      assert files.read_sealed(path) == VALUE
    except ConfigError:
      refused += 1
  assert refused >= len(written) - 1  # without the last line feed it is whole


@pytest.mark.parametrize('content', [b'[' * 100_000, b'\xff\xfe', b'7', b'[1]', b''])
def test_what_is_no_object_is_refused_in_a_sentence(path, content):
  path.write_bytes(content)
  with pytest.raises(ConfigError, match=r'file\.json is damaged \('):
    files.read_sealed(path)
  path.unlink()
  with pytest.raises(ConfigError, match=r'is damaged \(No such file'):
    files.read_sealed(path)


def test_an_object_without_checksum_is_of_an_older_run(path):
  path.write_text(json.dumps(VALUE, indent=1) + '\n')
  assert files.read_sealed(path) == VALUE


@pytest.fixture
def metrics(tmp_path):
  path, after = tmp_path / 'metrics.jsonl', ''
  for row in ROWS:
    after = files.append(path, row, after)
  return path


def test_evaluations_come_back_without_their_checksums(metrics):
  assert files.read(metrics) == ROWS
  lines = [json.loads(line) for line in metrics.read_text().splitlines()]
  assert [line.pop('sha256') for line in lines] == files.evaluations(metrics).sums
  assert lines == ROWS


@pytest.mark.parametrize('damage', [flips, cuts])
def test_damaged_evaluations_are_never_others(metrics, damage):
  """Those before the damage are read; the file is refused unless the damage may be that of a crash, at its end."""
  for changed in damage(metrics.read_bytes()):
    metrics.write_bytes(changed)
    found = files.evaluations(metrics)
    assert found.rows == ROWS[: len(found.rows)]
    if found.damage:
      with pytest.raises(ConfigError, match=r'metrics\.jsonl is damaged \(line \d: .*start the run again'):
        files.read(metrics)
    else:
      assert changed.count(b'\n') <= len(found.rows)


@pytest.mark.parametrize('order', [(0, 2), (1, 2), (0, 0, 1, 2), (0, 2, 1)])
def test_lines_that_are_missing_doubled_or_swapped_are_noticed(metrics, order):
  lines = metrics.read_bytes().splitlines(keepends=True)
  metrics.write_bytes(b''.join(lines[at] for at in order))
  with pytest.raises(ConfigError, match=r'line \d: its contents do not match'):
    files.read(metrics)


def test_evaluations_of_an_older_run_get_checksums_once_it_goes_on(metrics):
  metrics.write_text(''.join(json.dumps(row) + '\n' for row in ROWS))
  assert files.read(metrics) == ROWS
  after = files.cut(metrics, 2)
  files.append(metrics, ROWS[2], after)
  assert files.read(metrics) == ROWS
  assert metrics.read_text().count('"sha256"') == 3
  metrics.write_text('{"phase": 0, "round": 1.5}\n')
  with pytest.raises(ConfigError, match='it is not an evaluation'):
    files.read(metrics)


def test_a_file_that_cannot_be_written_leaves_the_old_one(path, monkeypatch):
  files.write_json(path, VALUE)
  monkeypatch.setattr(files.os, 'fsync', lambda opened: (_ for _ in ()).throw(OSError(28, 'No space left on device')))
  with pytest.raises(OSError, match='No space'):
    files.write_json(path, {})
  assert json.loads(path.read_text()) == VALUE


def test_runs_below_are_directories_with_a_config_and_not_what_is_inside_of_them(tmp_path):
  for name in ('b', 'a/deep', 'a/deep/phases/0', 'none'):
    (tmp_path / name).mkdir(parents=True)
    if name != 'none':
      (tmp_path / name / 'config.json').touch()
  assert files.runs_below(tmp_path) == [tmp_path / 'a' / 'deep', tmp_path / 'b']
  assert files.runs_below(tmp_path / 'b') == [tmp_path / 'b']
  assert files.runs_below(tmp_path / 'nowhere') == []


@pytest.mark.parametrize('write', [
  lambda folder: files.write_json(folder / 'file.json', VALUE),
  lambda folder: figures.save(Figure(), folder / 'accuracy.png'),
  lambda folder: files.append(folder / 'metrics.jsonl', ROWS[0], ''),
  lambda folder: lock.held(folder).__enter__(),
])  # fmt: skip
@pytest.mark.parametrize('there', [True, False])
def test_nothing_is_written_where_a_symbolic_link_leads(tmp_path, write, there):
  """Of the files that a run opens for writing, each one's name is a link to somebody's file, or to none."""
  theirs, folder = tmp_path / 'theirs', tmp_path / 'run'
  folder.mkdir()
  for name in ('file.json.tmp', 'accuracy.png.tmp', 'metrics.jsonl', 'lock'):
    (folder / name).symlink_to(theirs)
  if there:
    theirs.write_text('theirs')
  with pytest.raises((OSError, ConfigError), match=r'(tmp|metrics\.jsonl|lock) is a symbolic link'):
    write(folder)
  assert theirs.exists() == there
  assert not there or theirs.read_text() == 'theirs'
