"""Two processes on one run, with two CPU devices each: the numbers of one process, to rounding."""

import linecache
import os
import pathlib
import socket
import subprocess
import sys
import time
import types
from concurrent import futures

import numpy as np
import pytest
import test_devices
from test_devices import run

from fedkd.errors import ConfigError
from fedkd.experiment.hosts import hosts, rendezvous

ROOT = pathlib.Path(__file__).parents[3]


def address() -> str:
  with socket.socket() as free:
    free.bind(('localhost', 0))
    return f'localhost:{free.getsockname()[1]}'


def start(where, *argv, program=test_devices.PROGRAM):
  """A process that joins, and then runs a program."""
  joined = f'from fedkd.experiment.hosts import hosts\nhosts.join({where!r})\n{program}'
  pipe = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True}
  return subprocess.Popen([sys.executable, '-c', joined, *map(str, argv)], cwd=ROOT, env=dict(os.environ), **pipe)


def both(*argv, each=((), ()), program=test_devices.PROGRAM):
  """The two processes of a run."""
  at = address()
  return [start(f'{at},2,{i}', *argv, *each[i], program=program) for i in (0, 1)]


def outcomes(name, *runs):
  """What the first host prints of runs; the second prints nothing of them."""
  first, second = both(name, *runs)
  (out, err), (silence, other) = first.communicate(), second.communicate()
  assert (first.returncode, second.returncode) == (0, 0), err[:3000] + other[:3000]
  assert 'compiled' in out
  assert not [word for word in ('outcome', 'compil', 'round') if word in silence], silence
  return test_devices.read(out)


@pytest.mark.slow
def test_two_hosts_change_nothing_but_rounding_and_go_on_where_they_stopped(tmp_path):
  alone = test_devices.outcomes('fedavg', run(tmp_path / 'one', 1))
  outcomes('fedavg', run(tmp_path / 'two', 4, 2))
  test_devices.assert_alike(*outcomes('fedavg', run(tmp_path / 'two', 4)), *alone)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['fedavg', 'fedhe'])
def test_one_host_with_two_devices_goes_on_where_two_hosts_with_four_stopped(tmp_path, name):
  """5 clients are padded to 8 and to 6, 3 are replicated or padded to 4."""
  outcomes(name, run(tmp_path / 'moved', 4, 2))
  test_devices.assert_alike(*test_devices.outcomes(name, run(tmp_path / 'moved', 2), run(tmp_path / 'one', 1)))


@pytest.mark.slow
@pytest.mark.parametrize('name', ['private', 'agg', 'fedhe', 'fedmd', 'fedh2l', 'felo', 'velo', 'heterofl'])
def test_every_method_on_two_hosts(tmp_path, name):
  two, one = outcomes(name, run(tmp_path / 'two', 4)), test_devices.outcomes(name, run(tmp_path / 'one', 1))
  test_devices.assert_alike(*two, *one)


def test_hosts_that_disagree_are_refused_before_anything_is_written(tmp_path):
  processes = both('fedavg', each=[(run(tmp_path / 'run', 4, rounds),) for rounds in (2, 3)])
  errors = [process.communicate()[1] for process in processes]
  for process, error in zip(processes, errors, strict=True):
    assert process.returncode
    assert 'ConfigError: rounds=3 on host 1, but 2 on host 0; start them identically' in error
  assert not (tmp_path / 'run').exists()


@pytest.mark.slow
def test_when_a_host_dies_the_other_ends_with_a_sentence(tmp_path):
  command = [sys.executable, '-m', 'launch.main', '--config=configs/fedhe_digits.py:smoke', '--config.rounds=100000']
  command += [f'--workdir={tmp_path / "run"}', '--config.devices=4', '--config.eval_every=100000', '--config.seeds=0,']
  at, pipe = address(), {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True}
  first, second = (subprocess.Popen([*command, f'--hosts={at},2,{i}'], cwd=ROOT, **pipe) for i in (0, 1))
  until = time.monotonic() + 120
  while not list((tmp_path / 'run').glob('checkpoints/*/state')):
    assert first.poll() is None, first.communicate()
    assert time.monotonic() < until
    time.sleep(0.1)
  second.kill()
  begun = time.monotonic()
  _, error = first.communicate(timeout=60)
  assert first.returncode == 3, error[-2000:]
  assert 'fedkd: another host has exited' in error
  assert 'the last checkpoint is kept, start all hosts again' in error
  assert time.monotonic() - begun < 60
  second.communicate()


NO_HOSTS = ('here', 'localhost:1,2', 'localhost:1,two,0', '127.0.0.1,2,0', 'localhost:99999,2,0', 'localhost:1234,2,2')
NO_HOSTS += ('no.such.name.invalid:1234,2,0', '192.0.2.1:1234,2,0')  # an address that no host of anybody's has


@pytest.mark.parametrize('where', NO_HOSTS)
def test_hosts_are_named_in_full(where):
  with pytest.raises(ConfigError, match=r"hosts='.*': .*; give HOST:PORT,COUNT,INDEX"):
    hosts.join(where)


def test_an_address_that_somebody_listens_on_is_refused():
  """JAX would crash, and a second host of the same number is one."""
  with socket.socket() as taken:
    taken.bind(('127.0.0.1', 0))
    taken.listen()
    with pytest.raises(ConfigError, match=r'Address already in use; give HOST:PORT,COUNT,INDEX'):
      hosts.join(f'127.0.0.1:{taken.getsockname()[1]},2,0')


