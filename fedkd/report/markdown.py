"""A report as Markdown, with its first table in LaTeX: for the appendix of a paper."""

import re

import pandas as pd

import fedkd
from fedkd import analysis
from fedkd.report.content import Content
from fedkd.report.rerun import report_command
from fedkd.report.tables import Table

# What TeX would take for a command.
TEX = {char: f'\\{char}' for char in '&%$#_{}'}
TEX |= {
  '\\': r'\textbackslash{}', '~': r'\textasciitilde{}', '^': r'\textasciicircum{}', '<': '$<$', '>': '$>$',
  '|': r'\textbar{}', '±': r'$\pm$', '⁶': '$^6$', '\n': ' ',
}  # fmt: skip


def text(content: Content) -> str:
  """The appendix: what the page says, without its figures, and with the fields alone in which the configs differ."""
  parts = [f'# {_plain(content.question)}', _plain(content.setting), *map(_plain, content.answer)]
  if content.runs.left_out:
    parts += ['Kept out of this report:', '\n'.join(f'* {_plain(line)}' for line in content.runs.left_out)]
  parts += [*_section(content.accuracies), _code('latex', latex(content.accuracies))]
  for table in content.details:
    parts += _section(table)
  parts += _section(_differing(content.configs), 'Fields in which the configs differ.')
  parts += _section(content.environment)
  commands = [rerun.command for rerun in content.reruns] + [report_command(content.reruns, content.runs.base)]
  parts += ['## Run it again', 'With the configs below, each saved under its name:', _code('bash', '\n'.join(commands))]
  for rerun in content.reruns:
    parts += [f'`{rerun.name}`, the config of {_plain(rerun.run)}:', _code('python', rerun.config)]
  return '\n\n'.join([*parts, f'Made by fedkd {fedkd.__version__}.']) + '\n'


def _section(table, note='') -> list[str]:
  frame = table.frame.map(_plain).rename(columns=_plain)
  return [f'## {table.title}', *filter(None, [note or _plain(table.note)]), analysis.markdown(frame)]


def _differing(table: Table) -> Table:
  return table._replace(frame=table.frame[list(table.differs)], differs=())


def _plain(text: str) -> str:
  """Text that Markdown shows as it is."""
  return re.sub(r'([\\`*_{}\[\]<>|#$])', r'\\\1', ' '.join(text.split()))


def _code(language: str, lines: str) -> str:
  """A block with a fence longer than any inside."""
  longest = max(map(len, re.findall('`+', lines)), default=0)
  fence = '`' * max(3, longest + 1)
  return f'{fence}{language}\n{lines.rstrip()}\n{fence}'


def latex(table: Table) -> str:
  """The table with the rules of booktabs, names left and numbers right."""
  frame: pd.DataFrame = table.frame
  line = lambda cells: ' & '.join(map(_tex, cells)) + r' \\'
  numbers = ['r' if frame[name].str.match(r'[+-]?\d').any() else 'l' for name in frame.columns[1:]]
  return '\n'.join([
    r'% \usepackage{booktabs}', rf'\begin{{tabular}}{{l{"".join(numbers)}}}', r'\toprule', line(frame.columns),
    r'\midrule', *map(line, frame.to_numpy().tolist()), r'\bottomrule', r'\end{tabular}',
  ])  # fmt: skip


def _tex(cell: str) -> str:
  text = ''.join(TEX.get(char, char) for char in cell)
  return re.sub(r'(?<![\w.-])-(?=\d)', '$-$', text)  # of a number, but not inside a name or a date
