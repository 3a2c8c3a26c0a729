"""Plans: which clients take part in which round. A plan is a factory that closes over its hyperparameters and returns
`(sizes, rounds) -> Plan`: tables drawn on the host, from the plan's own seed, for `sizes` clients per group.

The tables are the same for every seed of a run, and a longer plan of the same seed begins with the shorter one, so
that a run may be extended. To the round, synchronous, sampled and asynchronous plans are alike: a table of slots. An
asynchronous plan has one row per client update.
"""

import functools
import heapq
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np

from fedkd.checks import blame, numeric
from fedkd.checks.kinds import check_is, what_is
from fedkd.checks.ranges import Range, Ratio, Seed, Weight, checked
from fedkd.errors import ConfigError
from fedkd.types import Group

__all__ = ['asynchronous', 'dynamic', 'sampled', 'synchronous']


class Plan(NamedTuple):
  """participants: per group int32[rounds, m], rows of the group, -1 an empty slot. stale: clients train on what they
  downloaded after their previous update, not on the server's present state."""

  participants: tuple[np.ndarray, ...]
  stale: bool = False


Planner = Callable[[Sequence[int], int], Plan]  # (clients per group, rounds) -> Plan


def _assign_slots(chosen, sizes) -> tuple:
  """The table of slots for `chosen`, per round an array of client numbers in the order of the groups."""
  owner = np.repeat(np.arange(len(sizes)), sizes)
  row = np.concatenate([np.arange(n) for n in sizes])
  picks = [[row[np.sort(c)][owner[np.sort(c)] == g] for c in chosen] for g in range(len(sizes))]
  tables = []
  for rows in picks:
    table = np.full((len(rows), max((len(r) for r in rows), default=0)), -1, np.int32)
    for t, slots in enumerate(rows):
      table[t, : len(slots)] = slots
    tables.append(table)
  return tuple(tables)


@checked
def synchronous(seed: Seed = 0) -> Planner:
  """Every client, every round."""
  del seed
  return lambda sizes, rounds: Plan(tuple(np.tile(np.arange(n, dtype=np.int32), (rounds, 1)) for n in sizes))


@checked
def sampled(ratio: Ratio = 0.1, seed: Seed = 0) -> Planner:
  """floor(ratio * K) clients a round, uniformly without replacement over all groups.

  With ratio * K = 1, one uniformly chosen client per round: the schedule of Chan and Ngai's (2021) published code.

  Raises:
    ValueError: from the planner, if that selects no client, or more than there are.
  """
  return functools.partial(_sampled, ratio, seed)


def _sampled(ratio, seed, sizes, rounds) -> Plan:
  total = sum(sizes)
  count = numeric.floor_of_share(ratio, total)
  if not 1 <= count <= total:
    raise ValueError(
      f'ratio={ratio} selects {count} of {total} clients; set ratio (plan.ratio in a config) between '
      f'{1 / total:.4g} and 1'
    )
  # A generator per round: round t does not depend on how many rounds were drawn.
  draw = lambda t: np.random.default_rng([seed, t]).choice(total, count, replace=False)
  return Plan(_assign_slots([draw(t) for t in range(rounds)], sizes))


@checked
def dynamic(ratio: Ratio = 1.0, seed: Seed = 0) -> Planner:
  """`sampled` clients, each of whom takes part in one group at random: the groups hold the same clients.

  The dynamic assignment of widths of Diao, Ding, Tarokh, 2021 ("a1-b1-c1-d1-e1"). For runs from configs, whose groups
  may all begin at client 0 (`first=0`); a `fedkd.federation` has one model per client, and `fedkd.simulation` refuses
  this plan.

  Raises:
    ValueError: from the planner, if the groups differ in size, or as `sampled`.
  """
  return functools.partial(_dynamic, ratio, seed)


def _dynamic(ratio, seed, sizes, rounds) -> Plan:
  if len(set(sizes)) != 1:
    raise ValueError(
      f'plan dynamic needs groups of the same clients, not of {", ".join(map(str, sizes))}; in a config set first=0 in '
      'every group'
    )
  clients = _sampled(ratio, seed, sizes[:1], rounds).participants[0]
  # As in `sampled`, a generator per round; not the stream that samples the clients.
  group = np.stack(
    [np.random.default_rng([seed, t, 1]).integers(len(sizes), size=len(c)) for t, c in enumerate(clients)]
  )
  chosen = [np.sort(c + g * sizes[0]) for c, g in zip(clients, group, strict=True)]
  return Plan(_assign_slots(chosen, sizes))


@checked
def asynchronous(
  spread: Annotated[float, Range(least=0, most=100)] = 0.5,
  delay: Weight = 0.0,
  dropout: Annotated[float, Range(least=0, most=0.999)] = 0.0,
  stale: bool = False,
  seed: Seed = 0,
) -> Planner:
  """A virtual clock: every client works at its own speed, and the server receives one upload per round.

  A client downloads, works for 1 / speed, waits a random transmission delay, uploads, and starts again.
  Nothing sleeps: the plan is the order in which uploads arrive. Those that are lost are not in it: they are not
  counted, train nobody, and their clients start again without a new download.

  A round is one upload that arrives, one client update.

  Args:
    spread: standard deviation of log speed over clients; 0 means equal speeds.
    delay: mean of the exponential delay, in units of the median working time.
    dropout: probability that a finished client update is lost on the way.
    stale: whether clients work on their last download, taken after their last upload that arrived, or on the latest
      state. Methods whose server asks for predictions of other public rows in every round refuse it.
    seed: of this plan.

  Raises:
    ValueError: for a number out of range.
  """
  return functools.partial(_asynchronous, spread, delay, dropout, stale, seed)


