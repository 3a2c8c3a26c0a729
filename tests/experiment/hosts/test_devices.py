"""Clients spread over several CPU devices: the numbers of one device, to rounding."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest

from fedkd import sharding
from fedkd.errors import ConfigError
from fedkd.experiment.hosts import devices


class Mesh:
  """All that a table of slots asks of a mesh."""

  def __init__(self, size):
    self.size = size


@pytest.mark.parametrize(('clients', 'count', 'rows'), [(3, 4, 3), (4, 4, 4), (5, 4, 8), (9, 4, 12), (9, 1, 9)])
def test_a_group_is_filled_up_to_a_multiple_unless_it_is_small(clients, count, rows):
  assert sharding.rows(clients, Mesh(count)) == rows
  assert sharding.rows(clients, None) == clients


def test_slots_are_with_the_device_that_holds_their_rows():
  participants = np.array([[0, 3, 4, 7], [2, 6, -1, -1], [4, 5, 6, 7], [-1, -1, -1, -1]], np.int32)
  slots = sharding.assign_slots(participants, 8, Mesh(4))  # two rows a device; at most two of them have a slot
  assert slots.shape == (4, 8)
  for t, row in enumerate(slots):
    assert sorted(row[row >= 0]) == sorted(participants[t][participants[t] >= 0])
    owners = row.reshape(4, 2) // 2
    assert all(np.all((mine < 0) | (mine == device)) for device, mine in enumerate(owners))
  np.testing.assert_array_equal(slots[0], [0, -1, 3, -1, 4, -1, 7, -1])
  np.testing.assert_array_equal(
    sharding.assign_slots(participants[:, :2], 3, Mesh(4)), participants[:, :2]
  )  # a small group is left alone


def test_more_devices_than_there_are_are_refused():
  have = len(jax.devices())
  with pytest.raises(ConfigError, match=f'devices={have + 1} but JAX has {have} '):
    devices.mesh(have + 1)


PROGRAM = """
import json, pathlib, sys
import jax
import numpy as np
from configs import fedhe_digits
from fedkd import config as base, experiment, methods, plan, round
from fedkd.analysis import figures
from fedkd.experiment.build import assembly
from fedkd.experiment.storage import checkpoint
from fedkd.experiment.hosts import devices, hosts

figures.save_figures = lambda *args: None  # as `conftest` does
(name, _, stops), runs = sys.argv[1].partition(' '), [word.split(',') for word in sys.argv[2:]]
devices.request(max(int(count) for _, count, _ in runs))
made, traced = [], round.run
jax.monitoring.register_event_duration_secs_listener(lambda name, _, fun_name='', **more: made.append(fun_name))
round.run = lambda *args: made.append('a trace') or traced(*args)
config = fedhe_digits.get_config('smoke')
config.groups = ({'model': 'MLP', 'clients': 5, 'hidden': (8,)}, {'model': 'MLP', 'clients': 3, 'hidden': (4,)})
config.data.clients, config.data.public_share, config.eval_rows = 8, 0.2, 100
# FedHe's clients keep the state of their optimizer, here with a random key.
config.optimizer = base.optimizer('noisy_sgd' if name == 'fedhe' else 'sgd', learning_rate=0.05)
options = {'fedavg': {'per_group': True}, 'fedprox': {'per_group': True}}
options['felo'] = {'initial': 1, 'epochs': 1, 'feature_align': 'pool'}
options |= {'fedmd': {'subset': 16, 'digest_batch': 8}, 'heterofl': {'epochs': 1}, 'fedh2l': {'batch': 8}}
# Adam makes full steps of gradients that are nothing but rounding, so those of the autoencoder are small ones.
options['velo'] = {**options['felo'], 'cvae_epochs': 1, 'limits': (20, 20), 'cvae_rate': 1e-6}
turn = {'steps': 2, 'epochs': 0, 'batch': 8}
options |= {name: turn for name in ('scaffold', 'moon', 'fedrolex')}
options['fedapen'] = {**turn, 'common': {'model': 'MLP', 'hidden': (4,)}}
options['selective_fd'] = {**turn, 'subset': 16, 'digest_batch': 8, 'digest_steps': 1, 'auxiliary': 20}
options['fedkt'] = {'teachers': 2, 'epochs': 1, 'student_epochs': 1, 'final_epochs': 1, 'batch': 8}
if name in ('scaffold', 'moon'):
  config.groups = config.groups[:1]
  config.data.clients = 5
if name == 'fedgkt':
  config.groups = ({'model': 'GKTClient', 'clients': 8, 'channels': 4},)
  options[name] = {'epochs': 1, 'server_blocks': (1,), 'server_width': 0.125, 'server_epochs': 1}
  config.optimizer.learning_rate = 0.005  # its server makes many more steps, in which rounding grows
config.method = base.method(name, **options.get(name, {}))
stale = base.plan('asynchronous', stale=True)
config.plan = stale if name == 'fedhe' else base.plan('sampled', ratio=0.7)
config.eval_every, config.checkpoint_every, config.seeds = 1, 1, (0, 1)
if stops:  # who has learned no more, two images of a hundred, in a round leaves
  config.plan, config.early_stop.watch = base.plan('synchronous'), 'accuracy'
  config.early_stop.patience, config.early_stop.min_delta = 1, 0.015
