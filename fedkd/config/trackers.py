"""`tracker`: who is told of a run while it trains."""

from typing import Any

from fedkd.checks.kinds import short
from fedkd.config.trees import to_json
from fedkd.errors import ConfigError, is_it

TRACKERS = ('tensorboard', 'wandb', 'mlflow', 'trackio')


def check_tracker(tracker: Any) -> None:
  """Checks that this is the name of a tracker, module:function, or a function.

  Raises:
    ConfigError: if not.
  """
  named = isinstance(tracker, str) and (tracker in TRACKERS or ':' in tracker)
  if not (named or callable(tracker)):
    raise ConfigError(
      f'tracker={short(to_json(tracker))} is unknown; choose one of {", ".join(TRACKERS)}, or '
      f'module:function{is_it(tracker, TRACKERS)}'
    )
