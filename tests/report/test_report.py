"""The report: its numbers are those of the analysis, nothing in it leads outside, and who is kept out is named."""

import html.parser
import pathlib
import re
import runpy
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hostile import HOSTILE

import fedkd
import runs
from fedkd import analysis, config, experiment
from fedkd.analysis import compare, results
from fedkd.analysis.figures import panels
from fedkd.errors import ConfigError
from fedkd.report import chosen, content, drawings, markdown, rerun, tables, themes

VOID = {'meta', 'link', 'img', 'br', 'hr', 'input', 'wbr'}


class Reader(html.parser.HTMLParser):
  """Tags, attributes, and the cells of the tables; every tag is closed in its order."""

  def __init__(self, text):
    super().__init__()
    self.open, self.tags, self.attributes, self.tables, self.cell = [], [], [], [], None
    self.feed(text)
    assert not self.open

  def handle_starttag(self, tag, attrs):
    self.tags.append(tag)
    self.attributes += [(tag, name, value) for name, value in attrs]
    if tag not in VOID:
      self.open.append(tag)
    if tag == 'table':
      self.tables.append([])
    if tag == 'tr':
      self.tables[-1].append([])
    if tag in ('td', 'th'):
      self.cell = ''

  def handle_startendtag(self, tag, attrs):
    self.tags.append(tag)
    self.attributes += [(tag, name, value) for name, value in attrs]

  def handle_endtag(self, tag):
    assert self.open.pop() == tag
    if tag in ('td', 'th'):
      self.tables[-1][-1].append(' '.join(self.cell.split()))
      self.cell = None

  def handle_data(self, data):
    if self.cell is not None:
      self.cell += data


@pytest.fixture(scope='module')
def page(finished):
  pytest.importorskip('jinja2')
  return fedkd.report(finished)


@pytest.fixture(scope='module')
def parsed(page):
  return Reader(page)


@pytest.fixture(scope='module')
def found(finished):
  return chosen.runs(finished)


def test_the_numbers_are_those_of_the_analysis(finished, parsed):
  paths = {name: finished / name for name in (HOSTILE, 'private')}
  frame = analysis.runs(f'{finished}/*')
  wanted = compare.table({name: results.summary(path) for name, path in paths.items()}, frame)
  head, *lines = parsed.tables[0]
  for line, (_, row) in zip(lines, wanted.iterrows(), strict=True):
    shown = dict(zip(head, line, strict=True))
    assert {name: shown[name] for name in wanted.columns} == row.to_dict()
  table = analysis.summary(frame).set_index('run')
  shown = dict(zip(head, lines[0], strict=True))
  assert shown['p'] == f'{table.loc[HOSTILE, "p"]:.3f}'
  assert shown['clients worse off %'] == f'{100 * table.loc[HOSTILE, "negative_share"]:.0f}'


def test_clients_and_architectures_are_means_of_the_summary(finished, found):
  final = 100 * np.array(results.summary(finished / 'private')['final_per_client'])  # [seeds, clients]
  of_client = tables.clients(found).frame
  assert list(of_client['private %']) == [analysis.spread(final[:, k]) for k in range(4)]
  of_architecture = tables.architectures(found).frame
  assert list(of_architecture['architecture']) == ['MLP 8', 'MLP 4']
  assert list(of_architecture['private %']) == [analysis.spread(final[:, k : k + 2].mean(1)) for k in (0, 2)]


def test_architectures_of_runs_that_have_others_are_those_of_the_reference_and_told(found):
  frame = found.frame.copy()
  frame.loc[(frame['run'] == HOSTILE) & (frame['client'] == 3), 'architecture'] = 'MLP 8'
  mixed = found._replace(frame=frame)
  for make in (tables.architectures, tables.clients):
    assert make(mixed).note == f'{make(found).note} Architectures are those of private, and others in {HOSTILE}.'
  axes = analysis.gain(frame, by='architecture')
  assert axes.get_xlabel().startswith('architecture with private')
  assert analysis.gain(found.frame, by='architecture').get_xlabel().startswith('architecture\n')


def test_the_setting_counts_all_phases_and_the_architectures_of_every_run(finished, tmp_path):
  for run in (HOSTILE, 'private'):
    shutil.copytree(finished / run, tmp_path / run)
  assert content._setting(chosen.runs(tmp_path)).endswith(': 2 rounds, 3 seeds each.')
  before = [{'name': 'private', 'steps': 2, 'batch': 8, 'rounds': 10}]
  runs.change_config(tmp_path / HOSTILE, lambda config: config.update(before=before))
  found = chosen.runs(tmp_path)
  found.summaries[HOSTILE]['groups'] = found.summaries[HOSTILE]['groups'][:1]
  assert content._setting(found).startswith('2 runs of 4 clients with 1 to 2 architectures on npz:')
  assert content._setting(found).endswith(': 2 to 12 rounds, 3 seeds each.')


