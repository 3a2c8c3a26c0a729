"""A client that trains two networks: its own, and one that all clients have in common (FML, FedMRL, FedKD)."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from fedkd import optimizers
from fedkd.local import Learner
from fedkd.models.base import adapted
from fedkd.types import Predict, PyTree, Server, of_model


def common_model(model: nn.Module, net: nn.Module, example: jax.Array) -> nn.Module:
  """`net` with the preprocessing of a client's `model` and the same number of classes.

  Args:
    example: raw examples [B, ...], for their shape.
  """
  net = net.clone(classes=model.classes) if 'classes' in vars(net) else net
  return model.clone(net=adapted(net, jnp.zeros((1, *example.shape[1:]), example.dtype)))


def common(net: nn.Module, server: Server) -> Server:
  """`server` for the weights of `net`, of which all clients have one, whatever their own architecture.

  Raises:
    ValueError: at init, for a net with another number of classes than the clients' models.
  """

  def init(key, groups, variables, data):
    del variables
    example = data[0].pool.example
    key_net, key_server = jax.random.split(key)
    blank = jnp.zeros((1, *example.shape[1:]), example.dtype)
    model = groups[0].model
    (logits, *_), first = common_model(model, net, example).init_with_output(key_net, blank, False)
    if logits.shape != (1, model.classes):
      raise ValueError(
        f'common={type(net).__name__} returns logits {list(logits.shape)} for one example of {model.classes} classes; '
        'give it as many outputs as the models of the clients have'
      )
    first = {'batch_stats': {}, **first}
    return server.init(key_server, groups, (first,) * len(groups), data)

  return server._replace(init=init)


def by_common(net: nn.Module, held) -> Predict:
  """Predicts with the common net and the variables `held(server state)`."""

  def predict(model, variables, server_state, x):
    del variables
    return common_model(model, net, x).apply(of_model(held(server_state)), x, False)[0]

  return predict


def stack_learners(**learners: Learner) -> Learner:
  """Several learners as one, for `local.fit` with the optimizer `per_learner`: fields {name: that of the learner}."""
  of = lambda field: {name: getattr(learner, field) for name, learner in learners.items()}
  return Learner(of('params'), of('batch_stats'), of('opt'))


def unstack_learners(learner: Learner) -> dict[str, Learner]:
  """The learners of `stack_learners`."""
  return {name: Learner(*(field[name] for field in learner)) for name in learner.params}


def per_learner(tx: optax.GradientTransformation) -> optax.GradientTransformation:
  """`tx` for every learner of `stack_learners` by itself: a norm that it clips, or a moment, is that of one learner."""

  def update(grads: PyTree, state: PyTree, params: PyTree = None, *, round: jax.Array | int = 0, **_):
    out = {name: optimizers.update(tx, grads[name], state[name], params[name], round) for name in grads}
    return {name: updates for name, (updates, _) in out.items()}, {name: after for name, (_, after) in out.items()}

  init = lambda params: {name: optimizers.init(tx, own) for name, own in params.items()}
  return optax.GradientTransformationExtraArgs(init, update)