for folder, count, rounds in runs:
  config.devices, config.rounds = int(count), int(rounds)
  config.seed_axis = 'vmap' if stops and config.devices > 1 else 'auto'
  made.clear()
  summary = experiment.run(config, folder)
  # Once more for arrays that lie on devices would be once too much; lowering and compiling are an event each.
  assert (made.count('a trace'), made.count('jit(run)')) == (1, 2), made
  hosts.broadcast_from_primary(0)  # the first has saved
  parts = assembly.build(config, dry=True)
  with checkpoint.manager(pathlib.Path(folder) / 'checkpoints') as saved:
    step, state, _ = checkpoint.restore(saved, lambda step: parts.phases[0].saved, print)
  leaves = [np.asarray(a, float).ravel() for a in jax.tree.leaves(state) if a.dtype.kind == 'f']
  if hosts.is_primary():
    counted = {**summary['ledger'], 'examples': summary['examples']}
    print('outcome', json.dumps([step, summary['final'], counted, np.concatenate(leaves).tolist()]))
"""
ROUNDS = 3


def run(folder, count, rounds=ROUNDS):
  """What PROGRAM takes for a run in `folder` on so many devices."""
  return f'{folder},{count},{rounds}'


def read(text):
  """[step, accuracy, counts, all floats of the state] of every run, from what PROGRAM printed, alone or among hosts."""
  # Gloo's threads speak too, in each other's lines.
  return [json.loads(line.split('outcome ')[1]) for line in text.splitlines() if 'outcome ' in line]


def outcomes(name, *runs):
  """What `read` returns of runs one after the other, in one process."""
  done = subprocess.run([sys.executable, '-c', PROGRAM, name, *runs], capture_output=True, text=True, check=False)
  assert not done.returncode, done.stderr[-2000:]
  return read(done.stdout)


def assert_alike(one, other):
  assert one[0] == other[0]
  assert one[2] == other[2]  # every number that was sent, and examples
  np.testing.assert_allclose(one[1], other[1], atol=0.021)  # two images of a hundred
  np.testing.assert_allclose(one[3], other[3], rtol=1e-4, atol=1e-5)


@pytest.mark.slow  # of `test_hosts.py` a test of every day moves a run between devices, too
@pytest.mark.parametrize('name', ['fedavg', 'fedhe'])
def test_devices_change_nothing_but_rounding_and_a_run_continues_on_other_devices(tmp_path, name):
  """5 clients on 4 devices are padded, 3 are replicated."""
  one, moved = tmp_path / 'one', tmp_path / 'moved'
  alone, _, resumed = outcomes(name, run(one, 1), run(moved, 2, 1), run(moved, 4))
  assert_alike(resumed, alone)


@pytest.mark.slow
@pytest.mark.parametrize(
  'name',
  ['private', 'agg', 'fedavg', 'fedprox', 'fedhe', 'fedmd', 'fedh2l', 'felo', 'velo', 'heterofl', 'fedgkt', 'scaffold',
   'moon', 'fedrolex', 'fedapen', 'selective_fd', 'fedkt'],
)  # fmt: skip
def test_every_kind_of_method_on_eight_devices(tmp_path, name):
  assert_alike(*outcomes(name, run(tmp_path / 'eight', 8), run(tmp_path / 'one', 1)))


@pytest.mark.slow
def test_clients_stop_alike_on_eight_devices_with_seeds_together(tmp_path):
  eight, one, whole = outcomes(
    'private stops', run(tmp_path / 'eight', 8, 5), run(tmp_path / 'one', 1, 5), run(tmp_path / 'whole', 1, 2)
  )
  assert_alike(eight, one)
  for seed in (0, 1):
    assert whole[2]['examples'][seed] < one[2]['examples'][seed] < whole[2]['examples'][seed] * 5 / 2


OF_ALL = """
import jax, jax.numpy as jnp
from configs import fedhe_digits
from fedkd import config as base, methods
from fedkd.experiment.build import assembly
from fedkd.experiment.hosts import devices

def of_all(tx, steps: int = 1):
  private = methods.private(tx, steps=steps)
  zeros = lambda tree: jax.tree.map(lambda a: jnp.zeros((4, *a.shape)), tree)
  server = private.server._replace(
    init=lambda key, groups, first, data: zeros(first[0]), receive=lambda *args: (args[3], {})
  )
  return private._replace(server=server, variables=lambda state, g: state.server)

devices.request(2)
config = fedhe_digits.get_config('smoke')
config.groups = ({'model': 'MLP', 'clients': 3, 'hidden': (8,)}, {'model': 'MLP', 'clients': 1, 'hidden': (4,)})
config.data.clients, config.devices, config.method = 4, 2, base.method('__main__:of_all')
assembly.build(config, dry=True)
"""


def test_rows_of_all_clients_are_not_taken_for_those_of_a_group_that_is_padded_to_as_many():
  """Three clients on two devices are four rows, and there are four clients."""
  done = subprocess.run([sys.executable, '-c', OF_ALL], capture_output=True, text=True, check=False)
  assert 'returned [4, 8] at' in done.stderr, done.stderr[-2000:]
  assert 'for MLP 8 of 3 clients; let leaves be' in done.stderr