def test_rounds_of_runs_that_stop_early_are_at_most_so_many(finished, tmp_path):
  shutil.copytree(finished / 'private', tmp_path / 'private')
  early = {'watch': 'validation_accuracy', 'patience': 2, 'min_delta': 0.0}
  for last, before in ((early, []), ({**early, 'watch': ''}, [{'name': 'private', 'rounds': 0, 'early_stop': early}])):
    runs.change_config(
      tmp_path / 'private', lambda config, at=(last, before): config.update(early_stop=at[0], before=at[1])
    )
    said = content._setting(chosen.runs(tmp_path))
    assert said.endswith(': 2 rounds at most, as clients stop early, 3 seeds each.')


def test_accuracy_on_own_test_rows_is_in_the_tables_and_the_rows_are_told(found):
  assert tables.accuracies(found).note.count('Every client is tested on the shared test set.') == 1
  frame = found.frame.query("metric == 'accuracy'").assign(metric='accuracy_local')
  summaries = {run: {**one, 'final_local': one['worst_client']} for run, one in found.summaries.items()}
  own = found._replace(summaries=summaries, frame=pd.concat([found.frame, frame.assign(value=1 - frame['value'])]))
  said = 'Every client is tested on the test rows of all clients together, for own rows % on its own alone.'
  assert list(tables.accuracies(own).frame['own rows %']) == list(tables.accuracies(found).frame['worst client %'])
  of_client, final = tables.clients(own), 100 * np.array(summaries['private']['final_per_client'])
  assert list(of_client.frame['private, own rows %']) == [analysis.spread(100 - final[:, k]) for k in range(4)]
  assert said in tables.accuracies(own).note
  assert said in of_client.note
  assert tables.architectures(own).note.endswith(' of each, on the test rows of all clients together.')


def test_of_very_many_clients_the_least_accurate_are_shown(found, monkeypatch):
  monkeypatch.setattr(tables, 'MOST_CLIENTS', 2)
  every = found.frame.query("run == 'private' and metric == 'accuracy' and client >= 0 and round == 2")
  worst = every.groupby('client')['value'].mean().nsmallest(2).index
  table = tables.clients(found)
  assert list(table.frame['client']) == [str(client) for client in sorted(worst)]
  assert table.note.startswith('The 2 of 4 clients')


def test_a_client_without_a_value_in_a_seed_has_none_in_the_tables(found):
  at = dict(run='private', metric='accuracy', client=3, seed=4, round=2)
  frame = found.frame.copy()
  frame.loc[(frame[list(at)] == pd.Series(at)).all(axis=1), 'value'] = np.nan
  broken = found._replace(frame=frame)
  for make, before in ((tables.clients, 3), (tables.architectures, 1)):
    column, whole = list(make(broken).frame['private %']), list(make(found).frame['private %'])
    assert column == [*whole[:before], '-']


def test_bytes_by_kind_add_up_to_those_of_the_comparison(finished, found):
  frame = tables.ledger(found).frame.set_index('MB of all clients, by kind')[HOSTILE]
  up = frame[frame.index.str.startswith('up: ')].astype(float).sum()
  assert up == pytest.approx(np.mean(results.sent(results.summary(finished / HOSTILE), 'bytes')['up']) / 1e6, abs=2e-4)


def test_a_few_bytes_are_told_from_none(found):
  summary = {**found.summaries[HOSTILE], 'ledger': {'up': {'labels': {'bytes': [300, 384, 468]}}, 'down': {}}}
  little = found._replace(summaries={**found.summaries, HOSTILE: summary})
  assert list(tables.ledger(little).frame[HOSTILE]) == ['0.000384']
  assert content._cost(little, HOSTILE) == f'{HOSTILE} sends and receives 0.000384 MB.'


def test_configs_are_marked_where_they_differ(found):
  table = tables.configs(found)
  marked = set(table.frame['field'][list(table.differs)])
  assert {'method.name', 'method.alpha'} <= marked
  assert not {'rounds', 'data.name', 'method.batch'} & marked


