"""Codecs chosen in a config: what a run counts, and that its server is told what was sent."""

import runs
from fedkd import config as configs
from fedkd import experiment, ledger
from fedkd.experiment import dry_run
from fedkd.experiment.build import assembly


def with_codecs(images):
  config = runs.config(images, 'fedavg', rounds=2)
  config.codec_up = configs.codec_up('quantised', bits=4, changes=True)
  config.codec_down = configs.codec_down('float16')
  return config


BIAS, KERNEL, HEAD_BIAS, HEAD = 8, 144 * 8, 3, 8 * 3  # of the MLP on images of 12 x 12
UP = (4 + 8) + (KERNEL // 2 + 8) + (2 + 8) + (HEAD // 2 + 8)


def test_a_coded_run_counts_its_bytes(tmp_path):
  """Two rounds of four clients; every array is packed codes and two floats."""
  images = runs.save_images(tmp_path / 'images.npz')
  summary = experiment.run(with_codecs(images), tmp_path / 'run', show=False)
  assert summary['ledger']['up']['weights']['bytes'] == [2 * 4 * UP]
  assert summary['ledger']['down']['weights']['bytes'] == [2 * 4 * 2 * (BIAS + KERNEL + HEAD_BIAS + HEAD)]
  up, _ = dry_run.messages(assembly.build(with_codecs(images), dry=True), 0)
  assert ledger.capacity(up)['weights'][1] == UP


def test_codecs_are_differences_of_runs(tmp_path):
  plain, coded = (configs.to_json(make(tmp_path)) for make in (lambda at: runs.config(at, 'fedavg', 2), with_codecs))
  assert configs.differences(plain, coded) == [
    'codec_down.name: identity -> float16',
    'codec_up.bits: None -> 4',
    'codec_up.changes: None -> True',
    'codec_up.name: identity -> quantised',
  ]
  old = {key: value for key, value in plain.items() if not key.startswith('codec')}
  assert configs.differences(old, plain) == []
