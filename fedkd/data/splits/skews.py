"""Label skews of published experiments, as `partition`: pure functions of (labels, clients, seed, ...).

`pathological`, `exdir` and `kt_pfl` partition training and official test rows together (`data.merge_test`), of which
every client then sets some aside (`data.test_share`); PFLlib's practical Dirichlet split is `partition.dirichlet` of
them with smallest=40. Parts are disjoint and ascending, and none is empty; where rows do not divide evenly some have
no owner. All draws are from the split's own generator: equal in distribution to the published codes, not bit for bit.
"""

import numpy as np

from fedkd.checks.ranges import Positive
from fedkd.data.splits.partition import (
  Concentration,
  SplitError,
  ascending,
  check_clients,
  classes_of,
  dirichlet_counts,
  empty,
  no_split,
  partitioner,
)

__all__ = ['exdir', 'feddf_dirichlet', 'kt_pfl', 'pathological']  # what a config may name

PATHOLOGICAL, EXDIR, FEDDF, KT_PFL = range(200, 204)
LEAST = 40  # rows of a client in PFLlib: a batch of 10 among three quarters of them
BLOCK = 10  # workers that FedDF draws together
MOST_REDRAWS = 10_000  # of ten workers: a draw is quick, and most leave one of them less than half its share
FIRST, EXTRA, SPREAD = (
  10,
  (300, 600),
  2.0,
)  # rows of each label at first, added at random, and of the log-normal (KT-pFL)


def _check_ways(ways, classes):
  if ways > classes:
    raise SplitError(f'data.ways={ways} must be between 1 and the {classes} classes of the data')


@partitioner
def pathological(
  labels: np.ndarray, clients: Positive, seed: int, ways: Positive = 2, balanced: bool = False
) -> list[np.ndarray]:
  """`ways` consecutive classes for every client (PFLlib, HtFLlib, FedTGP).

  Class after class goes, in the order of its rows, to the first ceil(K / C * ways) clients that still want a class, in
  runs of random length, or of equal length with `balanced`; the last takes the rest.

  Raises:
    ConfigError: also for more classes than there are, or classes too small to be cut.
  """
  check_clients(labels, clients)
  classes, rng = classes_of(labels), np.random.default_rng([seed, PATHOLOGICAL])
  _check_ways(ways, classes)
  quota, parts = np.full(clients, ways), empty(clients)
  least = min(LEAST, len(labels) / clients / 2)
  for c in range(classes):
    rows = np.flatnonzero(labels == c)
    chosen = np.flatnonzero(quota)[: int(np.ceil(clients / classes * ways))]
    if not len(chosen):
      break
    low, high = max(len(rows) / (10 * len(chosen)), least / classes), len(rows) / len(chosen)
    if int(low) >= int(high):
      raise SplitError(
        f'class {c} has {len(rows)} rows for {len(chosen)} clients, too few to be cut; lower data.clients or data.ways'
      )
    sizes = np.full(len(chosen) - 1, int(high)) if balanced else rng.integers(int(low), int(high), len(chosen) - 1)
    for k, piece in zip(chosen, np.split(rows, np.cumsum(sizes)), strict=True):
      parts[k].append(piece)
    quota[chosen] -= 1
  return ascending(parts)


