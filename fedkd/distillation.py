"""Distillation on public images: its loss, and the client update of the methods that exchange predictions."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from fedkd import local, types
from fedkd.models import base
from fedkd.types import ClientInit, Pool, PyTree

State = TypeVar('State', bound=Any)
# learner -> (learner, sums), as `local.fit` returns them
Training = Callable[[local.Learner], tuple[local.Learner, dict]]


def towards(model: nn.Module, pool: Pool, distance: Callable[[jax.Array, jax.Array], jax.Array]) -> local.LossFn:
  """The distance of a model's logits to targets, as a `loss_fn` for `local.fit` on (rows of the pool, targets).

  Args:
    model, pool: whose logits on which images, which are seen without random crops and flips, as their targets were.
    distance: (logits [C], target [C]) -> float[], for one example.
  """
  plain = base.unaugmented(model)

  def loss_fn(params, batch_stats, key, lesson):
    index, target = lesson
    logits, out, batch_stats = local.forward(plain, params, batch_stats, key, pool.example[index])
    loss = jnp.mean(jax.vmap(distance)(logits, target))
    return loss + local.penalty(out), (batch_stats, local.tally(index, distill_loss=loss))

  return loss_fn


class ClientState(NamedTuple):
  """The optimizer's state of the distillation, and a learner with that of the training on private rows."""

  digest_opt: PyTree
  learner: local.Learner


def start(variables: dict, tx: optax.GradientTransformation) -> ClientState:
  """A client's first state, whose private optimizer continues from the phase before, if that had the same one."""
  fresh = local.start(variables, tx)
  before, shapes = variables.get('opt', fresh.opt), lambda state: jax.tree.map(jnp.shape, state)
  return ClientState(fresh.opt, fresh._replace(opt=before if shapes(before) == shapes(fresh.opt) else fresh.opt))


def starting(tx: optax.GradientTransformation) -> ClientInit:
  """The `init` of a client whose state is that of `start`."""
  return lambda key, model, data, variables: start(variables, tx)


def own_models(state: types.State, g: int) -> dict:
  """The `Method.variables` of clients whose states are those of `start`: what they have learned themselves."""
  return local.variables(state.client[g].learner)


def distill_and_revisit(
  state: State, tx: optax.GradientTransformation, keep: bool, distill: Training | None, revisit: Training
) -> tuple[State, dict]:
  """Distillation on public rows, then training on private ones, each with its own optimizer state (FedMD's terms).

  Args:
    state: a `ClientState`, or one with more fields.
    tx: of both optimizer states.
    keep: whether they persist across updates; else they are fresh in each.
    distill: trains on targets; None: nothing is distilled.
    revisit: trains on private rows.

  Returns:
    (state, info).
  """
  learner = local.resume(state.learner, tx, keep)
  distilled = local.resume(learner._replace(opt=state.digest_opt), tx, keep)
  distilled, sums = distill(distilled) if distill else (distilled, {'metrics': {'examples': jnp.float32(0)}})
  learner, revisited = revisit(distilled._replace(opt=learner.opt))
  info = {**local.report(sums), **local.report(revisited)}
  info['examples'] = sums['metrics']['examples'] + revisited['metrics']['examples']
  return state._replace(digest_opt=distilled.opt, learner=learner), info
