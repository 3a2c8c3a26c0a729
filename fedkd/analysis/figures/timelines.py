"""Who trains when."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from fedkd.analysis.figures.panels import panel, whole_numbers
from fedkd.analysis.figures.plain import plain
from fedkd.checks.kinds import check_is
from fedkd.errors import ConfigError
from fedkd.plan import Plan
from fedkd.types import Group


def updates(plan: Plan, groups: Sequence[Group] | Sequence[int] | None = None) -> np.ndarray:
  """The client updates of a plan, int[updates, 3]: client, the round after which it downloaded (-1: before all of
  them), the round in which it uploads.

  Clients are numbered as in the groups, or of sizes one group after the other.
  """
  found, first = [], 0
  for g, table in enumerate(plan.participants):
    round, slot = np.nonzero(table >= 0)
    row = np.asarray(table)[round, slot]
    group = row.max(initial=-1) + 1 if groups is None else groups[g]
    ids = np.asarray(group.ids) if isinstance(group, Group) else np.arange(group) + first
    first += len(ids)
    found.append(np.stack([ids[row], round], 1))
  client, round = np.concatenate(found).T
  order = np.lexsort((round, client))
  client, round = client[order], round[order]
  before = np.where(np.diff(client, prepend=-1) == 0, np.roll(round, 1), -1)
  return np.stack([client, before, round], 1)


@plain
def timeline(plan: Plan, groups: Sequence[Group] | Sequence[int] | None = None, axes: Axes | None = None) -> Axes:
  """When every client trains: a bar per client update, from its download to its upload, which is a dot.

  The colour says how many rounds lie between: with a plan of `stale=True`, the staleness of the model that is trained;
  else the rounds that the client has missed, whose changes it downloads before it trains.

  Args:
    plan: of some rounds, such as `fedkd.plan.asynchronous(spread=1.0)([4, 4], 60)`.
    groups: `federation.groups`, whose clients the plan is of, for their numbers, or the sizes that it was drawn for,
      which are numbered one group after the other; None: of a plan of one group.
    axes: to draw in; None: new ones.

  Raises:
    ConfigError: if plan is not drawn, or has no client update, or groups are not those that it is of.
  """
  check_is('plan', plan, Plan, 'its tables, such as fedkd.plan.asynchronous()([4, 4], 60)')
  if not any(np.any(table >= 0) for table in plan.participants):
    raise ConfigError('plan has no client update; give one of some rounds')
  _check_groups(groups, plan)
  client, before, round = updates(plan, groups).T
  axes = panel(axes, xlabel='round', ylabel='client')
  ends = np.stack([np.stack([before + 0.5, client], 1), np.stack([round, client], 1)], 1)
  bars = LineCollection(list(ends), cmap='viridis_r', array=round - before - 1, linewidths=5, capstyle='butt')
  axes.add_collection(bars)
  axes.plot(round, client, linestyle='none', marker='.', markersize=4, color='black')
  said = 'staleness (rounds since the download)' if plan.stale else 'rounds missed since the last upload'
  axes.figure.colorbar(bars, ax=axes, label=said)
  axes.set(xlim=(-1, round.max() + 1), ylim=(-0.7, client.max() + 0.7))
  for axis in (axes.xaxis, axes.yaxis):
    whole_numbers(axis)
  axes.grid(False)
  return axes


def _check_groups(groups, plan):
  """Checks that groups have the clients of a plan; of one group they may be None."""
  remedy = 'federation.groups, whose clients the plan is of, or the sizes that it was drawn for, such as [4, 4]'
  if groups is None:
    if len(plan.participants) > 1:
      raise ConfigError(f'plan has {len(plan.participants)} groups, whose sizes it does not know; give groups={remedy}')
    return
  check_is('groups', groups, Sequence, remedy)
  for group in groups:
    check_is('groups', group, Group | int, remedy)
  has = [len(group.ids) if isinstance(group, Group) else group for group in groups]
  needs = [int(np.max(table, initial=-1)) + 1 for table in plan.participants]
  if len(has) != len(needs) or any(np.less(has, needs)):
    raise ConfigError(f'groups has {has} clients for a plan of {needs}; give {remedy}')