@partitioner
def exdir(
  labels: np.ndarray,
  clients: Positive,
  seed: int,
  ways: Positive = 2,
  concentration: Concentration = 0.1,
  smallest: Positive = 10,
) -> list[np.ndarray]:
  """`ways` random classes for every client, each cut in Dirichlet proportions among its holders (PFLlib's exdir).

  Classes are drawn again until each has at least max(floor(ways * K / C / 2), 1) holders, proportions until every
  client has `smallest` rows.

  Raises:
    ConfigError: also for more classes than there are, too few clients to hold all, or a `smallest` that is not reached.
  """
  check_clients(labels, clients)
  classes, rng = classes_of(labels), np.random.default_rng([seed, EXDIR])
  _check_ways(ways, classes)
  if ways * clients < classes:
    raise SplitError(
      f'data.ways={ways} for data.clients={clients} cannot hold {classes} classes; raise data.ways or data.clients'
    )
  of_class = [np.flatnonzero(labels == c) for c in range(classes)]
  for _ in range(MOST_REDRAWS):
    held = np.zeros((clients, classes), bool)
    for k in range(clients):
      held[k, rng.choice(classes, ways, replace=False)] = True
    if held.sum(0).min() < max(ways * clients // classes // 2, 1):
      continue
    rows, counts = [], []
    for c in range(classes):
      rows.append(rng.permutation(of_class[c]))
      counts.append(dirichlet_counts(rng, len(rows[c]), held[:, c], concentration))
    if np.sum(counts, 0).min() >= smallest:
      pieces = [np.split(own, np.cumsum(count)[:-1]) for own, count in zip(rows, counts, strict=True)]
      return ascending(list(zip(*pieces, strict=True)))
  raise no_split(labels, clients, concentration, smallest)


@partitioner
def feddf_dirichlet(
  labels: np.ndarray, clients: Positive, seed: int, concentration: Concentration = 1.0
) -> list[np.ndarray]:
  """Clients of equal size, cut out of a Dirichlet split of blocks of ten workers (FedDF, Lin et al., 2020).

  All rows are shuffled and dealt to blocks of ten workers. In a block every class is cut in Dirichlet proportions among
  the workers below the mean, until the least has half of it. All workers' rows in a line are then cut into K runs of
  floor(N / K), so that a client mixes two neighbours.

  Raises:
    ConfigError: also for fewer than ten clients, or a concentration with which no draw is even enough.
  """
  check_clients(labels, clients)
  if clients < BLOCK:
    raise SplitError(
      f'data.clients={clients} is less than a block of {BLOCK}; raise it, or set data.partition=dirichlet'
    )
  rng, line = np.random.default_rng([seed, FEDDF]), []
  order, blocks = rng.permutation(len(labels)), -(-clients // BLOCK)
  size = BLOCK * len(labels) // clients
  for b in range(blocks):
    last = b == blocks - 1
    rows = order[b * size :] if last else order[b * size : (b + 1) * size]
    line += _block(rng, labels, rows, clients - BLOCK * b if last else BLOCK, concentration)
  runs = np.concatenate(line)[: len(labels) // clients * clients].reshape(clients, -1)
  return ascending([[run] for run in runs])


def _block(rng, labels, rows, workers, concentration) -> list:
  """The rows of each worker of a block."""
  mean = len(rows) / workers
  for _ in range(MOST_REDRAWS):
    parts, held = empty(workers), np.zeros(workers, np.int64)
    for c in np.unique(labels[rows]):
      own = rng.permutation(rows[labels[rows] == c])
      counts = dirichlet_counts(rng, len(own), held < mean, concentration)
      held += counts
      for out, piece in zip(parts, np.split(own, np.cumsum(counts)[:-1]), strict=True):
        out.append(piece)
    if held.min() >= int(mean / 2):
      return [np.concatenate(pieces) for pieces in parts]
  raise SplitError(
    f'data.concentration={concentration} gave no block of {len(rows)} rows in which each of {workers} clients has half '
    f'its share, in {MOST_REDRAWS} draws; raise data.concentration or set data.partition=dirichlet'
  )


@partitioner
def kt_pfl(labels: np.ndarray, clients: Positive, seed: int, ways: Positive = 3) -> list[np.ndarray]:
  """`ways` neighbouring labels for every client, of log-normal sizes (KT-pFL, Zhang et al., 2021).

  Client k has the labels (k + j) mod C: the first ten rows left of each, and then 2 (x + u) more where the label has
  them, x a log-normal share of it that clients 2i and 2i + 1 have in common, u uniform in 300..600.

  Raises:
    ConfigError: also for more labels than there are, or classes with less than ten rows for each of their clients.
  """
  check_clients(labels, clients)
  classes, rng = classes_of(labels), np.random.default_rng([seed, KT_PFL])
  _check_ways(ways, classes)
  rows, used = [np.flatnonzero(labels == c) for c in range(classes)], np.zeros(classes, int)
  own = (np.arange(clients)[:, None] + np.arange(ways)) % classes
  counts = np.array([len(of) for of in rows])
  if np.any(short := FIRST * np.bincount(own.reshape(-1), minlength=classes) > counts):
    c = int(np.flatnonzero(short)[0])
    raise SplitError(
      f'class {c} has {counts[c]} rows, less than {FIRST} for each of its clients; lower data.clients or data.ways'
    )
  share = rng.lognormal(0, SPREAD, (classes, clients, ways))
  share *= ((counts - clients).clip(0) / share.sum((1, 2)))[:, None, None]
  parts = empty(clients)

  def take(k, c, many):
    parts[k].append(rows[c][used[c] : used[c] + many])
    used[c] += many

  for owner, label in zip(np.repeat(np.arange(clients), ways), own.reshape(-1), strict=True):
    take(owner, label, FIRST)
  for k in range(clients):
    for j, c in enumerate(own[k]):
      many = 2 * (int(share[c, k // 2, j]) + int(rng.integers(EXTRA[0], EXTRA[1] + 1)))
      if used[c] + many < len(rows[c]):
        take(k, c, many)
  return ascending(parts)
