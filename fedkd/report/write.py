"""The report of runs, in its formats."""

import importlib
import os
import pathlib
from collections.abc import Iterable

from fedkd import files
from fedkd.errors import ConfigError
from fedkd.report import chosen, content

FORMATS = {'html': 'html', 'md': 'markdown'}  # format: the module that writes it


def report(
  runs: str | os.PathLike | Iterable[str | os.PathLike],
  out: str | os.PathLike | None = None,
  format: str = 'html',
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
      'md', Markdown with the table in LaTeX (booktabs), for an appendix.
    reference: the run, or the method of one run, that the others are compared with. None: of the runs whose method is
      `private`, or else of all, the first with which the most can be compared.
    question: that the runs answer, in a sentence. '': which method is most accurate.

  Returns:
    The text of the report.

  Raises:
    ConfigError: if no run can be read or compared, the reference is unknown, jinja2 is missing, or `out` cannot be
      written.
  """
  if format not in FORMATS:
    raise ConfigError(f'format={format!r} is none of {", ".join(FORMATS)}; give one of these')
  check_out(out)
  return written(chosen.runs(runs, reference), out, format, question)


def written(runs: chosen.Runs, out: str | os.PathLike | None, format: str, question: str) -> str:
  """As `report`, of runs that are chosen."""
  write = importlib.import_module(f'fedkd.report.{FORMATS[format]}').text
  text = write(content.of(runs, question))
  if out is not None:
    _save(pathlib.Path(out), text)
  return text


def check_out(out: str | os.PathLike | None) -> None:
  """Checks that a file can be written there, before anything is read; makes its folder.

  Raises:
    ConfigError: if it cannot.
  """
  if out is not None:
    files.make(pathlib.Path(out).parent, 'out')
    if os.path.isdir(out) or not os.access(os.path.dirname(os.path.abspath(out)), os.W_OK):
      raise ConfigError(f'out={out} cannot be written; give the name of a file, as in report.html')


def _save(path, text):
  try:
    files.write(path, text.encode())
  except OSError as error:
    raise ConfigError(f'out={path} cannot be written ({error.strerror}); choose another file') from error
