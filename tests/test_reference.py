"""The pages that `docs/reference` makes from the code."""

import base64
import importlib
import inspect
import json
import pathlib
import re
from xml.etree import ElementTree

import jax
import pytest

import fedkd
import links
from fedkd import analysis, ledger, methods, types
from fedkd.config import choices, defaults
from fedkd.config.trees import flatten, to_json
from reference import api, cheat_sheet, config_fields, drawing, example, messages, method, notebooks
from reference.signature import signature

PIXEL = base64.b64encode(b'a picture').decode()


@pytest.mark.parametrize('name', methods.__all__)
def test_every_method_says_what_is_learned_sent_and_averaged(name):
  page = method.page(name, '', [])
  for word in ('Learned', 'Sent', 'Averaged'):
    assert re.search(rf'^\* \*\*{word}\*\*: \S', page, re.MULTILINE)


@pytest.mark.parametrize('name', methods.__all__)
def test_the_table_of_messages_is_the_ledgers(name):
  page = messages.table(name)
  for message, root in zip(messages.of_client_0(name), ('upload', 'download'), strict=True):
    rows = [row.split('|')[1:-1] for row in page.splitlines() if row.startswith(f'| `{root}')]
    found: dict = {}
    for _, size, numbers, _, kind in rows:
      before = found.get(kind.strip(), (0, 0))
      found[kind.strip()] = before[0] + _number(numbers), before[1] + _number(size)
    assert found == {kind: counts for kind, counts in ledger.capacity(message).items() if counts[0]}


@pytest.mark.parametrize('name', methods.__all__)
def test_the_arrows_of_the_drawing_carry_what_the_table_says(name):
  """By direction, of which an arrow has the sign: its head is at the server, on the right, where it goes up."""
  made = drawing.drawing(name)
  root = ElementTree.fromstring(made).find('svg')
  labels = [text.text for text in root.iter('text')][3:]  # what is before: client 0, server, trains
  heads = [re.match(r'M(\d+) \d+l', path.get('d')) for path in root.iter('path')]
  at = [int(head[1]) for head in heads if head]
  assert len(at) == len(labels)
  for message, x in zip(messages.of_client_0(name), (drawing.RIGHT, drawing.LEFT), strict=True):
    drawn = sum(_number(label.split(':')[1]) for label, end in zip(labels, at, strict=True) if end == x)
    assert drawn == sum(size for _, size in ledger.capacity(message).values())
  assert ('<figure>' in method.page(name, '', [])) == bool(labels)


def test_a_round_sends_what_the_table_says():
  """FedHe's clients here see all classes, so that the most is what they send."""
  simulation = fedkd.simulation(example.method('fedhe'), example.federation('fedhe'))
  _, report = simulation.run(simulation.init(jax.random.key(0)), rounds=2)
  last = lambda counts: sum(int(size[-1, 0]) for _, size in counts[0].values())
  totals = re.findall(r'\| all of the \w+ \| ≤\s([\d,]+) \|', messages.table('fedhe'))
  assert [last(report.up), last(report.down)] == [_number(total) for total in totals] == [440, 440]


def _number(text) -> int:
  return int(re.sub(r'[^\d]', '', text))


@pytest.mark.parametrize('name', sorted(set(methods.__all__) - {'public'}))
def test_the_command_of_a_page_trains_its_method(name):
  config, _, choice = method.command(name).split()[2].partition(':')
  assert importlib.import_module(f'configs.{config}').get_config(choice).method.name == name


def test_a_signature_has_an_argument_a_line():
  lines = signature('fedhe', methods.fedhe).splitlines()[2:-2]
  assert [re.match(r'  (\w+)', line)[1] for line in lines] == list(inspect.signature(methods.fedhe).parameters)
  assert '  batch: int = 50,  # at least 1' in lines
  assert '  *,' in signature('train', fedkd.train).splitlines()


