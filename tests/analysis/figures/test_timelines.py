"""Who trains when."""

import numpy as np
import pytest

import fedkd
from fedkd.analysis.figures import timeline
from fedkd.analysis.figures.timelines import updates
from fedkd.errors import ConfigError

# Round 0: client 1; 1: client 0 and 2; 2: client 1; 3: client 2. Client 2 is the first of the second group.
PLAN = fedkd.plan.Plan((np.array([[1], [0], [1], [-1]]), np.array([[-1], [0], [-1], [0]])), stale=True)


def test_a_client_update_lasts_from_its_download_to_its_upload():
  assert updates(PLAN, [2, 1]).tolist() == [[0, -1, 1], [1, -1, 0], [1, 0, 2], [2, -1, 1], [2, 1, 3]]


def test_a_client_that_never_takes_part_has_a_number():
  assert sorted(set(updates(PLAN, [3, 1])[:, 0].tolist())) == [0, 1, 3]
  assert timeline(PLAN, [3, 1]).get_lines()[0].get_xydata()[:, 1].max() == 3
  with pytest.raises(ConfigError, match=r'^plan has 2 groups, whose sizes it does not know; give groups=federation.gr'):
    timeline(PLAN)


def test_bars_are_coloured_by_staleness():
  axes = timeline(PLAN, [2, 1])
  (bars,) = axes.collections
  assert bars.get_array().tolist() == [1, 0, 1, 1, 1]
  assert axes.get_lines()[0].get_xydata().tolist() == [[1, 0], [0, 1], [2, 1], [1, 2], [3, 2]]
  assert axes.figure.axes[1].get_ylabel() == 'staleness (rounds since the download)'
  fresh = timeline(PLAN._replace(stale=False), [2, 1])
  assert fresh.figure.axes[1].get_ylabel() == 'rounds missed since the last upload'


def test_clients_have_their_numbers_in_the_federation():
  x, y = np.ones((8, 2), np.float32), np.arange(8) % 2
  small, large = fedkd.models.MLP((2,), classes=2), fedkd.models.MLP((3,), classes=2)
  groups = fedkd.federation(x, y, np.split(np.arange(6), 3), [small, large, small]).groups
  assert [np.asarray(group.ids).tolist() for group in groups] == [[0, 2], [1]]
  assert updates(PLAN, groups)[:, 0].tolist() == [0, 1, 1, 2, 2]
  assert updates(PLAN, groups).tolist()[0] == [0, -1, 1]
  assert updates(PLAN, groups).tolist()[3] == [2, -1, 0]  # row 1 of the first group


def test_other_groups_than_those_of_the_plan_are_refused():
  x, y = np.ones((8, 2), np.float32), np.arange(8) % 2
  federation = fedkd.federation(x, y, np.split(np.arange(6), 3), fedkd.models.MLP((2,), classes=2))
  for groups, said in (
    ([0, 0, 0], r'groups has \[0, 0, 0\] clients for a plan of \[2, 1\]'),
    (['two', 1], "groups is 'two', a str"),
    (federation, 'groups is an? .*'),
    (5, 'groups is 5, an int'),
    (federation.groups, r'groups has \[3\] clients for a plan of \[2, 1\]'),
  ):
    with pytest.raises(
      ConfigError, match=f'^{said}; give federation.groups, whose clients the plan is of, or the sizes'
    ):
      timeline(PLAN, groups)


def test_what_is_no_drawn_plan_is_refused():
  with pytest.raises(ConfigError, match=r'plan is .*; give its tables'):
    timeline(fedkd.plan.asynchronous())
  with pytest.raises(ConfigError, match='plan has no client update'):
    timeline(fedkd.plan.Plan((np.full((3, 1), -1),)))
