"""The server of Felo and Velo: weights by architecture, class-wise logits of all, class-wise features by width."""

import jax
import jax.numpy as jnp

from fedkd import aggregate, inference, servers
from fedkd.errors import check_choice
from fedkd.types import Download, Server


def features_and_logits(logits, features, feature_align, initial, load_in_initial) -> Server:
  """Weights by architecture; class-wise logits of all; class-wise features of all, or of those of equal width.

  Args:
    logits: () -> the `Server` of the logits.
    features: (width=) -> that of the features.
    feature_align, initial, load_in_initial: as in `felo`.
  """
  check_choice('feature_align', feature_align, ('none', 'pool', 'group'))
  knowledge = servers.after(initial, _knowledge(logits(), features, feature_align))
  weights = servers.after(0 if load_in_initial else initial, servers.weights_per_group(aggregate.mean))
  return servers.join(weights=weights, knowledge=knowledge)


def _knowledge(logits, features, feature_align) -> Server:
  """Messages {'features': Masked, 'logits': Masked, 'label': Masked}, widths of features by group."""

  def init(key, groups, variables, data):
    widths = [_width(*each) for each in zip(groups, variables, data, strict=True)]
    sent = [min(widths)] * len(widths) if feature_align == 'pool' else widths
    _check_widths(groups, widths, sent, feature_align)
    key_logits, key_features = jax.random.split(key)
    return {
      'logits': logits.init(key_logits, groups, variables, data),
      'features': {str(w): features(width=w).init(key_features, groups, variables, data) for w in set(sent)},
      'width': tuple(jnp.zeros(w) for w in sent),  # only their shapes are read
    }

  def part(uploads, name):
    return tuple({'knowledge': up[name], 'label': up['label']} for up in uploads)

  def receive(key, t, state, uploads, ids):
    key_logits, *keys = jax.random.split(key, 1 + len(state['features']))
    new, info = logits.receive(key_logits, t, state['logits'], part(uploads, 'logits'), ids)
    state = {**state, 'logits': new, 'features': dict(state['features'])}
    for key_features, width in zip(keys, sorted(state['features']), strict=True):
      same = [g for g, up in enumerate(uploads) if str(up['features'].value.shape[-1]) == width]
      some, slots = part([uploads[g] for g in same], 'features'), tuple(ids[g] for g in same)
      server = features(width=int(width))
      state['features'][width], more = server.receive(key_features, t, state['features'][width], some, slots)
      more = {name.replace('knowledge', 'feature'): value for name, value in more.items()}  # not those of the logits
      several = len(state['features']) > 1  # an autoencoder or store for each width
      info = {**({f'{name}_{width}': value for name, value in more.items()} if several else more), **info}
    return state, info

  def send(key, t, state, ids):
    said = logits.send(key, t, state['logits'], ids)[0].shared
    drawn = {w: features(width=int(w)).send(key, t, s, ids)[0].shared for w, s in state['features'].items()}
    own = lambda g: drawn[str(state['width'][g].size)]['knowledge']
    return tuple(
      Download({'features': own(g), 'logits': said['knowledge'], 'label': said['label']}) for g in range(len(ids))
    )

  return Server(init, receive, send)


def _width(group, variables, data) -> int:
  """Numbers in the features that a group's model makes of an image."""
  shape = inference.feature_shape(group.model, variables, data.pool)
  if len(shape) != 1:
    raise ValueError(f'groups: the features of {group.name} are no vectors but {shape}; choose another model')
  return shape[0]


def _check_widths(groups, widths, sent, feature_align):
  found = ', '.join(f'{g.name}: {w}' for g, w in zip(groups, widths, strict=True))
  if feature_align == 'none' and len(set(widths)) > 1:
    raise ValueError(
      f"feature_align='none' but the widths of features differ ({found}); set method.feature_align to pool or group, "
      'or give the wide models a linear layer (projection)'
    )
  if any(w % s for w, s in zip(widths, sent, strict=True)):
    raise ValueError(
      f"feature_align='pool' needs widths that are multiples of the smallest ({found}); set method.feature_align=group"
    )
