"""A stored config is data: loading, comparing and continuing a run executes nothing that its directory names."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

import runs
from fedkd import analysis, experiment, files
from fedkd import config as configs
from fedkd.analysis import compare, results
from fedkd.errors import ConfigError
from launch import compare as command
from launch import export, predict


@pytest.fixture
def doctored(tmp_path, monkeypatch):
  """(a function that writes config.json of a run with fields replaced, whether code of it was executed).

  The code is a module that notes its import and every call.
  """
  noted = tmp_path / 'executed'
  (tmp_path / 'evil.py').write_text(
    f'import pathlib\npathlib.Path({str(noted)!r}).touch()\ndef run(*args, **values):\n  raise SystemExit("executed")\n'
  )
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.delitem(sys.modules, 'evil', raising=False)
  plain = configs.to_json(runs.config(runs.save_images(tmp_path / 'images.npz')))

  def write(change):
    config = json.loads(json.dumps(plain))
    change(config)
    workdir = tmp_path / 'run'
    workdir.mkdir(exist_ok=True)
    (workdir / 'config.json').write_text(json.dumps(config))
    return workdir

  return write, noted.exists


PLACES = {
  'method': lambda c: c['method'].update(name='evil:run'),
  'rule': lambda c: c['method'].update(rule='evil:run'),
  'plan': lambda c: c.update(plan={'name': 'evil:run', 'cmd': 'touch X'}),
  'optimizer': lambda c: c.update(optimizer={'name': 'subprocess:getoutput', 'cmd': 'touch X'}),
  'schedule': lambda c: c.update(schedule={'name': 'evil:run'}),
  'codec': lambda c: c.update(codec_up={'name': 'evil:run'}),
  'phase': lambda c: c.update(before=[{'name': 'evil:run', 'rounds': 1}]),
  'model': lambda c: c['groups'][0].update(model='evil:run'),
  'group': lambda c: c['groups'][0].update(optimizer={'name': 'evil:run'}),
  'partition': lambda c: c['data'].update(partition='evil:run'),
  'protocol': lambda c: c['data'].update(protocol='evil:run'),
  'normalise': lambda c: c['data'].update(normalise='evil:run'),
  'inside fedkd': lambda c: c.update(plan={'name': 'fedkd.cli:main', 'words': []}),
  'imported by fedkd': lambda c: c.update(plan={'name': 'fedkdx.plan:run'}),
}


@pytest.mark.parametrize('change', PLACES.values(), ids=PLACES)
@pytest.mark.parametrize('use', [experiment.load, experiment.load_all, experiment.read_config])
def test_names_outside_fedkd_are_refused_before_anything_is_imported(doctored, change, use):
  write, executed = doctored
  workdir = write(change)
  with pytest.raises(ConfigError, match=r'names code outside fedkd \(.*=.*give trust=True') as refused:
    use(workdir)
  assert '\n' not in str(refused.value)
  assert not executed()


@pytest.mark.parametrize('command', [export, predict])
def test_a_command_that_loads_a_model_is_refused_with_its_own_flag(doctored, tmp_path, capsys, command):
  write, executed = doctored
  words = [str(write(PLACES['plan'])), *([f'--out={tmp_path}/new'] if command is export else ['digit.png'])]
  with pytest.raises(SystemExit):
    command.main(words)
  assert 'give trust=True, on the command line --trust, if' in capsys.readouterr().err
  assert not executed()
  with pytest.raises(SystemExit):
    command.main([*words, '--trust'])
  assert 'holds no finished run' in capsys.readouterr().err  # it is read


def test_with_trust_the_parameters_are_looked_at_before_the_call(doctored):
  """`subprocess:getoutput` is no optimizer, and nothing is called to find that out."""
  write, _ = doctored
  with pytest.raises(ConfigError, match=r"optimizer.name='subprocess:getoutput' has no parameter 'learning_rate'"):
    experiment.load(write(PLACES['optimizer']), trust=True)


@pytest.mark.parametrize('place', ['method', 'rule', 'plan', 'model', 'partition'])
def test_a_run_goes_on_and_is_compared_without_looking_its_names_up(doctored, tmp_path, place):
  """Its own config decides what is executed; what the directory says is compared as text."""
  write, executed = doctored
  workdir = write(PLACES[place])
  config = runs.config(tmp_path / 'images.npz')
  with pytest.raises(ConfigError, match=r'holds a run with another config \(.*evil:run'):
    experiment.run(config, workdir, show=False)
  config.init_from = 'run@0'
  with pytest.raises(ConfigError, match=r'(the clients of that run differ|phase 0 of that run is not finished)'):
    experiment.run(config, tmp_path / 'next', show=False)
  accuracy = {'final': [0.5], 'worst_client': [0.4]}
  summary = {'method': 'evil:run', 'seeds': [0], 'seconds': 1, 'ledger': {'up': {}, 'down': {}}, **accuracy}
  assert compare.table({'a': summary}, pd.DataFrame())['accuracy %'].tolist() == ['50.00']
  assert not executed()


@pytest.mark.parametrize('change', PLACES.values(), ids=PLACES)
def test_the_commands_that_read_runs_look_nothing_up(doctored, tmp_path, change):
  """`fedkd compare`, with its tables, curves and results: of a finished run, all of whose checksums are right."""
  write, executed = doctored
  workdir = write(change)
  plain = json.loads((workdir / 'config.json').read_text())
  files.write_sealed(workdir / 'config.json', plain)
  np.savez(workdir / 'split.npz', seed0_test_sizes=[1] * 4, seed0_private_sizes=[1] * 4)
  row = {'phase': 0, 'method': 'fedhe', 'round': 1, 'accuracy': [0.5], 'accuracy_per_client': [[0.5] * 4]}
  files.append(workdir / 'metrics.jsonl', row, '')
  sent = {way: {'labels': {'numbers': [1], 'bytes': [4]}} for way in ('up', 'down')}
  done = {'method': 'evil:run', 'rounds': 1, 'seeds': [0], 'final': [0.5], 'worst_client': [0.5], 'seconds': 1.0}
  done |= {
    'ledger': sent,
    'turns': 4,
    'device': 'cpu',
    'versions': {},
    'commit': '',
    'dirty': False,
    'groups': [{'name': 'evil:run', 'clients': 4}],
  }
  digests = {name: files.checksum(workdir / name) for name in results.DIGESTED}
  files.write_sealed(workdir / 'summary.json', {**done, 'digests': digests})
  command.write_results([workdir], tmp_path / 'results' / 'id' / 'small')
  assert compare.table({'a': results.summary(workdir)}, analysis.runs(workdir))['accuracy %'].tolist() == ['50.00']
  assert analysis.read(workdir)['accuracy'].tolist() == [0.5]
  assert results.read(next((tmp_path / 'results').rglob('*.json')))['method'] == 'evil:run'
  assert not executed()


@pytest.mark.parametrize('text', ['[]', '5', '{"data": 3}', '{"method": []}', '{}', '{"loweri.g": 1}'])
def test_a_stored_config_of_another_form_is_one_sentence(tmp_path, text):
  (tmp_path / 'config.json').write_text(text)
  with pytest.raises(ConfigError) as refused:
    experiment.load(tmp_path)
  assert '\n' not in str(refused.value)
