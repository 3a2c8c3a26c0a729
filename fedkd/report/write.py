"""The report of runs, in its formats."""

import importlib
import os
import pathlib
from collections.abc import Iterable

from fedkd import files
from fedkd.errors import ConfigError, check_known
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
    reference: the run, or the method of one run, that the others are compared with. None: the first run whose method is
      `private`, or else the first one.
    question: that the runs answer, in a sentence. '': which method is most accurate.

  Returns:
    The text of the report.

  Raises:
    ConfigError: if no run can be read or compared, the reference is unknown, jinja2 is missing, or `out` cannot be
      written.
  """
  check_known([format], FORMATS, 'format')
  write = importlib.import_module(f'fedkd.report.{FORMATS[format]}').text
  text = write(content.of(chosen.runs(runs, reference), question))
  if out is not None:
    _save(pathlib.Path(out), text)
  return text


def _save(path, text):
  files.make(path.parent, 'out')
  try:
    files.write(path, text.encode())
  except OSError as error:
    raise ConfigError(f'out={path} cannot be written ({error.strerror}); choose another file') from error
