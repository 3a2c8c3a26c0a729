"""What a tracker is: what it is told at the start of a run, and what it is told then."""

import importlib
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from fedkd.errors import in_a_sentence


class Run(NamedTuple):
  """What a tracker is told when a run starts, or goes on.

  Attributes:
    name: for people.
    id: the same whenever the run goes on, and no other run's.
    config: JSON.
    folder: of the run, where a tracker may write below a name of its own.
    step: from which the run goes on, in rounds since its start; evaluations after it are made again.
    clients: the numbers of the clients in the lists of an evaluation.
  """

  name: str
  id: str
  config: dict
  folder: pathlib.Path
  step: int
  clients: Sequence[int]


class Finish(Protocol):
  """(summary, figures) -> None: the summary as in `summary.json` and image files, or None and () of a run that has
  been stopped and may go on."""

  def __call__(self, summary: dict | None, figures: Sequence[pathlib.Path], /) -> None: ...


class Tracker(NamedTuple):
  """What a tracker is told about a run.

  Attributes:
    log: (row, step) -> None, an evaluation as in `metrics.jsonl`, after so many rounds since the start of the run; of
      two at one step, the end of a phase and the start of the next, the first alone, unless `last` is None.
    finish: `Finish`.
    last: the last step that it has of this run already, -1 for none: of a run that was killed, evaluations after it
      are logged again, those up to it are not. None: it is told everything that is evaluated from now on, and by
      `fedkd.train` what a history has that no tracker was told of.
  """

  log: Callable[[dict, int], None]
  finish: Finish
  last: int | None = -1


class Start(Protocol):
  """(run) -> Tracker."""

  def __call__(self, run: Run, /) -> Tracker: ...


def package(name: str) -> Any:
  """A package that a tracker needs, imported.

  Raises:
    ConfigError: if it is not installed.
  """
  lacking = lambda error: (
    f'tracker={name!r} needs the package {name}, which cannot be imported ({error}); pip install '
    f"'fedkd[{name}]', or set tracker='tensorboard'"
  )
  with in_a_sentence(lacking):
    return importlib.import_module(name)
