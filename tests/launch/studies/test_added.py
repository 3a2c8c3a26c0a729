"""Methods of somebody else's in the benchmark: what is refused, and with what they are run."""

import sys
import types

import jax
import pytest

from fedkd.errors import ConfigError
from launch import benchmark, exits
from launch.studies.comparison import added, budget, cells, problem, programs, runs, settings, suite
from launch.studies.comparison import theirs as names

PLACE = runs.Place('digits', 'smoke', 'one', 'skew-0.5')
CODE = """
from fedkd import methods

GIVEN = []

def fits(tx, steps, batch, weight=1.0):
  GIVEN.append(weight)
  return methods.fedprox(tx, steps=steps, batch=batch, epochs=None, mu=weight)

def public(tx, steps, batch, subset=1, digest_batch=2, digest_epochs=3, digest_loss='mae'):
  return methods.fedmd(tx, subset, digest_epochs, digest_batch, digest_loss, steps=steps, epochs=None, batch=batch)

def by_steps(tx, steps, batch, subset, digest_steps):
  return methods.private(tx, steps=steps, epochs=None, batch=batch)

def needs(tx, steps, batch, temperature):
  return fits(tx, steps, batch)

def raises(tx, steps, batch):
  raise KeyError('knowledge')

def nothing(tx, steps, batch):
  return None

def step_raises(tx, steps, batch):
  method = fits(tx, steps, batch)
  def step(key, t, model, learner, download, data):
    return learner, download.shared['knowledge'], {}
  return method._replace(client=method.client._replace(step=step))

def calibrates_by_3(tx, steps, batch):
  return fits(tx, steps, batch)._replace(calibrate=3)

def by_epochs(tx, batch):
  return methods.private(tx, batch=batch, epochs=1)

def at_first(steps, batch, tx):
  return fits(tx, steps, batch)

def any_batch(tx, steps):
  return methods.private(tx, steps=steps, epochs=None)
"""


@pytest.fixture
def theirs(tmp_path, monkeypatch):
  """A module of somebody else's, and a perceptron on digits that come with a dependency."""
  (tmp_path / 'somebodys.py').write_text(CODE)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.delitem(sys.modules, 'somebodys', raising=False)
  monkeypatch.setitem(settings.SOURCES, 'digits', {'name': 'mnist_5k'})
  monkeypatch.setattr(settings, 'networks', lambda of, tier: ({'model': 'MLP', 'hidden': (4,)},))
  caches = problem._source, problem.groups_of, problem._initialisers
  for cache in caches:
    cache.cache_clear()
  names.checksum.cache_clear()
  yield tmp_path
  for cache in caches:
    cache.cache_clear()
  programs.clear()


def given(tmp_path, **flags):
  """What the command line says."""
  usual = dict.fromkeys(('tiers', 'settings', 'methods', 'seeds'))
  place = {'suite': 'digits', 'profile': 'smoke', 'tiers': ['one'], 'settings': ['skew-0.5'], 'seeds': ['0']}
  return types.SimpleNamespace(**{**usual, **place, 'out': str(tmp_path / 'out'), 'add': None, 'tune': None, **flags})


REFUSED = [
  ('fit', r"^add='somebodys:fit' cannot be loaded \(.*\); the module has .*fits.*; is it 'fits'\?$"),
  ('at_first', r"^add='somebodys:at_first': let its first parameter be tx, the optimizer$"),
  ('needs', "add=somebodys:needs needs a value for 'temperature', which nobody gives it here; give it a default"),
  ('raises', r"add somebodys:raises \(somebodys.py, line \d+: .*\) raised KeyError: 'knowledge'"),
  ('nothing', r'add=somebodys:nothing \(somebodys.py, line \d+\) returned None; let it return a Method'),
  ('step_raises', r'Client.step somebodys:step_raises.* \(somebodys.py, line \d+: .*\) raised .*Error: '),
  ('calibrates_by_3', 'add=somebodys:calibrates_by_3: method.calibrate is 3, an int; give a function '),
  ('by_epochs', 'takes no steps, so that its budget would not .* an argument steps, mini-batches per client update'),
  ('any_batch', 'takes no batch, so that its budget would not .* an argument batch, examples per mini-batch'),
]


@pytest.mark.parametrize(('name', 'sentence'), REFUSED, ids=[name for name, _ in REFUSED])
def test_a_method_that_cannot_be_trained_is_refused_in_one_sentence(theirs, name, sentence):
  with pytest.raises(ConfigError, match=sentence) as error:
    added.check([PLACE], f'somebodys:{name}')
  assert '\n' not in str(error.value)


