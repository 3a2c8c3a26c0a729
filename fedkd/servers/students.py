"""Models that a server trains on the public images, towards the clients' consensus."""

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from fedkd import distillation, examples, local
from fedkd.servers.consensus import lessons, places
from fedkd.types import Data, FromData, Group, Masked, Pool, PyTree, Server


def modules(groups: Sequence[Group]) -> tuple:
  """The groups' models as a part of a server's state: nodes without leaves, since `receive` does not get the models."""
  return tuple(jax.tree_util.Partial(group.model.apply) for group in groups)


def module_of(node: jax.tree_util.Partial) -> nn.Module:
  """The model of an entry of `modules`."""
  return node.func.__self__  # type: ignore[attr-defined]  # of a bound method


def images(data: Sequence[Data]) -> FromData:
  """The public images [N, ...], as a part of a server's state, since `receive` does not get the data."""
  return FromData(data[0].pool.example[examples.public(data[0]).index])


def students(
  server: Server,
  tx: optax.GradientTransformation,
  epochs: int,
  batch: int,
  distance: Callable[[jax.Array, jax.Array], jax.Array],
) -> Server:
  """`server`, a `consensus`, which also trains a model of every architecture on each new consensus.

  Its state is {'consensus': that of `server`, 'learners': per group, ...}; what is sent is what `server` sends.

  Args:
    tx: optimizer of the models, whose states persist.
    epochs, batch: passes over the rows of a consensus, and examples per mini-batch.
    distance: as in `distillation.towards`.
  """

  def init(key, groups, variables, data):
    return {
      'consensus': server.init(key, groups, variables, data),
      'learners': tuple(local.start(v, tx) for v in variables),
      'models': modules(groups),
      'image': images(data),
      'place': places(data[0]),  # of each row of the pool in `image`
    }

  def receive(key, t, state, uploads, ids):
    reduced, info = server.receive(key, t, state['consensus'], uploads, ids)
    heard = jnp.any(jnp.concatenate(ids) >= 0)
    received = {
      'consensus': Masked(reduced['consensus'], reduced['on']),
      'last': {'index': Masked(reduced['last'], heard)},
    }
    (index, target), many = lessons(received)
    place = state['place'][index]
    size, key_fit = jnp.where(heard, many, 0), jax.random.fold_in(key, 1)  # equal architectures learn alike
    learners, losses = [], []
    for node, learner in zip(state['models'], state['learners'], strict=True):
      loss_fn = distillation.towards(module_of(node), Pool(state['image'].value, place), distance)
      learner, sums = local.fit(key_fit, learner, tx, loss_fn, (place, target), size, batch, None, epochs, t)
      learners.append(learner)
      losses.append(local.report(sums)['distill_loss'])
    info['server_distill_loss'] = jnp.where(heard, sum(losses) / len(losses), jnp.nan)
    return {**state, 'consensus': reduced, 'learners': tuple(learners)}, info

  send = lambda key, t, state, ids: server.send(key, t, state['consensus'], ids)
  return server._replace(init=init, receive=receive, send=send)


def student_of(model: nn.Module, variables: dict, state: PyTree) -> tuple[nn.Module, dict]:
  """A method's `deployed` where clients use the model that `students` has of their architecture; what they would use
  otherwise is in its variables as 'own'."""
  learner = next(one for node, one in zip(state['models'], state['learners'], strict=True) if module_of(node) is model)
  return model, {**local.variables(learner), 'own': variables}