def test_the_guide_and_the_cheat_sheet_say_which_keys_are_of_which_kind():
  page = cheat_sheet.page()
  guide = (pathlib.Path(cheat_sheet.__file__).parents[1] / 'guides' / 'method.md').read_text()
  of_guide = dict(re.findall(r'^  \| (.*?) \| (\w+) \|$', guide, re.MULTILINE))
  kinds = {key: kind for keys, kind in of_guide.items() for key in re.findall(r"'(\w+)'", keys)}
  assert kinds == ledger.KINDS
  assert of_guide['any other'] == 'knowledge'
  assert tuple(ledger.KINDS)[:3] == ledger.OF_MODELS  # as the page says
  for key, kind in ledger.KINDS.items():
    assert f"| `'{key}'` | {kind} |" in page


def test_the_cheat_sheet_says_what_every_field_of_data_is():
  page = cheat_sheet.page()
  for field in ('pool.example', 'pool.label', 'private.index', 'private.size', 'private.id', 'everyone', 'public'):
    assert re.search(rf'^\| `data\.{re.escape(field)}` \| `[^`]+` \| \S', page, re.MULTILINE), field
  for name in inspect.signature(types.ServerReceive.__call__).parameters:
    assert name == 'self' or re.search(rf'^\| `{name}` \| \w', page.split('### ServerReceive')[1], re.MULTILINE), name


def test_all_fields_of_a_config_are_on_one_page():
  page = config_fields.page()
  for field in flatten(to_json(defaults.default())):
    block = next((block for block in choices.BLOCKS if field.startswith(f'{block}.')), field)
    assert re.search(rf'^\| `{re.escape(block)}` \| .* \| \S.* \|$', page, re.MULTILINE), field
  assert '| `eval_every` | `10` | rounds between evaluations (a whole number of at least 1) |' in page


def test_the_index_by_task_has_a_sentence_for_all_that_its_modules_export():
  index = api.pages()['index']
  for name in ('fedkd.federation', 'fedkd.train', 'trimmed_mean', 'centred_clipping', 'fedhe', 'dirichlet'):
    assert re.search(rf'\[`{name.rpartition(".")[2]}`\]\(\S+\) \| \w.*\. \|', index), name


def test_every_figure_is_in_the_gallery():
  """But those of stored results."""
  functions = {name: getattr(analysis, name) for name in analysis.__all__}
  drawn = {name for name, function in functions.items() if 'axes' in inspect.signature(function).parameters}
  images = {path.stem for path in (pathlib.Path(__file__).parents[1] / 'docs' / 'gallery').glob('*.png')}
  assert drawn - {'collaboration'} == images


def test_a_link_without_a_file_or_an_anchor_is_broken(tmp_path, monkeypatch):
  monkeypatch.setattr(links, 'SITE', tmp_path)
  pages = {tmp_path / 'a.html': links.Page('<a href="b.html#there"><a href="b.html#gone"><img src="no.png">')}
  pages[tmp_path / 'b.html'] = links.Page('<h1 id="there"><a href="https://else.where/x">')
  (tmp_path / 'b.html').write_text('')
  assert links.broken(pages) == ['a.html: b.html#gone', 'a.html: no.png']


def test_notebooks_are_copied_with_their_links_and_first_figures(tmp_path):
  cells = [
    {'cell_type': 'markdown', 'source': ['# A title\n', '\n', 'What it is. See [data](../docs/guides/data.md).']},
    {'cell_type': 'code', 'source': ['methods.fedhe()'], 'outputs': [{'data': {'image/png': PIXEL}}]},
  ]
  (tmp_path / 'from').mkdir()
  (tmp_path / 'from' / '00_one.ipynb').write_text(json.dumps({'cells': cells}))
  (one,) = notebooks.copied(tmp_path / 'from', tmp_path / 'to')
  assert (one.title, one.thumbnail) == ('A title', '00_one.png')
  assert (tmp_path / 'to' / '00_one.png').read_bytes() == b'a picture'
  assert '](../guides/data.md)' in (tmp_path / 'to' / '00_one.ipynb').read_text()
  assert notebooks.links([one], r'methods\.fedhe\b') == '[A title](../notebooks/00_one.ipynb)'


def test_a_comment_for_a_linter_is_no_meaning_of_a_field():
  (page,) = [text for name, text in api.pages().items() if 'history' in name]
  assert 'noqa' not in page
