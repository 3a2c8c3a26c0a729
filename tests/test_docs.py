"""What the README and the pages of docs/ show is run: Python from top to bottom, commands as far as their flags."""

import pathlib
import re
import shlex

import pytest
from absl import flags

from fedkd import cli
from fedkd.config import choices, command_line

ROOT = pathlib.Path(__file__).parents[1]
WRITTEN = ('README.md', *sorted(str(p.relative_to(ROOT)) for p in (ROOT / 'docs').rglob('*.md')))
MADE = tuple(f'docs/{folder}/' for folder in ('_build', 'api', 'jupyter_execute', 'methods', 'notebooks'))
PAGES = [page for page in WRITTEN if not page.startswith(MADE)]
# Pages that read a finished run: its workdir.
NEEDS_RUN = {f'docs/{page}.md': 'runs/first' for page in ('running/results', 'guides/reports', 'guides/export')}


def blocks(page, language) -> list[str]:
  """The fenced blocks of a page in one language."""
  return re.findall(rf'^```{language}\n(.*?)^```', (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def commands(page) -> list[str]:
  """The lines of a page that start a run; of a loop over methods, its first turn."""
  found = []
  for block in blocks(page, 'bash'):
    block = block.replace('\\\n', ' ')
    for name, values in re.findall(r'for (\w+) in ([^;]+);', block):
      block = block.replace(f'${name}', values.split()[0])
    found += [line.strip() for line in block.splitlines()]
  return [line for line in found if re.search(r'fedkd run|launch\.main', line) and '...' not in line]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
  """A working directory with the examples of docs/ and what the README lets one write."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(str(ROOT / 'docs' / 'examples'))
  monkeypatch.syspath_prepend(str(tmp_path))
  for block in blocks('README.md', 'python'):
    if named := re.match(r'# (\w+\.py)\n', block):
      (tmp_path / named[1]).write_text(block)
  (tmp_path / 'my_methods.py').write_text('from fedkd.methods import private as mine\n')
  return tmp_path


@pytest.mark.documentation
@pytest.mark.parametrize('page', [page for page in PAGES if blocks(page, 'python')])
def test_the_python_of_a_page_runs_from_top_to_bottom(page, elsewhere, capsys):
  if page in NEEDS_RUN:
    _finished_run(elsewhere / NEEDS_RUN[page])
  space = {'__name__': '__main__'}
  for number, block in enumerate(blocks(page, 'python')):
    exec(compile(block, f'{page}, block {number + 1}', 'exec'), space)
  assert 'nan' not in capsys.readouterr().out.lower().split()


@pytest.mark.parametrize(('page', 'line'), [(page, line) for page in PAGES for line in commands(page)])
def test_the_flags_of_a_command_are_there(page, line, elsewhere):
  words = shlex.split(line, comments=True)
  words = words[words.index('run') + 1 if 'run' in words else words.index('launch.main') + 1 :]
  if not words[0].startswith('--'):
    name, colon, string = words[0].partition(':')
    words = [f'--config={cli.configs()[name]}{colon}{string}', *words[1:]]
  words = [word.replace('--config=configs/', f'--config={ROOT}/configs/') for word in words]
  values = flags.FlagValues()
  holder = command_line.define(values)
  others = ('workdir', 'dry_run', 'hosts', 'profile_dir')
  rest = command_line.parse(['main', *(w for w in words if w.lstrip('-').partition('=')[0] not in others)], values)
  assert rest == ['main']
  for word in map(command_line.written_out, words):
    if field := re.match(r'--config\.([\w.]+)=(.+)', word):
      block = holder.value
      for part in field[1].split('.'):
        block = block[part]
      assert type(block) is tuple or str(block) == field[2] or float(block) == float(field[2])


def test_the_guide_names_every_partition_with_its_module():
  lines = re.findall(r'^\| `(\w+)` \| (`.*`) \|$', (ROOT / 'docs/guides/data.md').read_text(), re.MULTILINE)
  told = {name: module for module, names in lines for name in re.findall(r'`(\w+)`', names)}
  assert told == {name: make.__module__.rpartition('.')[2] for name, make in choices.PARTITIONS.items()}


def test_the_readme_is_short_and_names_pages_that_are_there():
  text = (ROOT / 'README.md').read_text()
  assert len(text.splitlines()) <= 250
  for link in re.findall(r'\]\(([^)#:]+)\)', text):
    assert (ROOT / link).exists(), link


def _finished_run(workdir):
  from configs import fedhe_digits
  from fedkd import experiment

  config = fedhe_digits.get_config('smoke,method=private')
  config.groups, config.rounds = ({'model': 'MLP', 'hidden': (16,)},), 2
  experiment.run(config, workdir, show=False)
