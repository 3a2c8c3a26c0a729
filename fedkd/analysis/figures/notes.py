"""What is to be said of a figure, below its horizontal axis, and text in lines that fit."""

import textwrap
from collections.abc import Iterable

import pandas as pd

ANEW = ('round', 'updates')  # counted so in each phase
UNVALUED = 'no value at the end'  # of a seed at the last evaluation
LETTERS = 28, 40, 54  # of a line: of a name beside the axes, of their vertical label, of what is below them


def note(frame: pd.DataFrame) -> str:
  """What the bands and bars of a figure are, for a label; '' where every run has one seed."""
  return note_of(frame.groupby('run')['seed'].nunique())


def note_of(counts: Iterable[int]) -> str:
  """As `note`, of the numbers of seeds."""
  seeds = sorted({int(count) for count in counts} - {1})
  names = ['range' if count < 3 else '95 % interval' for count in seeds]
  return ', '.join(f'{name} over {count} seeds' for name, count in zip(names, seeds, strict=True))


def anew(frame: pd.DataFrame, x: str) -> str:
  """What is to be said of quantities that are counted anew in each phase; '' where every run has a single one."""
  return 'rounds and updates: of the last phase' if x in ANEW and frame['phase'].max() > 0 else ''


def about(what: str, runs: Iterable[str]) -> str:
  """What is to be said of some runs, such as why they are not drawn; '' for none."""
  names = ', '.join(runs)
  return names and f'{what}: {names}'


def below(text: str, *notes: str) -> str:
  """A label, and what is to be said of the figure below it, in one line if that is short."""
  said = [one for one in notes if one]
  lines = ['; '.join(said)] if sum(map(len, said)) < 50 else said
  return wrapped('\n'.join(line for line in (text, *lines) if line), LETTERS[2])


def wrapped(text: str, letters: int) -> str:
  """A text in lines of at most so many letters: a longer one would leave no room for the axes, or be cut off."""
  return '\n'.join(textwrap.fill(line, letters) for line in text.split('\n'))
