"""The server of Felo and Velo: weights by architecture, class-wise logits of all, class-wise features by width."""

from collections.abc import Callable
from typing import Literal

import jax

from fedkd.aggregate import AnyRule, mean
from fedkd.inference import feature_width
from fedkd.servers.combine import after, join
from fedkd.servers.weights import weights
from fedkd.types import Download, Server

Alignment = Literal['none', 'pool', 'group']
# How the features' metrics are renamed, since the logits' server uses these names already.
FEATURE_METRICS = {'knowledge_age': 'feature_age'}


def features_and_logits(
  logits: Callable[[], Server],
  features: Callable[..., Server],
  *,
  feature_align: Alignment,
  initial: int,
  load_in_initial: bool,
  rule: AnyRule = mean,
) -> Server:
  """Weights by architecture; class-wise logits of all; class-wise features of all, or within each width.

  Args:
    logits: () -> the `Server` of the logits.
    features: (width=) -> the `Server` of features of that width.
    feature_align, initial, load_in_initial: as in `felo`.
    rule: of the weights.
  """
  knowledge = after(initial, _knowledge(logits(), features, feature_align))
  return join(weights=after(0 if load_in_initial else initial, weights(rule, per_group=True)), knowledge=knowledge)


def _knowledge(logits, features, feature_align) -> Server:
  """Messages {'features': Masked, 'logits': Masked, 'label': Masked}, widths of features by group."""

  def widths(groups, data):
    """Width of the features that every group sends."""
    computed = [feature_width(g.model, d.pool) for g, d in zip(groups, data, strict=True)]
    sent = [min(computed)] * len(computed) if feature_align == 'pool' else computed
    _check_widths(groups, computed, sent, feature_align)
    return sent

  def init(key, groups, variables, data):
    sent = widths(groups, data)
    key_logits, key_features = jax.random.split(key)
    # Of one key numbers of one width would begin those of another.
    first = lambda w: features(width=w).init(jax.random.fold_in(key_features, w), groups, variables, data)
    return {
      'logits': logits.init(key_logits, groups, variables, data),
      'features': {str(w): first(w) for w in set(sent)},
    }

  def receive(key, t, groups, state, uploads, ids, data):
    sent, distinct = [str(w) for w in widths(groups, data)], sorted(state['features'])
    upload = lambda g, name: {'knowledge': uploads[g][name], 'label': uploads[g]['label']}
    key_logits, *keys = jax.random.split(key, 1 + len(distinct))
    of_logits = tuple(upload(g, 'logits') for g in range(len(ids)))
    new, info = logits.receive(key_logits, t, groups, state['logits'], of_logits, ids, data)
    learned = {}
    for key_features, width in zip(keys, distinct, strict=True):
      of = [g for g, sent_width in enumerate(sent) if sent_width == width]
      some = tuple(upload(g, 'features') for g in of)
      who, slots, seen = (tuple(every[g] for g in of) for every in (groups, ids, data))
      receive_some = features(width=int(width)).receive
      learned[width], metrics = receive_some(key_features, t, who, state['features'][width], some, slots, seen)
      suffix = f'_{width}' if len(distinct) > 1 else ''
      info = {**{FEATURE_METRICS.get(name, name) + suffix: value for name, value in metrics.items()}, **info}
    return {**state, 'logits': new, 'features': learned}, info

  def send(key, t, groups, state, ids, data):
    sent, distinct = [str(w) for w in widths(groups, data)], sorted(state['features'])
    key_logits, key_features = jax.random.split(key)
    of_logits = logits.send(key_logits, t, groups, state['logits'], ids, data)[0].shared

    def of_width(w):
      key_width = jax.random.fold_in(key_features, int(w))
      return features(width=int(w)).send(key_width, t, groups, state['features'][w], ids, data)[0].shared

    of_features = {w: of_width(w) for w in distinct}
    message = lambda g: {
      'features': of_features[sent[g]]['knowledge'],
      'logits': of_logits['knowledge'],
      'label': of_logits['label'],
    }
    return tuple(Download(shared=message(g)) for g in range(len(ids)))

  return Server(init, receive, send)


def _check_widths(groups, widths, sent, feature_align):
  listed = ', '.join(f'{g.name}: {w}' for g, w in zip(groups, widths, strict=True))
  if feature_align == 'none' and len(set(widths)) > 1:
    raise ValueError(
      f"feature_align='none' but the widths of features differ ({listed}); set feature_align "
      "(method.feature_align in a config) to 'pool' or 'group', or give the wide models a linear layer (projection)"
    )
  if any(w % s for w, s in zip(widths, sent, strict=True)):
    raise ValueError(
      f"feature_align='pool' needs widths that are multiples of the smallest ({listed}); set feature_align "
      "(method.feature_align in a config) to 'group'"
    )
