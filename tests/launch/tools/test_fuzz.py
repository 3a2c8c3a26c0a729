"""A few random inputs of every target; `python -m launch.fuzz` tries as many as one likes, in another process."""

import random

import pytest

from fedkd.analysis import frames, results
from fedkd.errors import ConfigError
from launch.studies.papers import robustness
from launch.tools.fuzz import targets, trials


@pytest.fixture(autouse=True)
def at_home(monkeypatch, request, tmp_path):
  monkeypatch.chdir(request.config.rootpath)
  monkeypatch.setenv('FEDKD_CACHE', str(tmp_path / 'cache'))


SLOW = ('tfds', 'checkpoints', 'warm_starts')  # to import, or ten a second


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize(
  'name', [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in trials.targets()]
)
def test_every_input_is_taken_or_refused_in_a_sentence(tmp_path, name):
  if name == 'tfds':
    pytest.importorskip('array_record')
  target, seen = trials.targets()[name](tmp_path), set()
  for number in range(60):
    trial, text_of = target(random.Random(f'{name} test {number}'))
    seen.add(outcome := trials.judged(trial, text_of))
    assert outcome in ('taken', 'refused'), number
  # Of two checkpoints one is intact, and a run that is watched says what is wrong with it.
  assert ('taken' if name in ('checkpoints', 'watch') else 'refused') in seen


def test_what_is_judged_a_finding():
  def raises(error):
    def trial():
      raise error

    return trials.judged(trial, lambda: 'the input')

  assert raises(ConfigError('batch=0 must be at least 1')) == 'refused'
  assert raises(ConfigError('two\nlines')).startswith('no sentence')
  assert raises(ConfigError('x' * 5000)).startswith('no sentence')
  assert raises(KeyError('name')).startswith('KeyError: ')
  assert raises(SystemExit(0)).startswith('SystemExit')
  assert trials.judged(lambda: None, str) == 'taken'


def test_an_input_follows_from_the_seed_and_its_number(tmp_path):
  one, other = (targets.TARGETS['safetensors'](tmp_path) for _ in range(2))
  texts = [target(random.Random('safetensors 0 7'))[1]() for target in (one, other)]
  assert texts[0] == texts[1]
  assert texts[0] != one(random.Random('safetensors 0 8'))[1]()


@pytest.mark.slow
def test_a_worker_that_dies_or_hangs_is_a_finding_and_the_next_goes_on(monkeypatch):
  monkeypatch.setattr(trials, 'SECONDS', 0)  # so that every answer is too late
  found = trials.fuzz('weights', 2)
  assert [number for number, _ in found['findings']] == [0, 1]


def test_the_table_has_a_line_per_target(tmp_path):
  counts = {'inputs': 7800, 'taken': 800, 'refused': 6999, 'slowest': 0.5, 'peak': 6e8}
  trials.write(tmp_path / 'fuzz.json', {'npz': {**counts, 'findings': []}, 'mat': {**counts, 'findings': []}})
  trials.write(tmp_path / 'fuzz.json', {'mat': {**counts, 'findings': [(3, 'KeyError')]}})
  text = robustness.fuzzed(tmp_path / 'fuzz.json')
  assert '| npz | 7,800 | 800 | 6,999 | 0 | 0.5 | 600 |\n| mat | 7,800 | 800 | 6,999 | 1 | 0.5 | 600 |\n' in text
  assert '15,600 inputs' in text


@pytest.mark.slow
def test_a_thousand_weights_in_a_worker():
  found = trials.fuzz('weights', 1000)
  assert (found['inputs'], found['findings']) == (1000, [])
  assert found['taken'] + found['refused'] == 1000
  assert found['peak'] < trials.BYTES


def test_a_result_nested_too_deeply_was_a_finding(tmp_path):
  (tmp_path / 'a.json').write_text('{"a": ' + '[' * 100_000)
  with pytest.raises(ConfigError, match='is not a result of this program'):
    results.read(tmp_path / 'a.json')


def test_an_evaluation_without_a_seed_was_a_finding(tmp_path):
  (tmp_path / 'config.json').write_text('{"seeds": [0]}')
  (tmp_path / 'metrics.jsonl').write_text('{"phase": 0, "round": 1, "accuracy": []}\n')
  with pytest.raises(ConfigError, match=r'fewer than the 1 seeds of the run; run it again'):
    frames.read(tmp_path)