def knock(place, many, index):
  """The connection of a host that says who it is, as soon as the first one listens."""
  while True:
    host = socket.socket()
    try:
      host.connect(place[3])
      break
    except ConnectionRefusedError:
      host.close()
      time.sleep(0.01)
  host.settimeout(10)
  host.sendall(f'fedkd {many} {index}\n'.encode())
  return host


def test_hosts_meet_and_a_number_that_is_there_is_refused(monkeypatch):
  monkeypatch.setattr(rendezvous, 'SECONDS', 10)
  monkeypatch.setattr(rendezvous, 'AGAIN', 0.01)
  place = (socket.AF_INET, socket.SOCK_STREAM, 0, ('127.0.0.1', int(address().rpartition(':')[2])))
  with futures.ThreadPoolExecutor(2) as pool:
    early = pool.submit(rendezvous.connect, place, 4, 2)  # before there is a first one
    first = pool.submit(rendezvous.wait_for_others, place, 4)
    knock(place, 4, 3).close()
    with knock(place, 4, 3) as third:  # in the place of the one that has left
      with knock(place, 4, 3) as same, knock(place, 3, 1) as other_run:
        assert same.recv(300) == b'host 3 has come already, from 127.0.0.1\n'
        assert other_run.recv(300) == b'host 0 waits for 4 hosts\n'
      with socket.create_connection(place[3]) as stranger:
        stranger.sendall(b'GET / HTTP/1.1\r\n')
        assert not stranger.recv(300)
      assert not first.done()
      rendezvous.connect(place, 4, 1)
      assert third.recv(300) == b'go\n'
    assert [done.result(timeout=10) for done in (first, early)] == [None, None]


def test_a_first_host_that_waits_in_vain_says_for_whom(monkeypatch):
  monkeypatch.setattr(rendezvous, 'SECONDS', 0.05)
  place = (socket.AF_INET, socket.SOCK_STREAM, 0, ('127.0.0.1', int(address().rpartition(':')[2])))
  with pytest.raises(ValueError, match=r'host 1, 2 of 3 did not arrive within 0.05 seconds'):
    rendezvous.wait_for_others(place, 3)
  with pytest.raises(ValueError, match=r'host 0 does not answer \(Connection refused\)'):
    rendezvous.connect(place, 3, 1)


@pytest.mark.slow
def test_two_hosts_of_one_number_are_told_and_disturb_nobody(tmp_path):
  """One that comes before the hosts have met, and one that comes when they train."""
  at, join = address(), 'print("joined")'
  first, one, other = (start(f'{at},3,{i}', program=join) for i in (0, 1, 1))
  while one.poll() is None and other.poll() is None:
    time.sleep(0.1)
  refused_one, waits = (one, other) if one.poll() is not None else (other, one)
  told = 'host 1 has come already, from 127.0.0.1; give HOST:PORT,COUNT,INDEX'
  assert told in refused_one.communicate()[1]
  last = start(f'{at},3,2', program=join)
  assert [process.communicate(timeout=120)[0] for process in (first, waits, last)] == ['joined\n'] * 3
  at, patient = address(), 'import time\nprint("joined", flush=True)\ntime.sleep(20)\nprint("done")'
  live = [start(f'{at},2,{i}', program=patient) for i in (0, 1)]
  assert [process.stdout.readline() for process in live] == ['joined\n'] * 2
  begun, late = time.monotonic(), start(f'{at},2,1', program=join)
  assert 'the other hosts began without this one; give HOST:PORT,COUNT,INDEX' in late.communicate(timeout=60)[1]
  assert time.monotonic() - begun < 30
  assert [process.communicate(timeout=120)[0] for process in live] == ['done\n'] * 2


def test_the_code_is_the_package_and_what_the_config_names(tmp_path, monkeypatch):
  monkeypatch.syspath_prepend(tmp_path)
  rule, config = tmp_path / 'rule_of_mine.py', {'method': {'rule': 'rule_of_mine:mean'}, 'data': {'name': 'npz:x'}}
  rule.write_text('one')
  before = hosts.source_checksum(config)
  rule.write_text('two')
  assert hosts.source_checksum(config) != before
  assert hosts.source_checksum({}) == hosts.source_checksum({'data': {'name': 'folder:cinic10'}})
  assert {'round.py', 'fedhe.py', 'hosts.py'} < {path.name for path in hosts.sources({})}


def test_a_function_of_a_notebook_is_the_code_that_it_is_written_in(monkeypatch):
  notebook = types.ModuleType('notebook')  # without a spec, as `__main__` there
  monkeypatch.setitem(sys.modules, 'notebook', notebook)

  def checksum_after(name, text):
    monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(True), name))
    exec(compile(text, name, 'exec'), vars(notebook))
    return hosts.source_checksum({'method': {'rule': 'notebook:mean'}})

  one = checksum_after('<cell 1>', 'def mean(rows, weight):\n  return 1\n')
  assert checksum_after('<cell 2>', 'def mean(rows, weight):\n  return 2\n') != one
  assert checksum_after('<cell 3>', 'def mean(rows, weight):\n  return 1\n') == one
  exec('mean = lambda rows, weight: 1', vars(notebook))  # of which Python has no source
  assert hosts.source_checksum({'method': {'rule': 'notebook:mean'}}) == hosts.source_checksum({})


def test_one_host_decides_for_itself():
  assert hosts.count() == 1
  assert hosts.is_primary()
  assert hosts.gather([1, 'two']) == [[1, 'two']]
  assert hosts.broadcast_from_primary({'a': None}) == {'a': None}
  np.testing.assert_array_equal(hosts.broadcast_arrays(np.arange(3), None), np.arange(3))
