"""Numbers of a cell's runs, by seed: accuracy on own rows and on all rows, negative transfer, bytes, examples, seconds.

Own rows are test rows distributed as a client's own ones; all rows are those of all clients together. Accuracies are in
per cent, means over clients; every function returns {seed: value}.
"""

import numpy as np

from launch.studies.comparison import cells

ROWS = ('own', 'all')


def _by_seed(found, value) -> dict:
  return {one['seed']: value(one) for one in found['runs']}


def per_client(found: dict, rows: str) -> dict:
  """Final accuracy of every client, float[K] per seed; `rows`: 'own' or 'all'."""
  return _by_seed(found, lambda one: 100 * np.array(one['curve'][-1][rows]))


def accuracy(found: dict, rows: str) -> dict:
  """Final accuracy."""
  return {seed: float(np.mean(each)) for seed, each in per_client(found, rows).items()}


def worst_client(found: dict) -> dict:
  """That of the client with the lowest accuracy on own rows."""
  return {seed: float(np.min(each)) for seed, each in per_client(found, 'own').items()}


def gain(found: dict, private: dict, rows: str = 'own') -> dict:
  """Final accuracy minus that of Private, over the seeds that both have."""
  return _minus(accuracy(found, rows), accuracy(private, rows))


def gain_alone(found: dict, private: dict, prediction: str) -> dict:
  """The gain on own rows of a further prediction, that by the clients' own models alone."""
  alone = _by_seed(found, lambda one: 100 * one['curve'][-1][f'{prediction}_own'])
  return _minus(alone, accuracy(private, 'own'))


def _minus(one, other) -> dict:
  return {seed: one[seed] - other[seed] for seed in one if seed in other}


def gain_at_examples(found: dict, private: dict, rows: str = 'own') -> dict:
  """The gain with no more examples than Private has, public ones counted: of runs of as many fewer rounds, where all
  that are needed are there, else of the last evaluation with no more."""
  most = {one['seed']: one['examples'] for one in private['runs']}
  fits = lambda one, point: point['examples'] <= most.get(one['seed'], 0) * (1 + 1e-6)
  fewer = {} if is_stopped(found, private) else {one['seed']: one for one in found['equal']}
  runs = [fewer.get(one['seed'], one) for one in found['runs']]
  return _minus(_at_last({'runs': runs}, rows, fits), accuracy(private, rows))


def is_stopped(found: dict, private: dict) -> bool:
  """Whether `gain_at_examples` is of runs that were stopped: such of fewer rounds are needed, and not all are made."""
  return bool({*cells.equal_shares(found, private)} - {one['seed'] for one in found['equal']})


def gain_at_bytes(found: dict, private: dict, most: float, rows: str = 'own') -> dict:
  """The gain where a method stops at its last evaluation with at most `most` bytes sent and received by all clients,
  raw public images among them; seeds without such an evaluation are missing."""

  def fits(one, point):
    return point['bytes_up'] + point['bytes_down'] + sum(one['public_bytes'].values()) <= most

  return _minus(_at_last(found, rows, fits), accuracy(private, rows))


def _at_last(found, rows, fits) -> dict:
  """Accuracy at the last evaluation that fits."""
  out = {}
  for one in found['runs']:
    if points := [point for point in one['curve'] if fits(one, point)]:
      out[one['seed']] = float(np.mean(100 * np.array(points[-1][rows])))  # as `accuracy`, to the last bit
  return out


def losses(found: dict, private: dict) -> np.ndarray:
  """By how many points of accuracy on own rows clients are below Private, of all clients and seeds: float[n], 0 for
  those that are not."""
  one, other = per_client(found, 'own'), per_client(private, 'own')
  common = [np.maximum(other[seed] - one[seed], 0) for seed in one if seed in other]
  return np.concatenate(common) if common else np.zeros(0)


def megabytes(found: dict, public: bool = False) -> dict:
  """{'up', 'down'}: means over seeds of what all clients have sent and received, with raw public images or without."""

  def mean(way):
    own = [one['curve'][-1][f'bytes_{way}'] + public * one['public_bytes'][way] for one in found['runs']]
    return float(np.mean(own)) / 1e6

  return {way: mean(way) for way in ('up', 'down')}


def examples(found: dict) -> float:
  """Thousands of examples that all clients were trained on, public ones counted; what a server trains on is not."""
  return float(np.mean([one['examples'] for one in found['runs']])) / 1e3


def seconds(found: dict) -> float:
  """Processor seconds of a run with its evaluations, without compilation."""
  return float(np.mean([one['seconds'] for one in found['runs']]))


def spent(found: dict) -> tuple[float, float]:
  """(processor seconds of all runs of a cell, and of their compilation)."""
  every = [one for kind in cells.KINDS for one in found[kind]]
  return sum(one['seconds'] for one in every), sum(one['compiling'] for one in every)


def is_at_chance(found: dict, classes: int) -> bool:
  """Whether the accuracy on all rows is within two points of a guess."""
  return bool(np.mean(list(accuracy(found, 'all').values())) < 100 / classes + 2)


def clients_at_chance(found: dict, classes: int) -> dict:
  """{seed: clients whose accuracy on all rows is at most half a point above a guess}, of seeds with such clients."""
  dead = {seed: np.flatnonzero(each <= 100 / classes + 0.5) for seed, each in per_client(found, 'all').items()}
  return {seed: clients.tolist() for seed, clients in dead.items() if len(clients)}


def where_all_learned(found: dict, private: dict, classes: int) -> dict:
  """The `gain` on own rows without seeds in which a client of Private ended at chance."""
  dead = clients_at_chance(private, classes)
  return {seed: one for seed, one in gain(found, private).items() if seed not in dead}


def at_edge(found: dict) -> bool:
  """Whether the lowest or highest learning rate was chosen, beyond which a better one may lie."""
  rates = [choice['learning_rate'] for choice in found['grid']]
  return found['runs'][0]['choice']['learning_rate'] in (min(rates), max(rates))