def test_a_method_is_checked_before_anything_is_run(theirs, monkeypatch):
  monkeypatch.setattr(suite, 'run', lambda *a: pytest.fail('a run'))
  with pytest.raises(ConfigError, match='raised KeyError'):
    benchmark._run(given(theirs, add='somebodys:raises'))


def test_a_method_that_fits_is_traced_once_for_all_settings_with_the_same_shapes(theirs, monkeypatch):
  traced, trace = [], runs._Runner.trace
  monkeypatch.setattr(runs._Runner, 'trace', lambda self: traced.append(trace(self)))
  few = runs.Place('digits', 'smoke', 'one', 'partial')
  added.check([PLACE, PLACE, few], 'somebodys:fits')
  assert len(traced) == 2  # in the last fewer clients take part


def test_a_run_of_no_rounds_is_not_asked_for():
  """Where a method has so many more examples than Private that the same number is less than a round."""
  cell = cells.Cell(PLACE, 'fedmd')
  tuned = [{'seed': 100, 'choice': choice, 'validation': 0.5} for choice in budget.grid('fedmd')]
  one = lambda examples: {'tuning': tuned, 'equal': [], 'runs': [{'seed': 0, 'examples': examples}]}
  left = lambda examples: cells.left({**cells.described(cell), **one(examples)}, one(60.0), (0,))
  assert left(120.0) == [('equal', budget.grid('fedmd')[0], 0, 0.5)]
  assert left(250.0) == []  # one round, in which clients train alone
  assert left(600.0) == []


MISTAKES = [
  ({'tiers': []}, 'tiers is empty; name some, or leave it out for all'),
  ({'settings': []}, 'settings is empty; name some'),
  ({'methods': []}, 'methods is empty; name some'),
  ({'seeds': ['0', '0']}, "seeds='0,0' has '0' twice; name it once"),
  ({'tiers': ['one', 'pairs', 'one']}, "tiers='one,pairs,one' has 'one' twice"),
  ({'seeds': ['0', '00']}, "seeds='0,00' must be some of 0, 1, each once"),
  (
    {'settings': ['fw']},
    "settings='fw' is unknown; the suite digits has skew-0.1, skew-0.5, few, partial, converged, domains; is it 'few'?",
  ),
  ({'settings': ['nope']}, "settings='nope' is unknown; the suite digits has skew-0.1, "),
  ({'suite': 'pacs', 'settings': ['domains'], 'tiers': ['pairs']}, "tiers='pairs' is unknown; the suite pacs has diff"),
  ({'settings': ['converged']}, "tiers='one' has none of the settings converged; leave one or the other out"),
  ({'report': True}, 'the page is of all results in --out; leave out --suite, --tiers, --settings, --seeds'),
  (
    {'report': True, **dict.fromkeys(('suite', 'tiers', 'settings', 'seeds'))},
    "profile='smoke': the page is of results of whole; leave out --profile",
  ),
  ({'add': ''}, 'add is empty; give it a value, or leave it out'),
  ({'tune': ''}, 'tune is empty; give it a value, or leave it out'),
  ({'add': 'mine:fits@weight=1,2'}, "add='mine:fits@weight=1,2' is not a path; give module:function, "),
  ({'add': 'nowhere:fits'}, "add='nowhere:fits' cannot be loaded"),
  ({'settings': ['few', 'converged']}, "settings='converged' is in none of the tiers one; it is in different"),
]


@pytest.mark.parametrize(('flags', 'sentence'), MISTAKES)
@pytest.mark.parametrize('listed', [False, True])
def test_what_the_command_line_names_is_there_and_named_once(tmp_path, monkeypatch, capsys, flags, sentence, listed):
  monkeypatch.setattr(suite, 'run', lambda *a: [])
  monkeypatch.setattr(benchmark.flags, 'FLAGS', given(tmp_path, **{'list': listed, 'report': False, **flags}))
  with pytest.raises(SystemExit, match='2'):
    benchmark.main(['benchmark'])
  assert capsys.readouterr().err.startswith(f'fedkd: {sentence}')


def test_the_list_is_of_what_is_named(tmp_path, monkeypatch, capsys):
  flags = {'settings': ['few', 'skew-0.5'], 'tiers': ['pairs'], 'methods': ['private', 'fedavg', 'fedrep']}
  with pytest.raises(ConfigError, match='fedrep'):
    benchmark._chosen(given(tmp_path, **flags))
  chosen = given(tmp_path, **{**flags, 'tiers': ['pairs', 'one']})
  suite.listing(benchmark._chosen(chosen), tmp_path, chosen.methods)
  assert capsys.readouterr().out.splitlines() == [
    'pairs     few        0 of 2 methods done  label skew 0.5, 80 images a client',
    '  not fedrep: weights of different architectures have no mean',
    'pairs     skew-0.5   0 of 2 methods done  label skew, Dirichlet 0.5',
    '  not fedrep: weights of different architectures have no mean',
    'one       few        0 of 3 methods done  label skew 0.5, 80 images a client',
    'one       skew-0.5   0 of 3 methods done  label skew, Dirichlet 0.5',
  ]


