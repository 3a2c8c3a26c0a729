"""What `--dry_run` tells."""

import runs
from fedkd.experiment import dry_run


def test_every_phase_tells_its_messages_and_plan(tmp_path):
  config = runs.config(runs.save_images(tmp_path / 'images.npz'), 'fedhe', rounds=4)
  config.before = ({'name': 'fedavg', 'rounds': 2, 'steps': 1, 'batch': 8, 'per_group': True},)
  config.plan = {'name': 'sampled', 'ratio': 0.5}
  clients = config.data.clients
  first, last = dry_run.text(config).split('\n  fedavg: ')[1].split('\n  fedhe: ')
  assert first.startswith(f'plan synchronous: 2 rounds, {2 * clients} client updates, ')
  assert f' + {144 * 8 + 8 + 8 * 3 + 3:,} weights' in first
  assert last.startswith(f'plan sampled: 4 rounds, {4 * clients // 2} client updates, ')
  assert 'up at most 9 knowledge (36 B) + 3 labels' in last
