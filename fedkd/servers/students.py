"""Server models distilled from the clients' consensus on public images, one per architecture."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from fedkd import distillation, local
from fedkd.servers.consensus import distillation_targets
from fedkd.types import Masked, PyTree, Server


class StudentsState(NamedTuple):
  """The state of the server of a consensus, and a learner per group."""

  consensus: PyTree
  learners: tuple[local.Learner, ...]


def students(
  server: Server,
  tx: optax.GradientTransformation,
  work: local.Work,
  distance: Callable[[jax.Array, jax.Array], jax.Array],
) -> Server:
  """`server`, a `consensus`, which also trains a model of every architecture on each new consensus.

  Its state is a `StudentsState`; what is sent is what `server` sends.

  Args:
    tx: optimizer of the models, whose states persist.
    work: examples per mini-batch, and passes over the rows of a consensus.
    distance: as in `distillation.towards`.
  """

  def init(key, groups, variables, data):
    return StudentsState(server.init(key, groups, variables, data), tuple(local.start(v, tx) for v in variables))

  def receive(key, t, groups, state, uploads, ids, data):
    reduced, info = server.receive(key, t, groups, state.consensus, uploads, ids, data)
    some = jnp.any(jnp.concatenate(ids) >= 0)
    received = {
      'consensus': Masked(reduced.consensus, reduced.has_consensus),
      'last': {'index': Masked(reduced.consensus_rows, some)},
    }
    targets, count = distillation_targets(received)
    taught = targets, jnp.where(some, count, 0)
    key_fit = jax.random.fold_in(key, 1)  # equal architectures learn alike
    learners, losses = [], []
    for group, learner in zip(groups, state.learners, strict=True):
      loss_fn = distillation.towards(group.model, data[0].pool, distance)
      learner, sums = local.fit(key_fit, learner, tx, loss_fn, taught, work, t)
      learners.append(learner)
      losses.append(local.report(sums)['distill_loss'])
    info['server_distill_loss'] = sum(losses) / len(losses)
    return StudentsState(reduced, tuple(learners)), info

  def send(key, t, groups, state, ids, data):
    return server.send(key, t, groups, state.consensus, ids, data)

  return server._replace(init=init, receive=receive, send=send, fresh=True)


def student_of(model: nn.Module, variables: dict, state: PyTree, g: int) -> tuple[nn.Module, dict]:
  """A method's `deployed` where clients use the model that `students` has of their architecture; what they would use
  otherwise is in its variables as 'own'."""
  return model, {**local.variables(state.learners[g]), 'own': variables}
