"""Runs seen from outside: the state that their files say, whatever is cut off, and when the view ends."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import rich.console

from fedkd import files
from fedkd.errors import ConfigError, DivergedError, StoppedError
from fedkd.experiment.storage import lock
from fedkd.watch import states, view


def make(path, rows=((0, 0), (0, 5), (1, 4)), summary=None):
  """A run of five rounds and then ten, with evaluations of (phase, round)."""
  path.mkdir(parents=True)
  files.write_sealed(path / 'config.json', {'rounds': 10, 'before': [{'name': 'private', 'rounds': 5}]})
  after = ''
  for phase, round in rows:
    done = 5 * phase + round
    row = {'phase': phase, 'round': round, 'accuracy': [0.25, None, 0.75], 'seconds': 2.0 * done, 'seed': 1}
    after = files.append(path / 'metrics.jsonl', row, after)
  if summary:
    files.write_sealed(path / 'summary.json', {'rounds': summary})
  return path


def end_with(path, error):
  """A process that takes the directory and ends so."""
  with contextlib.suppress(type(error)), lock.held(path):
    raise error


def test_how_far_a_running_run_is(tmp_path):
  path = make(tmp_path / 'run')
  with lock.held(path):
    found = states.of_run(path, 'run')
  assert found[:5] == ('run', 'running', 9, 15, 0.5)
  assert 10 < found.left <= 18 / 9 * 6  # two seconds a round, less those since the evaluation


def test_time_left_goes_down_between_evaluations(tmp_path):
  path = make(tmp_path / 'run')
  then = time.time() - 5
  os.utime(path / 'metrics.jsonl', (then, then))
  with lock.held(path):
    assert 6 < states.of_run(path, 'run').left <= 7
  os.utime(path / 'metrics.jsonl', (0, 0))
  with lock.held(path):
    assert states.of_run(path, 'run').left == 0


@pytest.mark.parametrize(
  ('error', 'state', 'why'),
  [
    (DivergedError('loss of client 3 is NaN'), 'failed', 'loss of client 3 is NaN'),
    (OSError(28, 'No space left on device'), 'failed', '[Errno 28] No space left on device'),
    (StoppedError(15, 'stopped after round 4'), 'stopped', 'stopped after round 4'),
    (KeyboardInterrupt(), 'stopped', 'KeyboardInterrupt'),
  ],
)
def test_why_a_run_ended_early(tmp_path, error, state, why):
  path = make(tmp_path / 'run')
  end_with(path, error)
  found = states.of_run(path, 'run')
  assert (found.state, found.why) == (state, why)
  with lock.held(path):  # started again: what was is forgotten
    assert states.of_run(path, 'run').state == 'running'
  assert states.of_run(path, 'run').why == 'ended without a word, as by a kill'


def test_a_kill_leaves_a_stopped_run(tmp_path):
  path = make(tmp_path / 'run')
  program = 'import sys, time\nfrom fedkd.experiment.storage import lock\nimport pathlib\n'
  program += 'with lock.held(pathlib.Path(sys.argv[1])):\n  print("held", flush=True)\n  time.sleep(60)\n'
  with subprocess.Popen([sys.executable, '-c', program, str(path)], stdout=subprocess.PIPE) as process:
    process.stdout.readline()
    assert states.of_run(path, 'run').state == 'running'
    process.send_signal(signal.SIGKILL)
  assert states.of_run(path, 'run').state == 'stopped'


def test_a_run_of_a_sweep_that_waits_for_its_turn_was_not_killed(tmp_path):
  """Its config is written before the sweep begins."""
  waiting = states.of_run(make(tmp_path / 'run', rows=()), 'run')
  assert waiting == states.State('run', 'stopped', 0, 15, why='has not begun')


def test_finished_is_a_summary_of_all_rounds(tmp_path):
  assert states.of_run(make(tmp_path / 'one', summary=10), 'one').state == 'finished'
  longer = make(tmp_path / 'two', summary=5)  # of fewer rounds: it goes on
  assert states.of_run(longer, 'two').state == 'stopped'


def test_a_finished_run_with_a_damaged_file_has_failed(tmp_path):
  for name in ('whole', 'cut', 'older'):
    path = make(tmp_path / name, summary=10)
    if name != 'older':
      digests = {'metrics.jsonl': files.checksum(path / 'metrics.jsonl')}
      files.write_sealed(path / 'summary.json', {'rounds': 10, 'digests': digests})
  assert states.of_run(tmp_path / 'cut', 'cut').state == 'finished'
  lines = (tmp_path / 'cut' / 'metrics.jsonl').read_text().splitlines(keepends=True)
  (tmp_path / 'cut' / 'metrics.jsonl').write_text(''.join(lines[:-1]))
  (tmp_path / 'older' / 'metrics.jsonl').write_text('no evaluation\n')
  found = {one.run: one for one in states.below(tmp_path)}
  assert {name: one.state for name, one in found.items()} == {'whole': 'finished', 'cut': 'failed', 'older': 'failed'}
  assert found['cut'].why == 'metrics.jsonl is damaged or has changed since the run was finished'
  assert 'metrics.jsonl is damaged (line 1' in found['older'].why


@pytest.mark.parametrize('cut', [2, 30, 90])
def test_a_line_that_is_being_written_is_not_there_yet(tmp_path, cut):
  path = make(tmp_path / 'run')
  metrics = path / 'metrics.jsonl'
  metrics.write_bytes(metrics.read_bytes()[:-cut])
  with lock.held(path):
    assert states.of_run(path, 'run')[1:4] == ('running', 5, 15)


def test_what_is_missing_or_damaged_ends_nothing(tmp_path):
  for name in ('empty', 'nothing_yet', 'no_json', 'a_list', 'metrics', 'older'):
    make(tmp_path / name, rows=() if name == 'nothing_yet' else ((0, 0),))
  (tmp_path / 'empty' / 'config.json').write_text('')
  (tmp_path / 'no_json' / 'config.json').write_text('{"rounds": 10, "bef')
  (tmp_path / 'a_list' / 'config.json').write_text(json.dumps({'rounds': 'x', 'before': [1]}))
  (tmp_path / 'metrics' / 'metrics.jsonl').write_text('no evaluation\n')
  for name, accuracy in (('ragged', [[1], [1, 2]]), ('words', ['a']), ('single', 0.5)):
    row = json.dumps({'phase': 0, 'round': 1, 'accuracy': accuracy})
    (make(tmp_path / name) / 'metrics.jsonl').write_text(row + '\n')
  found = {one.run: one for one in states.below(tmp_path)}
  assert {name: one.state for name, one in found.items()} == {
    'a_list': 'failed', 'empty': 'failed', 'metrics': 'failed', 'no_json': 'failed', 'nothing_yet': 'stopped',
    'older': 'stopped', 'ragged': 'failed', 'single': 'failed', 'words': 'failed',
  }  # fmt: skip
  assert 'config.json is damaged' in found['no_json'].why
  assert 'metrics.jsonl is damaged (line 1' in found['metrics'].why
  assert found['nothing_yet'][2:6] == (0, 15, None, None)


def test_a_look_does_not_keep_a_run_from_starting(tmp_path):
  """Whose lock is taken for a moment, by somebody who looks."""
  opened = open(tmp_path / 'lock', 'ab')  # noqa: SIM115
  lock.fcntl.flock(opened, lock.fcntl.LOCK_SH)
  threading.Timer(lock.LOOK / 5, opened.close).start()
  with lock.held(tmp_path):
    assert lock.look(tmp_path).is_held


def terminal():
  return rich.console.Console(file=io.StringIO(), force_terminal=True, width=120)


def test_the_view_ends_when_nothing_is_running(tmp_path, monkeypatch):
  monkeypatch.setattr(view, 'PATIENCE', 0.05)
  path = make(tmp_path / 'one')
  make(tmp_path / 'two', summary=10)
  held = contextlib.ExitStack()
  held.enter_context(lock.held(path))

  def finish(seconds, ends=(lambda: files.write_sealed(path / 'summary.json', {'rounds': 10}), held.close)):
    seen.append(states.of_run(path, 'one').state)
    if len(seen) == 3:
      [end() for end in ends]

  seen = []
  monkeypatch.setattr(view.time, 'sleep', lambda seconds: (finish(seconds), threading.Event().wait(0.01)))
  console = terminal()
  found = view.watch(tmp_path, console=console)
  assert [one.state for one in found] == ['finished', 'finished']
  assert seen[:3] == ['running'] * 3
  assert '1 running, 1 finished' in console.file.getvalue()
  assert view.exit_code(found) == 0


def test_a_process_that_starts_runs_is_waited_for(tmp_path, monkeypatch):
  monkeypatch.setattr(view, 'PATIENCE', 0.05)
  make(tmp_path / 'one', summary=10)
  looks = []
  held = contextlib.ExitStack()
  held.enter_context(lock.held(tmp_path))
  monkeypatch.setattr(view.time, 'sleep', lambda seconds: looks.append(seconds) or (len(looks) > 3 and held.close()))
  view.watch(tmp_path, console=terminal())
  assert len(looks) >= 4


def test_without_a_terminal_one_plain_table_is_printed(tmp_path):
  make(tmp_path / '[bold]one[/bold]', summary=10)
  end_with(make(tmp_path / 'deep' / 'two'), DivergedError('loss of client 3 is NaN'))
  console = rich.console.Console(file=io.StringIO(), width=40)
  found = view.watch(tmp_path, console=console)
  lines = [line.split() for line in console.file.getvalue().splitlines()]
  assert lines[0] == ['1', 'finished,', '1', 'failed']
  assert lines[2] == ['[bold]one[/bold]', 'finished', '9/15', '50.00']
  assert lines[3] == ['deep/two', 'failed', '9/15', '50.00', 'loss', 'of', 'client', '3', 'is', 'NaN']
  assert '\x1b' not in console.file.getvalue()
  assert all(line == line.rstrip() for line in console.file.getvalue().splitlines())
  assert view.exit_code(found) == 3


def test_control_characters_do_nothing_to_the_terminal(tmp_path):
  make(tmp_path / 'a\x1b[2Jb', summary=10)
  console = rich.console.Console(file=io.StringIO(), width=40)
  view.watch(tmp_path, console=console)
  assert 'a?[2Jb' in console.file.getvalue()


def test_what_is_refused(tmp_path):
  with pytest.raises(ConfigError, match='holds no run'):
    view.watch(tmp_path)
  with pytest.raises(ConfigError, match='is no folder'):
    view.watch(tmp_path / 'nowhere')


@pytest.mark.parametrize(('seconds', 'text'), [(None, ''), (0.4, '0:00'), (61, '1:01'), (3725, '1:02:05')])
def test_the_time_left(seconds, text):
  assert view._clock(seconds) == text
