"""A table of a paper: its runs, the printed numbers (percent), and the paper's claims."""

from typing import NamedTuple

PROFILES = ('paper', 'medium', 'light', 'small', 'smoke')  # from the longest to the shortest; few ids have all of them


class Row(NamedTuple):
  """One run of an experiment, and what the paper prints for it."""

  name: str
  config: str  # a file of configs/
  arg: str  # of its config string, without the profile
  printed: dict  # {metric: percent, or a tuple of them per client}
  overrides: tuple = ()  # ((field, value), ...) of the config
  parts: dict | tuple = ()  # {metric: as printed for every client}
  kinds: tuple = ()  # the first metric as printed for every kind of clients
  deviation: dict | tuple = ()  # {metric: the printed standard deviation}


class Experiment(NamedTuple):
  """An id of the registry. `metrics` are the printed names and the fields of a result that answer them."""

  title: str
  source: str
  rows: tuple
  metrics: dict
  cost: str  # of the small profile
  full: tuple = ('paper',)  # profiles of full nets, the cheapest last
  features: tuple = ()  # rows whose first client's features of all test rows are kept, as principal components
  parts: tuple = ()  # the paper's names of the clients; empty: those of their nets
  kinds: tuple = ()  # ((name, their numbers), ...), kinds of clients whose means are printed
  small: tuple = ()  # numbers of the paper's clients that the small profile has; empty: all
  needs: str = ''  # images that we do not have
  together: str = ''  # the title of one table of several ids
  only: str = ''  # the one profile beside whose rows the changes are what they are called; empty: all
  remarks: str = ''  # how our runs differ from the published ones, below the table


class Claim(NamedTuple):
  """A sentence of a paper as an inequality: the first row's metric is above the second's, or above that less a margin.

  `more` and `less` are `id/row`, or the difference of two, `id/row - id/row`; or `id/row:metric` with a metric of its
  own.
  """

  text: str
  more: str
  less: str
  metric: str = 'final'
  why: str = ''  # what experiments and settings say about it; braces as in `values.filled`
  margin: float = 0  # points by which the first may be lower; below 0, by how many it has to be higher
  printed: float | str | None = 'by rows'  # the difference; or that of what is printed for the rows, or None for none
  paper: str = ''
  equal: tuple = ()  # (more, less) with equal numbers of examples, where the published budgets differ
  readings: tuple = ()  # (what, more, less), ... by other readings of what the paper leaves open


class Question(NamedTuple):
  """A disagreement with a paper, and the one change beside a row that is to explain it."""

  text: str
  change: str
  row: str  # `id/row` with the change
  beside: str  # without
  metric: str
  profile: str = 'small'