def test_the_page_needs_nothing_else(page, parsed):
  assert len(page.encode()) < 2e6
  leading = [(tag, name, value) for tag, name, value in parsed.attributes if name in ('src', 'href', 'action', 'data')]
  assert all(value.startswith(('#', 'data:')) for _, _, value in leading)
  assert 'http://' not in page
  assert 'https://' not in page
  assert '@import' not in page
  assert parsed.tags.count('svg') == 5
  ids = [value for _, name, value in parsed.attributes if name == 'id']
  assert len(ids) == len(set(ids))
  used = set(re.findall(r'(?:href="|url\()#([\w-]+)', page))
  assert used <= set(ids)


def test_the_same_runs_give_the_same_bytes(finished, page):
  assert fedkd.report([finished / HOSTILE, finished / 'private']) == page


def test_a_name_is_text_and_nothing_else(page, parsed):
  assert 'img' not in parsed.tags
  assert not [name for _, name, _ in parsed.attributes if name.startswith('on')]
  assert parsed.tables[0][1][0] == HOSTILE
  assert page.count('&lt;img src=x onerror=alert(1)&gt;$a_1$') > 5


def test_a_name_in_a_figure_is_no_mathematics(found):
  for drawing in drawings.every(found):
    for part in ('&lt;img src=x', 'onerror=alert(1)&gt;$a_1$'):  # a long name is in several lines
      assert (part in drawing.svg) == ('<text' in drawing.svg)


def test_long_names_fit_into_a_figure(found):
  name = 'fedhe with a very long name for its run, alpha=0.5 beta=0.9 (sends nothing)'
  for draw in (analysis.curves, analysis.worst):
    axes = draw(found.frame.replace({'run': {HOSTILE: name}}), axes=panels.blank(*drawings.SIZE))
    drawings._fit(axes)
    figure = axes.get_figure(root=True)
    figure.draw_without_rendering()
    texts = figure.legends[0].get_texts() if figure.legends else [*axes.get_yticklabels(), axes.xaxis.label]
    assert len(texts) >= 2
    boxes = [text.get_window_extent() for text in texts]
    assert min(box.x0 for box in boxes) >= 0
    assert max(box.x1 for box in boxes) <= figure.bbox.x1


def test_every_colour_is_told_from_a_dark_page():
  for colour in ('#000000', '#00476e', '#0072b2', '#e69f00', '#7f7f7f'):
    assert themes.contrast(themes.on_dark(colour), themes.DARK) >= 4.5
  assert themes.on_dark('#e69f00') == '#e69f00'
  assert themes.contrast('#ffffff', '#000000') == pytest.approx(21)
  assert themes.contrast('#777777', '#ffffff') == pytest.approx(4.48, abs=0.005)  # the best-known pair of WCAG


def test_figures_have_the_colours_of_the_page(found):
  for drawing in drawings.every(found):
    assert not re.search(r'style="[^"]*#[0-9a-f]{6}', drawing.svg)
  assert drawings.variables('var(--c0072b2) var(--paper) var(--c0072b2)') == ['#0072b2']


def test_figures_of_many_runs_show_the_reference_and_the_best(found):
  names = [f'run {i}' for i in range(12)]
  gain = np.where(np.arange(12) == 2, 0, np.linspace(-0.2, 0.5, 12))  # in common seeds; means are of others, too
  table = pd.DataFrame({'mean': np.linspace(0.9, 0.1, 12), 'gain': gain}, names)
  many = found._replace(paths=dict.fromkeys(names), table=table, base='run 2')
  assert drawings.shown(many) == ['run 2', *names[5:]]
  assert drawings.shown(found) == list(found.paths)


def test_who_is_kept_out_is_named_with_the_reason(mixed):
  found = chosen.runs(mixed)
  assert list(found.paths) == [HOSTILE, 'private']
  said = '\n'.join(found.left_out)
  assert f'{mixed}/unfinished holds no finished run' in said
  assert f'{mixed}/damaged: metrics.jsonl is damaged or has changed' in said
  assert 'other is not compared with private: other data.validation' in said
  assert set(found.frame['run']) == {HOSTILE, 'private'}
  assert all(f'\n* {markdown._plain(line)}' in markdown.text(content.of(found)) for line in found.left_out)


def test_runs_that_cannot_be_compared_are_refused(mixed):
  shutil.rmtree(mixed / HOSTILE)
  with pytest.raises(ConfigError, match=r'no run can be compared: private is not .* other data.validation; give runs'):
    fedkd.report([mixed / 'private', mixed / 'other'], reference=mixed / 'other')
  with pytest.raises(ConfigError, match=r'no run can be reported: .* holds no finished run'):
    fedkd.report(mixed / 'unfinished')


