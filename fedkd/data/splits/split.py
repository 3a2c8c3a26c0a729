"""The uses of each client's rows: private, shared, validation, test.

Both rules are `f(source, parts, seed, validation, public_share, test_share, aligned) -> Split`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedkd.checks.numeric import floor_of_share
from fedkd.checks.ranges import Share, checked
from fedkd.data.sources import Source
from fedkd.data.splits import partition
from fedkd.errors import ConfigError

__all__ = ['pacs_paper', 'shares']  # what a config may name


class Split(NamedTuple):
  """Ascending row numbers int64[...] of the training arrays, in lists with one entry per client."""

  private: list  # examples that the client does not share
  shared: list  # examples that it shares with everybody (FedH2L's D_i^pub)
  validation: list
  test: list  # its own test rows
  public: np.ndarray  # the rows everybody may see: the source's public rows, else all shared rows, client after client


@checked
def shares(
  source: Source,
  parts: Sequence[np.ndarray],
  seed: int,
  validation: Share = 0.1,
  public_share: Share = 0.0,
  test_share: Share = 0.0,
  aligned: bool = False,
) -> Split:
  """Cuts every client's rows of each class at random: floor(share * n_c) for test, public and validation, each.

  Without public and test shares this is `partition.hold_out`, which ignores classes, unless `aligned`.

  Args:
    source: a `sources.Source`.
    parts: per client int[n_k], from a partitioner.
    seed: of the draw.
    validation: share of each client's rows held out, in [0, 1).
    public_share: share given to all clients.
    test_share: share of the client's own test set.
    aligned: all clients draw the same numbers, so that clients with equally ordered copies of the same examples
      (rotated digits) split them alike and no copy of a test example is trained on anywhere.

  Raises:
    ConfigError: for shares outside [0, 1) or of 1 in all, a public share of a source that has public rows, a source
      without any test rows, a client with an empty part, or `aligned` clients whose labels differ.
  """
  asked = {'test_share': test_share, 'public_share': public_share, 'validation': validation}
  _check_shares(source, asked)
  if not test_share and not len(source.test_label) and not source.tested:
    raise ConfigError(
      f'data.test_share=0 leaves data.name={source.name} without test rows, since it has no test set, or '
      'data.merge_test=True deals it out; set it above 0, for example 0.15'
    )
  if public_share == test_share == 0 and not aligned:
    return _held_out(source, parts, seed, validation)
  if aligned and any(not np.array_equal(source.train_label[part], source.train_label[parts[0]]) for part in parts):
    raise ConfigError(
      'data.aligned=True is for clients with equally ordered copies of the same examples, and the labels of these '
      'differ; set data.partition=by_origin and data.rows=0 (a choice of rows is another one in each domain), or '
      'data.aligned=False'
    )
  drawn = []
  for k, part in enumerate(parts):
    rng = np.random.default_rng([seed, partition.SHARES, *([] if aligned else [k])])
    counts = lambda n: [floor_of_share(share, n) for share in asked.values()]
    drawn.append(_draw(rng, part, source.train_label[part], counts))
  split = _gather(source, *zip(*drawn, strict=True))
  _check_parts(source, parts, split, asked)
  return split


@checked
def pacs_paper(
  source: Source,
  parts: Sequence[np.ndarray],
  seed: int,
  validation: float = 0.1,
  public_share: Share = 0.1,
  test_share: float = 0.0,
  aligned: bool = False,
) -> Split:
  """The split behind Table 3 of FedH2L (Li et al., 2021), whose test rows CONTAIN THE TRAINING ROWS.

  Only for comparison with that table; `shares` is the split without leaks. For each client (domain) and class of n
  rows: validation floor(n / 10) + 1, which gives the sizes of PACS's official crossval lists, private all others
  (its train lists), shared floor(public_share * n) of ALL n, and test all rows that are not shared. Which rows the
  official lists name is not reproduced.

  Args:
    source, parts, seed: as in `shares`.
    validation, test_share, aligned: not used; the rule fixes the sizes.
    public_share: share of each class given to all clients, in [0, 1).

  Raises:
    ConfigError: for a public share outside [0, 1), one of a source that has public rows, or a part left empty.
  """
  del validation, test_share, aligned
  asked = {'public_share': public_share}
  _check_shares(source, asked)
  drawn = []
  for k, part in enumerate(parts):
    rng = np.random.default_rng([seed, partition.SHARES, k])
    label = source.train_label[part]
    validation, private = _draw(rng, part, label, lambda n: [n // 10 + 1])
    shared, test = _draw(rng, part, label, lambda n: [floor_of_share(public_share, n)])
    drawn.append((test, shared, validation, private))
  split = _gather(source, *zip(*drawn, strict=True))
  _check_parts(source, parts, split, asked)
  return split


def _held_out(source, parts, seed, validation) -> Split:
  private, held = partition.hold_out(parts, validation, seed)
  nothing = [part[:0] for part in parts]
  return _gather(source, nothing, nothing, held, private)


def _draw(rng, part, label, sizes) -> list:
  """One array of ascending rows for each of `sizes(rows of a class)`, and the remainder."""
  pieces = []
  for c in np.unique(label):
    rows = rng.permutation(part[label == c])
    pieces.append(np.split(rows, np.cumsum(sizes(len(rows)))))
  empty = [part[:0]] * (len(sizes(0)) + 1)
  return [np.sort(np.concatenate(piece)) for piece in zip(empty, *pieces, strict=True)]


def _gather(source, test, shared, validation, private) -> Split:
  count = len(source.train_label)
  public = np.arange(count - source.public, count) if source.public else np.concatenate([*shared])
  return Split(list(private), list(shared), list(validation), list(test), public)


def _check_shares(source, asked):
  if sum(asked.values()) > 1 - 1e-9:
    terms = ' + '.join(f'data.{field}={share}' for field, share in asked.items())
    raise ConfigError(f'{terms} leaves nothing to train on; lower them to less than 1 in all')
  if asked['public_share'] and source.public:
    raise ConfigError(
      f'data.public_share={asked["public_share"]} cannot be combined with the {source.public} public rows of a set of '
      'its own; set data.public_share=0 or leave out the public set'
    )


def _check_parts(source, parts, split, asked):
  found = {'test_share': split.test, 'public_share': split.shared, 'validation': split.validation}
  for k, private in enumerate(split.private):
    who = _who(source, parts, k)
    if not len(private):
      raise ConfigError(f'{who} of the split has no example to train on; lower data.clients or change data.partition')
    if starved := [field for field in asked if asked[field] and not len(found[field][k])]:
      field = starved[0]
      raise ConfigError(
        f'data.{field}={asked[field]} gives {who} no row of its {len(parts[k])}, since no class has enough of them; '
        f'raise data.{field} or lower data.clients'
      )


def _who(source, parts, k) -> str:
  domains = origins_of(source, parts)
  return f'domain {domains[k]}' if domains else f'client {k}'


def origins_of(source: Source, parts: Sequence[np.ndarray]) -> tuple[str, ...]:
  """The domain, writer, ... of every client, where each has all its training rows of one of its own; else ()."""
  if len(source.origins) != len(parts):
    return ()
  origin = np.asarray(source.origin)
  return source.origins if all(np.all(origin[part] == k) for k, part in enumerate(parts)) else ()
