"""Clients' states on disk: the numbers of a run in memory, bit for bit, whatever happens to it."""

import jax
import numpy as np
import pytest

from configs import fedhe_digits
from fedkd import config as base
from fedkd import experiment, plan
from fedkd.errors import ConfigError, StoreError
from fedkd.experiment import dry_run
from fedkd.experiment.storage import client_store

CLIENTS = (5, 4)
LOOKED_AT = ((0, 0), (1, 1), (7, 1))


def config_of(store='', method='fedhe', rounds=7, **options):
  config = fedhe_digits.get_config('smoke')
  sizes = zip(CLIENTS, ((8,), (4,)), strict=True)
  config.groups = tuple({'model': 'MLP', 'clients': n, 'hidden': hidden} for n, hidden in sizes)
  config.data.clients, config.eval_rows, config.eval_clients = sum(CLIENTS), 50, 4
  config.method = base.method(method, **options)
  config.plan = base.plan('sampled', ratio=0.4)
  config.rounds, config.eval_every, config.seeds, config.client_store = rounds, 3, (0, 1), str(store)
  return config


def models(workdir):
  """The weights of some clients of both groups, one of which never takes part."""
  return jax.tree.map(np.asarray, [experiment.load(workdir, client, seed)[1] for client, seed in LOOKED_AT])