@pytest.mark.parametrize(
  ('given', 'said'),
  [
    ({'runs': 'nowhere'}, 'runs=nowhere does not exist'),
    ({'runs': '.'}, 'holds no run'),
    ({'runs': []}, 'runs is empty; give run directories, or a folder of some'),
    ({'format': 'pdf'}, "format='pdf' is none of html, md"),
    ({'reference': 'fedmd'}, "reference='fedmd' is 0 runs"),
    ({'out': 'report.pdf'}, r'out=report\.pdf is no name of a page; let it end in \.html or \.md, or give format'),
    ({'out': '.', 'format': 'md'}, r'out=\. cannot be written'),
    ({'out': 'file/report.html'}, 'out=file cannot be written'),
  ],
)
def test_what_is_refused(finished, tmp_path, monkeypatch, given, said):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'file').touch()
  with pytest.raises(ConfigError, match=said):
    fedkd.report(**{'runs': finished, **given})


def test_without_jinja2_the_remedy_is_named(finished, monkeypatch):
  monkeypatch.setitem(sys.modules, 'jinja2', None)
  with pytest.raises(ConfigError, match=r"needs jinja2, which is not installed; pip install 'fedkd\[report\]'"):
    fedkd.report(finished)
  assert fedkd.report(finished, format='md')


def test_a_single_seed_is_called_so(found):
  one = found._replace(frame=found.frame.query('seed == 3'))
  assert tables.accuracies(one).note.startswith('Test accuracy at the end, mean over clients, of a single seed. ')


def test_a_single_run_has_no_reference(finished):
  found = chosen.runs(finished / HOSTILE)
  assert 'difference' not in tables.accuracies(found).frame
  said = content.of(found)
  assert said.question == 'How accurate is fedhe?'
  assert said.answer[0].startswith(f'{HOSTILE}: ')
  assert [drawing.title for drawing in drawings.every(found)] == [
    'Accuracy over rounds', 'Accuracy against megabytes', 'Worst client',
  ]  # fmt: skip


def test_the_answer_names_the_difference_and_says_whether_it_is_significant(found):
  line = found.table.loc[HOSTILE]
  (said,) = [sentence for sentence in content.of(found).answer if 'points' in sentence]
  assert f'{100 * line["gain"]:+.2f} points' in said
  assert f'[{100 * line["gain_low"]:+.2f}, {100 * line["gain_high"]:+.2f}]' in said
  assert ('not significant' in said) == (line['p'] >= 0.05)


def test_a_difference_to_a_run_without_a_value_is_none(found):
  table = found.table.copy()
  table.loc[HOSTILE, ['gain', 'gain_low', 'gain_high', 'p']] = np.nan
  said = content._gain(found._replace(table=table), HOSTILE)
  assert said == f'{HOSTILE} has no difference to private: in one of them a client has no value at the end.'


def test_runs_of_other_seeds_are_ranked_over_those_that_they_share_with_the_reference(finished, tmp_path):
  """The same run with fewer seeds is not better than itself, whatever these seeds are like."""
  for run in ('private', 'few'):
    shutil.copytree(finished / 'private', tmp_path / run)
  found = chosen.runs(tmp_path, 'private')
  few, final = found.summaries['few'], found.summaries['private']['final']
  best = int(np.argmax(final))
  few.update(seeds=[few['seeds'][best]], final=[final[best]])
  frame = found.frame[(found.frame['run'] == 'private') | found.frame['seed'].isin(few['seeds'])]
  first, _ = content.of(found._replace(table=analysis.summary(frame, 'private').set_index('run'))).answer
  same = f'{100 * max(final):.2f} % over 1 common seed'
  assert first.startswith(f'private is the most accurate on average: {same}. Next is few with {same}. ')


def test_differences_without_spread_have_no_test(finished, tmp_path):
  for name in ('private', 'again'):
    shutil.copytree(finished / 'private', tmp_path / name)
  first, _ = content.of(chosen.runs(tmp_path)).answer
  assert first.endswith('The difference of private to again is +0.00 points in each of 3 common seeds.')


def test_the_config_of_the_page_is_that_of_the_run(finished, found, tmp_path):
  for again, run in zip(rerun.of(found), found.paths, strict=True):
    file = tmp_path / again.name
    file.write_text(again.config)
    made = runpy.run_path(str(file))['get_config']()
    assert config.to_json(made) == results.comparable(config.to_json(experiment.read_config(finished / run)))
    assert again.command == f'fedkd run {again.name} --workdir=runs/{file.stem}'