def test_somebody_elses_method_is_run_beside_those_that_are_named(theirs, monkeypatch, capsys):
  asked = []
  monkeypatch.setattr(suite, 'run', lambda chosen, *a: asked.extend(cell.method for cell in chosen) or [])
  benchmark._run(given(theirs, add='somebodys:fits', methods=['agg', 'private']))
  assert asked == ['private', 'agg', 'somebodys:fits']  # Private first, with whose examples equal budgets are made


def test_private_is_run_first_where_it_is_missing(theirs, monkeypatch, capsys):
  asked = []

  def run(place, method, choice, seed, tuning=False, share=1.0):
    asked.append((place.setting, method))
    done = {'seed': seed, 'choice': choice, 'seconds': 1.0, 'compiling': 0.0, 'diverged': False, 'examples': 9.0}
    point = {'round': 6, 'examples': 9.0, 'bytes_up': 0, 'bytes_down': 0, 'own': [0.5] * 10, 'all': [0.5] * 10}
    own = {'curve': [point], 'public_bytes': {'up': 0, 'down': 0}}
    return {**done, **({'validation': 0.5} if tuning else own)}

  monkeypatch.setattr(runs, 'run', run)
  few = given(theirs, add='somebodys:fits', settings=['few'])
  benchmark._run(few)
  assert asked == [('few', 'private')] * 9 + [('few', 'somebodys:fits')] * 9
  said = capsys.readouterr().out
  assert said.startswith('private, with which somebodys:fits is compared, is run first in one, few\n')
  assert '| somebodys:fits (1 of 2 seeds) | 50.00 | +0.00 |' in said.replace('seeds, uncommitted code)', 'seeds)')
  both = given(theirs, add='somebodys:fits', settings=['few', 'skew-0.5'])
  benchmark._run(both)
  assert asked[18:] == [('skew-0.5', 'private')] * 9 + [('skew-0.5', 'somebodys:fits')] * 9


def test_a_flag_that_is_given_twice_is_refused_by_every_program(capsys):
  with pytest.raises(SystemExit, match='2'):
    exits.parse(['benchmark', '--suite=digits', '--suite=letters'])
  assert capsys.readouterr().err == 'fedkd: --suite=digits and --suite=letters are one flag; give it once\n'


@pytest.mark.parametrize(
  ('tune', 'sentence'),
  [
    ('weight', "tune='weight' is not an argument with two numbers; write --tune=weight:0.1,1"),
    ('weight:1', 'is not an argument with two numbers'),
    ('weight:1,1.0', 'is not an argument with two numbers'),
    ('weight:1,nan', 'is not an argument with two numbers'),
    ('weight:1,2,3', 'is not an argument with two numbers'),
    ('wight:0.1,1', "add=somebodys:fits has no argument to tune 'wight'; it has weight; is it 'weight'?"),
    ('steps:1,2', "add=somebodys:fits has no argument to tune 'steps'; it has weight"),
    ('weight:-1,1', 'add=somebodys:fits: weight=-1 is refused (mu=-1.0 must be'),
  ],
)
def test_what_is_tuned_is_an_argument_with_two_numbers(theirs, monkeypatch, tune, sentence):
  monkeypatch.setattr(suite, 'run', lambda *a: pytest.fail('a run'))
  with pytest.raises(ConfigError) as error:
    benchmark._run(given(theirs, add='somebodys:fits', tune=tune))
  assert sentence in str(error.value)


def test_a_method_of_somebody_elses_chooses_among_four_rates_and_two_values(theirs):
  method = names.name_of('somebodys:fits', 'weight:1,0.1')
  assert method == 'somebodys:fits@weight=0.1,1.0'
  grid = budget.grid(method)
  assert {choice['weight'] for choice in grid} == {0.1, 1.0}
  assert {choice['learning_rate'] for choice in grid} == set(budget.RATES)
  assert len(grid) == budget.BUDGET
  added.check([PLACE], method)
  sys.modules['somebodys'].GIVEN.clear()
  one = runs.run(PLACE, method, grid[0], 0)
  assert len(one['curve']) == 6
  same = runs.run(PLACE, method, grid[1], 0)
  assert same['compiling'] == 0  # the value is an argument of the program
  assert all(isinstance(value, jax.core.Tracer) for value in sys.modules['somebodys'].GIVEN)
  path = cells.path_of(cells.Cell(PLACE, method), theirs)
  assert path.name == 'somebodys.fits@weight=0.1,1.0.json'
  needed = names.name_of('somebodys:needs', 'temperature:1,2')
  added.check([PLACE], needed)  # which without it nobody would give


