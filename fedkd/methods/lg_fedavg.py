"""LG-FedAvg: Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency, "Think Locally, Act Globally: Federated
Learning with Local and Global Representations", 2020.

Some layers are averaged, the others stay personal.
"""

import itertools
import re

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, servers
from fedkd.checks.ranges import Count, Positive, checked
from fedkd.models.base import class_of
from fedkd.servers import layer_subset
from fedkd.types import Client, Method, State


@checked
def lg_fedavg(
  tx: optax.GradientTransformation,
  share: str = 'head',
  epochs: Count | None = 1,
  steps: Count | None = None,
  batch: Positive = 10,
  rule: aggregate.AnyRule = aggregate.mean,
  keep_optimizer: bool = False,
) -> Method:
  """Weights of some layers as the only message.

  Learned: every client's own layers, and the shared ones on the server. Sent: the shared layers both ways, and n_k up.
  Averaged: those, weighted by n_k (as in HtFLlib; in the authors' code all clients count equally). A client is
  evaluated with its own layers and the server's newest shared ones, even if it was absent. Starting from a FedAvg
  model, as in the paper, takes a phase of `fedavg` before.

  Args:
    tx: optax optimizer.
    share: the layers that are shared: 'head'; 'last3', the last three layers with weights; names of layers, or of
      modules that hold several, joined by '+' ('layers_1+output'); 'none'; or 'body', all but the head, or 'all', both
      including BatchNorm statistics, which are otherwise personal.
    epochs: passes over the client's data per round; or
    steps: mini-batches.
    batch: examples per mini-batch.
    rule: aggregation rule, weighted by n_k.
    keep_optimizer: whether the optimizer's state persists across rounds; else it is fresh in each.

  Raises:
    ValueError: at init, for a layer that a model lacks, or shared layers of different shapes.
  """
  work = local.Work(batch, steps, epochs)

  def step(key, t, model, learner, down, data):
    received, private = down.shared, data.private
    learner = local.resume(with_part(learner, received), tx, keep_optimizer)
    loss_fn = local.supervised(model, data.pool)
    learner, sums = local.fit(key, learner, tx, loss_fn, private, work, t)
    return learner, {**part_of(learner, received), 'count': private.size}, local.report(sums)

  def variables(state: State, g: int) -> dict:
    received = layer_subset.global_part(state.server, g)
    if share == 'all':
      return servers.as_rows({**received, 'params': layer_subset.put({}, received['params'])})
    return with_part_in_each(local.variables(state.client[g]), received)

  select = lambda *model: selected(share, *model)
  server = layer_subset.part(select, servers.weights(rule), share in ('all', 'body'))
  return Method(Client(local.starting(tx), step), server, variables)


def with_part(learner: local.Learner, received: dict) -> local.Learner:
  """A learner with the part of the weights that it received, {'params': {path: array}, 'batch_stats'}."""
  return learner._replace(
    params=layer_subset.put(learner.params, received['params']),
    batch_stats=received['batch_stats'] or learner.batch_stats,
  )


def with_part_in_each(variables: dict, received: dict) -> dict:
  """Stacked variables of clients with the server's part of the weights, and its statistics, in all of them."""
  rows = jax.tree.leaves(variables)[0].shape[0]
  statistics = jax.tree.map(lambda a: jnp.broadcast_to(a, (rows, *a.shape)), received['batch_stats'])
  return {
    'params': layer_subset.put_in_each(variables['params'], received['params']),
    'batch_stats': statistics or variables['batch_stats'],
  }


def part_of(learner: local.Learner, received: dict) -> dict:
  """The part of a learner that corresponds to what it received."""
  statistics = learner.batch_stats if received['batch_stats'] else {}
  return {'params': layer_subset.pick(learner.params, received['params']), 'batch_stats': statistics}


def selected(share: str, model, data) -> list[str]:
  """The paths of the parameters that `share` names, as in `lg_fedavg`.

  Raises:
    ValueError: for a number of layers, or a name, that the model does not have.
  """
  if share in ('none', 'head', 'body'):
    return [] if share == 'none' else getattr(layer_subset, share)(model, data)
  layers, name = layer_subset.layers(model, data), class_of(model).__name__
  paths = list(itertools.chain(*layers))
  if share == 'all':
    return paths
  if last := re.fullmatch(r'last(\d+)', share):
    if not 1 <= int(last[1]) <= len(layers):
      raise ValueError(f'share={share!r}: {name} has {len(layers)} layers; give last1 to last{len(layers)}')
    return list(itertools.chain(*layers[-int(last[1]) :]))
  words = share.split('+')
  if unknown := [word for word in words if not any(word in path.split('/') for path in paths)]:
    layer = lambda path: next(word for word in path.split('/') if word != 'net')  # without what surrounds a module
    known = ', '.join(dict.fromkeys(map(layer, paths)))
    raise ValueError(f'share={share!r}: {name} has no layer {unknown[0]!r}; it has {known}; or give head, last3, all')
  return [path for path in paths if set(words) & set(path.split('/'))]
