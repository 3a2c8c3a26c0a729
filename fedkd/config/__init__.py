"""Experiment configs: the fields and their defaults, choices by name, config strings and checks.

A config is an `ml_collections.ConfigDict`: `default()` with what a file of `configs/` changes. `fedkd.experiment` makes
a run of it.
"""

from ml_collections import ConfigDict

from fedkd.config.checks import RUN_FIELDS, check, check_known, differences
from fedkd.config.choices import (
  KINDS,
  SHARES,
  build,
  codec_down,
  codec_up,
  label,
  method,
  optimizer,
  partition,
  plan,
  schedule,
)
from fedkd.config.defaults import default
from fedkd.config.described import described
from fedkd.config.groups import entries, spread
from fedkd.config.lookup import parameters_of, resolve
from fedkd.config.migrate import migrate
from fedkd.config.stored import check_stored
from fedkd.config.strings import finish, number, parse
from fedkd.config.trackers import TRACKERS, check_tracker
from fedkd.config.trees import flatten, freeze, to_json
from fedkd.errors import ConfigError

__all__ = [
  'KINDS',
  'RUN_FIELDS',
  'SHARES',
  'TRACKERS',
  'ConfigDict',
  'ConfigError',
  'build',
  'check',
  'check_known',
  'check_stored',
  'check_tracker',
  'codec_down',
  'codec_up',
  'default',
  'described',
  'differences',
  'entries',
  'finish',
  'flatten',
  'freeze',
  'label',
  'method',
  'migrate',
  'number',
  'optimizer',
  'parameters_of',
  'parse',
  'partition',
  'plan',
  'resolve',
  'schedule',
  'spread',
  'to_json',
]