def test_a_value_to_tune_needs_a_method(tmp_path):
  with pytest.raises(ConfigError, match="tune='weight:1,2' is of a method of yours; give it with --add"):
    benchmark._chosen(given(tmp_path, tune='weight:1,2'))


def test_the_code_of_a_partial_and_of_what_is_imported_is_where_it_is_named_and_where_it_is_written(theirs):
  named = theirs / 'named.py'
  made = lambda weight: (
    f'import functools\nfrom somebodys import fits as chosen\npart = functools.partial(chosen, weight={weight})'
  )
  of = lambda: (names.checksum.cache_clear(), [names.checksum(f'named:{name}') for name in ('part', 'chosen')])[1]
  named.write_text(made(1.0))
  first = of()
  named.write_text(made(2.0))
  second = of()
  (theirs / 'somebodys.py').write_text(CODE + '# better')
  for before, after in ((first, second), (second, of())):
    assert not {*before} & {*after}


def test_a_run_that_is_told_of_is_kept(theirs, monkeypatch):
  monkeypatch.setattr(cells, 'add', lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
  done = {'seconds': 1.0, 'compiling': 0.0, 'validation': 0.5, 'seed': 100, 'choice': {}}
  monkeypatch.setattr(runs, 'run', lambda *a: done)
  monkeypatch.setattr('builtins.print', lambda *a, **k: pytest.fail('told'))
  with pytest.raises(KeyboardInterrupt):
    suite._finish(cells.Cell(PLACE, 'private'), theirs, (0,), {'commit': 'c', 'dirty': False, 'device': 'd'})


def test_a_folder_that_cannot_be_written_is_refused_before_the_first_run(tmp_path, monkeypatch):
  (tmp_path / 'file').write_text('')
  monkeypatch.setattr(runs, 'run', lambda *a: pytest.fail('a run'))
  with pytest.raises(ConfigError, match=r'out=.*file cannot be written \(.*\); choose another folder'):
    suite.run([cells.Cell(PLACE, 'private')], tmp_path / 'file')


def test_an_interrupt_is_a_sentence_and_a_code(capsys):
  with pytest.raises(SystemExit, match='130'), exits.codes():
    raise KeyboardInterrupt
  assert capsys.readouterr().err == 'fedkd: interrupted\n'


def test_results_are_of_the_code_that_made_them(theirs):
  """Also where its file changes while the runs are made: what was imported counts."""
  cell, other = (cells.Cell(PLACE, method) for method in ('somebodys:fits', 'fedhe'))
  one = {'seed': 100, 'choice': budget.grid('fedprox')[0], 'validation': 0.5}
  cells.add(cell, theirs, 'tuning', one)
  (theirs / 'somebodys.py').write_text(CODE + '# better')
  cells.add(cell, theirs, 'tuning', {**one, 'seed': 101})
  assert len(cells.read(cell, theirs)['tuning']) == 2
  names.checksum.cache_clear()  # as in another process
  sentence = r'somebodys.fits.json was made with other code of somebodys:fits, whose file has changed since; move it '
  with pytest.raises(ConfigError, match=sentence):
    cells.read(cell, theirs)
  assert 'code' not in cells.described(other)  # the commit says it
  assert 'code' not in cells.described(cell._replace(method='launch.studies.comparison.controls:private_fresh'))


def test_what_learns_from_public_rows_gets_as_many_as_ours_and_their_bytes_are_counted(theirs):
  fields = lambda name, profile: budget.fields('digits', profile, 'one', 'skew-0.5', f'somebodys:{name}')
  size = settings.SIZES['whole']
  passes = {'subset': size.subset, 'digest_batch': size.batch, 'digest_epochs': size.public_passes}
  assert fields('public', 'whole') == {'steps': size.steps, 'batch': size.batch, **passes}
  assert fields('by_steps', 'whole') == {'steps': 6, 'batch': 32, 'subset': 128, 'digest_steps': 8}
  assert fields('fits', 'smoke') == {'steps': 1, 'batch': 8}
  added.check([PLACE], 'somebodys:by_steps')
  world = problem.make(PLACE.astuple(), 0)
  sent = runs.public_bytes('fedmd', world)
  assert sent['up'] > 0
  assert runs.public_bytes('somebodys:public@weight=0.1,1.0', world) == sent
  assert runs.public_bytes('somebodys:fits', world) == {'up': 0, 'down': 0}