def test_the_report_of_the_reruns_has_the_same_reference(finished):
  found = chosen.runs(finished, HOSTILE)
  names = {again.run: again.name.removesuffix('.py') for again in rerun.of(found)}
  command = rerun.report_command(rerun.of(found), found.base)
  assert f'--reference=runs/{names[HOSTILE]} ' in command


def test_a_rerun_is_told_to_say_where_its_data_lie_and_does_not_say_where_they_lay(finished, tmp_path):
  shutil.copytree(finished / 'private', tmp_path / 'private')
  runs.change_config(tmp_path / 'private', lambda config: config['data'].update(dir='/home/a b/secret'))
  (again,) = rerun.of(chosen.runs(tmp_path))
  assert again.command == 'fedkd run run_1_private.py --workdir=runs/run_1_private --config.data.dir=DIR'
  assert 'secret' not in again.config


def test_a_rerun_starts_from_the_rerun_of_the_run_that_it_started_from(finished, found, monkeypatch):
  path = found.paths['private']
  stored = {'private': {}, HOSTILE: {'init_from': f'{path.name}@0'}}
  monkeypatch.setattr(rerun.tables, 'stored_config', lambda path: stored[path.name])
  names = {again.run: again.name.removesuffix('.py') for again in rerun.of(found)}
  (other,) = [again.config for again in rerun.of(found) if again.run == HOSTILE]
  assert f"'init_from': '{names['private']}@0'" in other


def test_the_setting_says_where_some_clients_are_evaluated(found, monkeypatch):
  whole = tables.stored_config
  assert 'Only' not in content._setting(found)
  monkeypatch.setattr(content.tables, 'stored_config', lambda path: {**whole(path), 'eval_clients': 2})
  assert content._setting(found).endswith(' Only 2 clients of each are evaluated, a fixed random sample.')


def test_the_latex_table_is_booktabs_and_escaped(found):
  table = tables.Table('', found.table.reset_index()[['run']].astype(str).assign(**{'a_b %': ['-1.5 ± 2', '{x}']}))
  assert markdown.latex(table).splitlines()[1:] == [
    r'\begin{tabular}{lr}', r'\toprule', r'run & a\_b \% \\', r'\midrule',
    r'$<$img src=x onerror=alert(1)$>$\$a\_1\$ & $-$1.5 $\pm$ 2 \\', r'private & \{x\} \\', r'\bottomrule',
    r'\end{tabular}',
  ]  # fmt: skip


@pytest.mark.parametrize(
  ('cell', 'shown'),
  [
    ('-6.75 [-7.39, -6.11]', '$-$6.75 [$-$7.39, $-$6.11]'),
    ('a|b', r'a\textbar{}b'),
    ('lr-1 1e-3 2026-01-02', 'lr-1 1e-3 2026-01-02'),
    ('-', '-'),
  ],
)
def test_every_minus_of_a_number_is_one_in_latex_and_a_bar_is_a_bar(cell, shown):
  assert markdown._tex(cell) == shown


def test_markdown_has_every_table_and_escapes_names(finished, tmp_path):
  text = fedkd.report(finished, tmp_path / 'deep' / 'appendix.md', question='Does it help?')
  assert (tmp_path / 'deep' / 'appendix.md').read_text() == text
  assert text.startswith('# Does it help?\n')
  assert r'| \<img src=x onerror=alert(1)\>\$a\_1\$ |' in text
  assert [line[3:] for line in text.splitlines() if line.startswith('## ')] == [
    'Accuracy and cost', 'Per architecture', 'Per client', 'What was sent', 'Configs', 'Environment', 'Run it again',
  ]  # fmt: skip


def test_the_command_writes_the_page_and_names_who_is_kept_out(mixed, tmp_path):
  out = tmp_path / 'deep' / 'appendix.md'
  words = [sys.executable, '-m', 'fedkd', 'report', str(mixed), f'--out={out}', '--question=Why?']
  done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=pathlib.Path(fedkd.__file__).parents[1])
  assert out.read_text().startswith('# Why?\n')
  lines = done.stdout.splitlines()
  assert [line.split(':')[0] for line in lines] == ['kept out'] * 3 + [str(out)]
  assert lines[-1].startswith(f'{out}: 2 runs, ')


@pytest.mark.slow
def test_a_run_from_the_config_of_the_page_ends_in_the_same_bits(finished, found, tmp_path):
  again = rerun.of(found)[0]
  (tmp_path / again.name).write_text(again.config)
  made = runpy.run_path(str(tmp_path / again.name))['get_config']()
  summary = experiment.run(made, tmp_path / 'run', show=False)
  assert summary['state_sha256'] == results.summary(finished / HOSTILE)['state_sha256']
