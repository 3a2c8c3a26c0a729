"""The report of runs, in its formats."""

import importlib
import os
import pathlib
from collections.abc import Iterable

from fedkd import files
from fedkd.errors import ConfigError, is_it
from fedkd.report import chosen, content

FORMATS = {'html': 'html', 'md': 'markdown'}  # format: the module that writes it
SUFFIXES = {'.html': 'html', '.htm': 'html', '.md': 'md'}


def report(
  runs: str | os.PathLike | Iterable[str | os.PathLike],
  out: str | os.PathLike | None = None,
  format: str | None = None,
  reference: str | os.PathLike | None = None,
  question: str = '',
) -> str:
  """Finished runs side by side: accuracies with intervals, figures, clients, configs, bytes, and how to run it again.

  Runs that are not finished, damaged, or on other data, test rows or clients than the reference are kept out and named
  with the reason. Intervals are those of `fedkd.analysis`: 95 % Student t over seeds, with fewer than three seeds the
  range; differences are paired over seeds.

  Args:
    runs: run directories, folders of some, or patterns such as 'runs/*'.
    out: the file, whose folder is made. None: nothing is written.
    format: 'html', one page that needs no other file and no network (needs jinja2, `pip install 'fedkd[report]'`); or
      'md', Markdown with the table in LaTeX (booktabs), for an appendix. None: by the name of `out`, which ends in
      .html or .md; 'html' without one.
    reference: the run, or the method of one run, that the others are compared with. None: of the runs whose method is
      `private`, or else of all, the first with which the most can be compared.
    question: that the runs answer, in a sentence. '': which method is most accurate.

  Returns:
    The text of the report.

  Raises:
    ConfigError: if no run can be read or compared, the reference is unknown, jinja2 is missing, `out` cannot be
      written, or its name does not tell the format.
  """
  format = chosen_format(out, format)
  return written(chosen.runs(runs, reference), out, format, question)


def chosen_format(out: str | os.PathLike | None, format: str | None) -> str:
  """The format, by the name of `out` if None; checked with `out`, before anything is read."""
  if format is None:
    format = SUFFIXES.get(pathlib.Path(out).suffix.lower()) if out is not None else 'html'
    if format is None:
      raise ConfigError(f'out={out} is no name of a page; let it end in .html or .md, or give format')
  if format not in FORMATS:
    raise ConfigError(f'format={format!r} is none of {", ".join(FORMATS)}; give one of these{is_it(format, FORMATS)}')
  _check_out(out)
  return format


def written(runs: chosen.Runs, out: str | os.PathLike | None, format: str, question: str) -> str:
  """As `report`, of runs that are chosen."""
  write = importlib.import_module(f'fedkd.report.{FORMATS[format]}').text
  text = write(content.of(runs, question))
  if out is not None:
    _save(pathlib.Path(out), text)
  return text


def _check_out(out):
  """Refuses a file that cannot be written; makes its folder."""
  if out is not None:
    files.make(pathlib.Path(out).parent, 'out')
    if os.path.isdir(out) or not os.access(os.path.dirname(os.path.abspath(out)), os.W_OK):
      raise ConfigError(f'out={out} cannot be written; give the name of a file, as in report.html')


def _save(path, text):
  try:
    files.write(path, text.encode())
  except OSError as error:
    raise ConfigError(f'out={path} cannot be written ({error.strerror}); choose another file') from error
