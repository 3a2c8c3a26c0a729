"""Early stopping from a config, checked against data and plan."""

from fedkd import config as configs
from fedkd.errors import ConfigError
from fedkd.experiment import early_stopping


def make_early_stop(block, last, config, source, splits) -> early_stopping.EarlyStop | None:
  """The `early_stop` of a phase, None without one. `last`: whether the phase follows `config.plan`.

  Raises:
    ConfigError: for an unknown field or an impossible value.
  """
  fields = block.get('early_stop')
  if not fields or fields.get('watch') == '':
    return None
  configs.check_known(fields, early_stopping.EarlyStop._fields, 'early_stop')
  if fields.get('watch') not in early_stopping.WATCH:
    raise ConfigError(
      f'early_stop.watch={fields.get("watch")!r} is unknown; choose one of {", ".join(early_stopping.WATCH)}'
    )
  early = early_stopping.EarlyStop(**fields)
  configs.check_whole('early_stop.patience', early.patience, 1)
  if not isinstance(early.min_delta, int | float) or not 0 <= early.min_delta < 1:
    raise ConfigError(
      f'early_stop.min_delta={early.min_delta!r} must be at least 0 and below 1; accuracies are fractions'
    )
  held = min(sum(map(len, split.validation)) for split in splits)
  if early.watch == 'validation_accuracy' and not held:
    raise ConfigError("early_stop.watch='validation_accuracy' needs held-out rows; raise data.validation")
  if early.watch == 'accuracy_public' and not (source.public_test and len(source.public_test[1])):
    raise ConfigError(
      "early_stop.watch='accuracy_public' needs public data with a test set; choose another data.public"
    )
  for field, usual in (('client_store', ''), ('eval_clients', 0)):
    if config[field] != usual:
      raise ConfigError(
        f'{field}={config[field]!r} does not go with early_stop, which needs all clients; set it to {usual!r}'
      )
  if last and config.plan.name != 'synchronous':
    raise ConfigError(
      f'plan.name={config.plan.name!r} does not go with early_stop: a seldom sampled client would stop before it '
      "has learned; set it to 'synchronous'"
    )
  return early
