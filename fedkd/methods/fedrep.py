"""FedRep: Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for Personalized Federated
Learning", 2021."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, optimizers
from fedkd.checks.ranges import Count, Positive, checked
from fedkd.methods.lg_fedavg import lg_fedavg, part_of, with_part
from fedkd.servers import layer_subset
from fedkd.types import Client, Method, PyTree


class Parts(NamedTuple):
  """A client's model, whose parts are trained in turns, and a state of the optimizer for each part that is trained: a
  step without gradients would tell Adam that the gradients of the other part are small."""

  params: PyTree
  batch_stats: PyTree
  opt: dict[str, PyTree]  # 'head', 'body'


@checked
def fedrep(
  tx: optax.GradientTransformation,
  head_epochs: Count = 10,
  epochs: Count | None = 1,
  steps: Count | None = None,
  head_steps: Count | None = None,
  batch: Positive = 10,
  rule: aggregate.AnyRule = aggregate.mean,
  keep_optimizer: bool = False,
) -> Method:
  """FedPer whose clients first train the head on the received body, and then the body under that head (Algorithm 1).

  Learned, sent and averaged: as in `fedper`. What is not trained does not move at all, the body's statistics included;
  in the authors' code, which has one optimizer for all, momentum and weight decay go on moving the head while the body
  is trained. Their last round, in which all clients train their heads alone, is a last phase
  `fedrep(head_epochs=10, epochs=0)`.

  Args:
    tx: optax optimizer, with a state for each part; its schedule counts the steps of both.
    head_epochs: passes over the client's data in which the head is trained; 0: none.
    epochs: passes in which the body is trained after that; or
    steps: mini-batches. 0 or None of both: the body is never trained.
    head_steps: mini-batches for the head, in place of `head_epochs`.
    batch: examples per mini-batch.
    rule: aggregation rule, weighted by n_k.
    keep_optimizer: whether the optimizer's state persists across rounds; else it is fresh in each.

  Raises:
    ValueError: if neither part is trained; at init, for models without features, or bodies of different shapes.
  """
  works = {
    'head': local.Work(batch, head_steps, None if head_steps else head_epochs),
    'body': local.Work(batch, steps, epochs),
  }
  works = {name: work for name, work in works.items() if any(map(local.given, work[1:]))}
  if not works:
    raise ValueError('fedrep needs head_epochs, head_steps, epochs or steps above 0; all are 0')

  def init(key, model, data, variables):
    params = variables['params']
    opt = {name: optimizers.init(tx, _part(name, params, model, data)) for name in works}
    return Parts(params, variables['batch_stats'], opt)

  def step(key, t, model, state, down, data):
    state, sums = with_part(state, down.shared), {}
    steps = {name: local.steps_of(work, data.private.size) for name, work in works.items()}
    done = t * sum(steps.values())
    for i, (name, work) in enumerate(works.items()):
      part = _part(name, state.params, model, data)
      opt = optimizers.advanced(state.opt[name] if keep_optimizer else optimizers.init(tx, part), done)
      learner = local.Learner(part, state.batch_stats, opt)
      loss_fn = _of_part(local.supervised(model, data.pool), state.params)
      key_part = jax.random.fold_in(key, i)
      learner, sums[name] = local.fit(key_part, learner, tx, loss_fn, data.private, work, t, before=0)
      params = layer_subset.put(state.params, learner.params)
      batch_stats = learner.batch_stats if name == 'body' else state.batch_stats
      state, done = Parts(params, batch_stats, {**state.opt, name: learner.opt}), done + steps[name]
    up = {**part_of(state, down.shared), 'count': data.private.size}
    return state, up, local.report(jax.tree.map(lambda *a: jnp.sum(jnp.stack(a), 0), *sums.values()))

  method = lg_fedavg(tx, 'body', rule=rule)
  return method._replace(client=Client(init, step))


def _part(name, params, model, data) -> dict[str, jax.Array]:
  """The parameters {path: array} of the head, or of the body."""
  return layer_subset.pick(params, {'head': layer_subset.head, 'body': layer_subset.body}[name](model, data))


def _of_part(loss_fn: local.LossFn, params: PyTree) -> local.LossFn:
  """A loss of one part of the parameters, the others being as in `params`."""
  return lambda part, *args: loss_fn(layer_subset.put(params, part), *args)