def _asynchronous(spread, delay, dropout, stale, seed, sizes, rounds) -> Plan:
  total = sum(sizes)
  streams = [np.random.default_rng([seed, client]) for client in range(total)]
  work = [np.exp(-spread * stream.standard_normal()) for stream in streams]
  # Clients start at random points of an update; equal finish times are served in the order of client numbers.
  clock = [(stream.uniform() * w, client) for client, (stream, w) in enumerate(zip(streams, work, strict=True))]
  heapq.heapify(clock)
  uploaders: list[np.ndarray] = []
  while len(uploaders) < rounds:
    now, client = heapq.heappop(clock)
    stream = streams[client]
    if stream.uniform() >= dropout:
      uploaders.append(np.array([client]))
    heapq.heappush(clock, (now + work[client] + delay * stream.exponential(), client))
  return Plan(_assign_slots(uploaders, sizes), stale)


def client_updates(plan: Plan) -> np.ndarray:
  """Client updates per round, int[rounds]."""
  return np.sum([(table >= 0).sum(1) for table in plan.participants], axis=0)


def tables(drawn: Planner | Plan | None, groups: Sequence[Group], horizon: int) -> Plan:
  """A plan as tables for these groups, of which each has clients of its own.

  Raises:
    ValueError: for what is no plan, or one for other clients, or with a client twice in a round.
  """
  sizes = [len(group.ids) for group in groups]
  return fitting(_drawn(drawn, sizes, horizon), sizes, [group.name for group in groups])


def fitting(plan: Plan, sizes: Sequence[int], names: Sequence[str]) -> Plan:
  """A plan with tables of its own for groups of these sizes and names.

  Raises:
    ValueError: for a plan of other clients, of no client, or with a client twice in a round.
  """
  given = plan.participants
  check_is('plan.participants', given, tuple | list, 'a tuple with int32[rounds, slots] per group')
  if len(given) != len(sizes):
    has = f'the federation has {len(sizes)} ({", ".join(names)})'
    raise ValueError(f'plan has tables for {len(given)} groups, {has}; give one per group')
  for name, size, table in zip(names, sizes, given, strict=True):
    _check_table(name, size, table)
  if len(rounds := {len(table) for table in given}) > 1:
    raise ValueError(f'plan has tables of {" and ".join(map(str, sorted(rounds)))} rounds; give all groups the same')
  if all(np.max(table, initial=-1) < 0 for table in given):
    raise ValueError(
      f'plan names no client in any of its {max(rounds)} rounds, so that nobody would train; give a row of a group in '
      'one of them'
    )
  return Plan(tuple(np.array(table, np.int32) for table in given), bool(plan.stale))  # the given ones may change


def _drawn(given, sizes, horizon) -> Plan:
  remedy = 'give a plan such as fedkd.plan.sampled(ratio=0.1), or a fedkd.plan.Plan of tables, or None'
  if given is None:
    return synchronous()(sizes, 1)
  if isinstance(given, Plan):
    return given
  if not callable(given) or given in (asynchronous, dynamic, sampled, synchronous, Plan):
    raise ValueError(f'plan is {what_is(given)}; {remedy}')
  if blame.unwrapped(given) is _dynamic:
    raise ValueError(
      'plan dynamic needs groups of the same clients, and a federation has one model per client; give '
      'fedkd.plan.sampled, or run it from a config'
    )
  made = blame.call('plan', given, sizes, horizon) if blame.is_foreign(given) else given(sizes, horizon)
  return of_planner(given, made)


def of_planner(planner: Planner, made: Any) -> Plan:
  """What a planner has `made`.

  Raises:
    ConfigError: for anything but a `Plan`.
  """
  if not isinstance(made, Plan):
    raise ConfigError(f'plan {blame.named(planner)} returned {what_is(made)}; let it return a fedkd.plan.Plan')
  return made


def _check_table(name, size, table) -> None:
  """Checks the table of a group: as a whole, since there may be 100 000 rounds."""
  remedy = f'give int32[rounds, slots] with rows of its {size} clients, 0 to {size - 1}, or -1 for an empty slot'
  if not isinstance(table, np.ndarray | jax.Array) or not np.issubdtype(table.dtype, np.integer):
    raise ValueError(f'plan: the table of group {name} is {what_is(table)}; {remedy}')
  table = np.asarray(table)
  least, most = int(table.min(initial=0)), int(table.max(initial=-1))
  if table.ndim != 2 or not len(table) or most >= size or least < -1:
    rows = f'with rows from {least} to {most}' if least < -1 else f'with rows to {most}'
    raise ValueError(f'plan: the table of group {name} is {list(table.shape)} {rows}; {remedy}')
  repeated = _repeated(table)
  if repeated.any():
    round = int(repeated.argmax())
    names, times = np.unique(table[round][table[round] >= 0], return_counts=True)
    raise ValueError(
      f'plan: round {round} of group {name} has row {names[times.argmax()]} twice; give every client one '
      'slot, and -1 for an empty one'
    )


def _repeated(table) -> np.ndarray:
  """bool[rounds], whether a row of a table appears twice in a round."""
  before, after = table[:, :-1], table[:, 1:]
  unsorted = np.flatnonzero(~((after < 0) | ((before >= 0) & (after > before))).all(1))  # few of them, or none
  ordered = np.sort(table[unsorted], 1)
  out = np.zeros(len(table), bool)
  out[unsorted] = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(1)
  return out