@pytest.fixture(scope='module', autouse=True)
def _narrow_windows():
  """So that a run of a few rounds has several windows, and clients that are in two of them."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr('fedkd.experiment.offloaded_phase.SLOTS', 8)
    yield


@pytest.fixture(scope='module')
def in_memory(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('memory')
  return experiment.run(config_of(), workdir, show=False), models(workdir)


@pytest.fixture(scope='module')
def on_disk(tmp_path_factory):
  folder = tmp_path_factory.mktemp('disk')
  return experiment.run(config_of(folder / 'store'), folder / 'run', show=False), models(folder / 'run'), folder


def test_a_run_on_disk_has_the_numbers_of_one_in_memory(on_disk, in_memory):
  assert not any(
    np.any(table == 1) for table in plan.sampled(ratio=0.4)(CLIENTS, 7).participants[:1]
  )  # client 1 never takes part
  for name in ('final', 'final_per_client', 'second_half_mean', 'ledger', 'examples', 'turns'):
    assert on_disk[0][name] == in_memory[0][name], name
  for mine, theirs in zip(jax.tree.leaves(on_disk[1]), jax.tree.leaves(in_memory[1]), strict=True):
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
def test_a_run_goes_on_after_a_full_disk_and_ends_as_one_that_never_stopped(
  tmp_path, monkeypatch, on_disk, in_memory, compiled
):
  def run_to(rounds):  # of as many slots
    compiled.clear()
    return experiment.run(config_of(tmp_path / 'store', rounds=rounds), tmp_path / 'run', show=False)

  def full(file, data, at):
    raise OSError(28, 'No space left on device')

  run_to(5)
  assert compiled.count('jit(work)') == 1
  with monkeypatch.context() as patch:
    patch.setattr('os.pwrite', full)
    with pytest.raises(StoreError, match=r'group0: No space left on device; free space or repair it and start again'):
      run_to(7)
  parts = run_to(7)
  assert compiled.count('jit(work)') == 1
  assert parts['state_sha256'] == on_disk[0]['state_sha256']
  assert parts['final'] == in_memory[0]['final']


def test_what_happened_after_a_checkpoint_does_not_matter(tmp_path):
  like = {'w': jax.ShapeDtypeStruct((2, 3), np.float32), 'n': jax.ShapeDtypeStruct((2,), np.int32)}
  rng = np.random.default_rng(0)

  def states(many):
    return {'w': rng.normal(size=(2, many, 3)).astype(np.float32), 'n': rng.integers(0, 9, (2, many)).astype(np.int32)}

  def read(records, table):
    out = {'w': np.zeros((2, 6, 3), np.float32), 'n': np.zeros((2, 6), np.int32)}
    records.read(table, np.arange(6), out, np.arange(6))
    return out

  records = client_store.Records(tmp_path / 'group0', like)
  records.clear()
  table, kept = client_store.blank(6), []
  for turn in range(12):
    for _ in range(2):
      rows = np.sort(rng.choice(6, 3, replace=False))
      table = records.write(table, rows, states(3))
    if turn % 2:
      records.keep(table)
      kept = [*kept, (table, read(records, table))][-client_store.KEPT :]
    for old, found in kept:
      jax.tree.map(np.testing.assert_array_equal, read(records, old), found)
  # At most the kept tables' records and those written since.
  assert (tmp_path / 'group0').stat().st_size <= records.bytes * 6 * (client_store.KEPT + 1)
  later = client_store.Records(tmp_path / 'group0', like)
  later.resume(kept[-2][0])
  table = later.write(kept[-2][0], np.arange(6), states(6))
  for old, found in kept[:-1]:
    jax.tree.map(np.testing.assert_array_equal, read(later, old), found)


def test_another_runs_directory_is_refused(tmp_path, on_disk):
  folder = on_disk[2]
  with pytest.raises(ConfigError, match=r'client_store=.*store holds the clients of the run in .*run; choose another'):
    experiment.run(config_of(folder / 'store', rounds=1), tmp_path / 'other', show=False)
  assert not (tmp_path / 'other').exists()


def test_a_damaged_record_is_found(on_disk):
  folder = on_disk[2]
  path = folder / 'store' / 'group0'
  content = bytearray(path.read_bytes())
  content[::50] = bytes(b ^ 1 for b in content[::50])
  path.write_bytes(content)
  with pytest.raises(StoreError, match=r'group0: the record of row \d is damaged; restore the file'):
    experiment.run(config_of(folder / 'store', rounds=9), folder / 'run', show=False)
  path.write_bytes(content[:10])
  with pytest.raises(StoreError, match='lacks records of the checkpoint'):
    experiment.run(config_of(folder / 'store', rounds=9), folder / 'run', show=False)


def test_a_damaged_owner_is_refused(tmp_path):
  (tmp_path / 'run.json').write_text('{')
  with pytest.raises(ConfigError, match=r'run\.json is damaged \(.*\); restore the file, or choose another client'):
    client_store.claim(tmp_path, {}, tmp_path / 'run')


def test_a_directory_that_cannot_be_written_is_refused(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(ConfigError, match=r'client_store=.* cannot be written \(.*\); choose another'):
    experiment.run(config_of(tmp_path / 'file' / 'store'), tmp_path / 'run', show=False)
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (lambda c: c.update(devices=2), 'devices=2 cannot be combined with client_store; set it to 1'),
    (lambda c: c.update(before=({'name': 'private', 'rounds': 1},)), 'before=.* cannot be combined with client_store'),
    (lambda c: c.update(initial='own'), "initial='own' cannot be combined with client_store; set it to 'equal'"),
    (lambda c: setattr(c, 'plan', base.plan('asynchronous', stale=True)), 'set plan.stale=False'),
  ],
)
def test_what_does_not_go_with_a_store_is_refused(tmp_path, change, message):
  config = config_of(tmp_path / 'store')
  change(config)
  with pytest.raises(ConfigError, match=message):
    experiment.run(config, tmp_path / 'run', show=False)
  assert not (tmp_path / 'store').exists()


def test_dry_run_says_how_large_the_store_becomes(tmp_path):
  memory, disk = (dry_run.text(config_of(store)) for store in ('', tmp_path / 'store'))
  # A client's params and Adam's two moments, floats, and a count of steps, for two seeds.
  wide, narrow = ((784 * h + h + h * 10 + 10) * 12 + 4 for h in (8, 4))
  assert f'disk: clients {2 * (5 * wide + 4 * narrow) / 1e6:,.1f} MB once all have taken part' in disk
  assert 'disk' not in memory
  assert not (tmp_path / 'store').exists()
