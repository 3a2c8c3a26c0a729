"""FedRolex: Alam, Liu, Yan, Zhang, "FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model
Extraction", 2022.

Clients train a window of the channels of one network, which moves on in every round, so that all channels are trained
equally often.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, servers
from fedkd.checks.ranges import Count, Positive, Share, checked
from fedkd.methods.heterofl import heterofl
from fedkd.servers import nested
from fedkd.servers.static import Network, Static
from fedkd.types import Method, apply_model

Inference = Literal['network', 'window', 'trained']


@checked
def fedrolex(
  tx: optax.GradientTransformation,
  epochs: Count | None = 1,
  steps: Count | None = None,
  batch: Positive = 10,
  masked: bool = True,
  rule: aggregate.AnyRule | None = None,
  stride: Share = 0.0,
  inference: Inference = 'network',
  weighted: bool = False,
) -> Method:
  """HeteroFL whose sub-networks roll: in round t a client has the channels t, t + 1, ... of every layer, cyclically.

  Learned: the parameters of the widest network, on the server. Sent: the window of them that a client trains, both
  ways, and its class numbers up; the window follows from the round. Averaged: every parameter over the clients that
  hold it, in the head only over those that also have the class. Statistics of BatchNorm are HeteroFL's. Clients are
  evaluated with the whole network, as in the paper; `accuracy_window` is that of their window of the next round. Where
  they are evaluated with a window, `accuracy_network` is that of the whole.

  The window moves forwards. In the authors' code it moves backwards; there BatchNorm and the head are averaged by
  counters that grow while the clients of a round are added, so that later clients weigh more.

  Args:
    tx: optax optimizer, fresh in every client update.
    epochs: passes over the client's data per client update; or
    steps: mini-batches.
    batch: examples per mini-batch.
    masked: whether a client's loss ignores classes of which it has no example.
    rule: None for the paper's mean, or a rule for every number by itself, as in `heterofl`.
    stride: share of a layer's channels by which the window moves on in a round, a quarter in HeFlwr; 0: one channel.
    inference: 'network', the whole of the widest; 'window', a client's own of the next round; or 'trained', its own of
      the round before, as in HeFlwr.
    weighted: as in `heterofl`.

  Raises:
    ValueError: at init, for groups that are not sub-networks of the widest.
  """

  def rolled(t: jax.Array, g: int, n: int) -> jax.Array:
    return (jnp.arange(n) + t * max(1, round(n * stride))) % n

  return moving(heterofl(tx, epochs, steps, batch, masked, weighted=weighted), rule, rolled, inference)


def moving(method: Method, rule: aggregate.AnyRule | None, order: nested.Order, inference: str) -> Method:
  """`heterofl`, whose sub-networks are other channels in every round."""

  earlier = lambda t, g, n: order(jnp.maximum(t - 1, 0), g, n)
  shown = earlier if inference == 'trained' else order

  def variables(state, g):
    params = nested.sub_networks(state.server, None, shown)[g]
    return servers.as_rows({'params': params, 'batch_stats': state.server['batch_stats'][g]})

  windows = method._replace(
    server=nested.nested(rule, order)._replace(asks=True),  # a stale window would be stored where it is not from
    variables=variables,
    calibrate=nested.static_batch_norm(shown, whole=True),
  )
  if inference != 'network':
    return windows._replace(predictions=(('network', _by_network),))
  return windows._replace(deployed=_network, predictions=(('window', _by_window),))


def _network(model, variables, server_state, g):
  """The widest network, with what a client has of it as 'window'."""
  at = nested.widest(server_state['params'])
  whole = {name: server_state[name][at] for name in ('params', 'batch_stats')}
  return server_state['network'].value.module, {**whole, 'window': (Static(Network(model)), variables)}


def _by_network(model, variables, server_state, x):
  module, whole = _network(model, variables, server_state, 0)
  return apply_model(module, whole, server_state, x)


def _by_window(model, variables, server_state, x):
  module, own = variables['window']
  return apply_model(module.value.module, own, server_state, x)
