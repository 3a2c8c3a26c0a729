"""Groups of clients from the entries of `config.groups`: networks, their preprocessing, and names."""

import numpy as np

from fedkd import config as configs
from fedkd.checks import ranges
from fedkd.config.groups import CLIENT_FIELDS, group_names
from fedkd.data.arrays import is_images
from fedkd.errors import ConfigError
from fedkd.experiment.build import vocabulary
from fedkd.experiment.build.normalisation import normalisation
from fedkd.models.base import Preprocessed, adapted, class_of, is_nnx
from fedkd.types import Group

OPTIMIZER_FIELDS = ('learning_rate', 'optimizer')  # of an entry: its own optimizer settings


def make_groups(config, source) -> tuple:
  """The groups of a config, clients numbered in their order unless a group gives its `first`: several groups may
  hold the same clients (HeteroFL's widths that change, Diao, Ding and Tarokh, 2021).

  Raises:
    ConfigError: for an unknown architecture, a missing, unknown or impossible field, or groups that do not hold exactly
      the clients 0 .. `data.clients` - 1.
  """
  classes = config.data.classes or source.classes
  if classes < source.classes:
    raise ConfigError(
      f'data.classes={classes} is less than the {source.classes} classes of {source.name}, so labels would lie '
      f'outside the head; set it to at least {source.classes}, or to 0'
    )
  if (config.data.crop or config.data.flip) and not is_images(source.train_image):
    field = 'crop' if config.data.crop else 'flip'
    raise ConfigError(
      f'data.{field}={config.data[field]} is for images, and data.name={source.name} has none; set it to '
      f'{type(config.data[field])(0)}'
    )
  if config.data.crop and config.data.crop > min(source.train_image.shape[1:3]):
    raise ConfigError(
      f'data.crop={config.data.crop} is wider than the images of {source.name}, {list(source.train_image.shape[1:3])}; '
      'lower it, 4 is usual for 32 pixels'
    )
  if not config.groups:
    raise ConfigError('groups=() names no client; give at least one {"model": ..., "clients": ...}')
  entries = configs.entries(config)
  common = {'classes': classes, 'lowering': config.lowering}
  nets = [vocabulary.fitted(_network(entry, i, common), source, f'groups[{i}]') for i, entry in enumerate(entries)]
  mean, scale = normalisation(config.data.normalise, source)
  image = source.train_image[:1].astype(np.float32 if mean is not None else source.train_image.dtype)
  nets = [_with_contract(net, image, f'groups[{i}]', classes) for i, net in enumerate(nets)]
  groups, start = [], 0
  for i, (entry, net, name) in enumerate(zip(entries, nets, group_names(entries, nets), strict=True)):
    start = entry.get('first', start)
    ranges.check(f'groups[{i}].clients', entry.get('clients', 0), ranges.Positive)
    ranges.check(f'groups[{i}].first', start, ranges.Count)
    if max(start, entry['clients']) > 2 * config.data.clients:  # far more: their tables would fill the memory
      raise ConfigError(
        f'groups[{i}]: clients={entry["clients"]}, first={start} of data.clients={config.data.clients}; lower them'
      )
    ranges.check(f'groups[{i}].learning_rate', entry.get('learning_rate', 0), ranges.Weight)
    model = Preprocessed(net, mean, scale, config.data.crop, config.data.flip)
    groups.append(Group(name, model, np.arange(start, start + entry['clients'], dtype=np.int32)))
    start += entry['clients']
  _check_clients(groups, config.data.clients)
  return tuple(groups)


def _with_contract(net, image, field, classes):
  """A network, that of an NNX module adapted to the contract of models."""
  if not is_nnx(net):
    return net
  net = adapted(net, image)
  if net.classes != classes:
    raise ConfigError(
      f'{field}: {class_of(net).__name__} returns {net.classes} logits for {classes} classes; let its '
      'argument `classes` set the width of its last layer'
    )
  return net


def _check_clients(groups, clients):
  held = np.unique(np.concatenate([g.ids for g in groups]))
  if len(held) != clients:
    raise ConfigError(
      f'groups have {len(held)} clients but data.clients={clients}; make them equal, or leave `clients` out of the '
      'entries, which then share data.clients'
    )
  if held[-1] >= clients:
    raise ConfigError(
      f'groups have clients from {held[0]} to {held[-1]} and leave some out; let `first` number them 0 to {clients - 1}'
    )


def _network(entry, i, common):
  """The network of group `i`, with the fields of its `entry` and those that all networks have in `common`."""
  fields = {k: v for k, v in entry.items() if k not in (*CLIENT_FIELDS, *OPTIMIZER_FIELDS)}
  return configs.build('model', configs.freeze(fields), field=f'groups[{i}]', **common)
