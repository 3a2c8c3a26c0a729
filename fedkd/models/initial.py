"""What models start from, and whether they can take the examples."""

import warnings
import zlib
from collections.abc import Sequence
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedkd.checks import blame
from fedkd.models import base, from_nnx, laws
from fedkd.models.identity import name_of
from fedkd.types import Group

NO_UNITS = 'a layer has no units, or the model no classes; give each width, and `classes`, at least 1'
Initial = Literal['equal', 'own']  # what the clients of one architecture start from: equal weights, or each its own


def initial_variables(
  key: jax.Array, model: nn.Module, example: jax.Array | jax.ShapeDtypeStruct, client: ArrayLike | None = None
) -> dict:
  """A model's initial {'params', 'batch_stats'}: equal for one architecture and key, whatever the method or grouping.

  Args:
    key: of the run; an architecture folds in its own name.
    model: `base.Preprocessed`.
    example: one example [...], or its ShapeDtypeStruct.
    client: the global number of a client that starts from weights of its own; may be traced.

  Raises:
    ValueError: if the architecture cannot take such an example, or has other variable collections.
  """
  return _first_pass(key, model, example, client)[1]


def group_variables(key: jax.Array, group: Group, example: jax.ShapeDtypeStruct, initial: Initial = 'equal') -> dict:
  """What the clients of a group start from: leaves [1, ...] where all start alike, else [n, ...].

  Args:
    initial: 'equal' weights for all clients of an architecture, or each its 'own'. NNX instances bring their weights:
      'equal' are those of the first client, 'own' those of each.

  Raises:
    ValueError: if instances shall be the clients' own weights, and two have the same.
  """
  given = from_nnx.instances(group.model)
  if given and initial == 'own':
    return _of_instances(key, group, example, given)
  if initial == 'equal':
    if len({one.checksum for one in given}) > 1:
      warnings.warn(
        f'models: the clients of {group.name} start from the weights of the first of their NNX instances, whose '
        "weights differ; give initial='own' so that each starts from those of its own",
        stacklevel=2,
      )
    return jax.tree.map(lambda a: a[None], initial_variables(key, group.model, example))
  return jax.vmap(lambda client: initial_variables(key, group.model, example, client))(jnp.asarray(group.ids))


def _of_instances(key, group, example, given):
  if len({one.checksum for one in given}) < len(group.ids):
    raise ValueError(
      f"initial='own', but clients of {group.name} have NNX instances of equal weights; give each an instance of its "
      'own, or the class instead'
    )
  rows = [initial_variables(key, from_nnx.with_instance(group.model, one), example) for one in given]
  return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)


def _first_pass(key, model, example, client=None):
  """(logits, initial variables)."""
  key = jax.random.fold_in(jax.random.fold_in(key, 0), zlib.crc32(name_of(model).encode()))
  key = key if client is None else jax.random.fold_in(key, client)
  output, variables = model.init_with_output(key, jnp.zeros((1, *example.shape), example.dtype), False)
  if other := set(variables) - {'params', 'batch_stats'}:
    raise ValueError(
      f'models: {base.class_of(model).__name__} has variables of the kind {sorted(other)[0]!r}; fedkd trains params '
      'and batch_stats, so keep other state out of the module'
    )
  return output[0], {'batch_stats': {}, **variables}


def check_heads(groups: Sequence[Group], x: jax.Array | np.ndarray, y: np.ndarray) -> None:
  """Checks, from shapes alone, that every model takes the examples and has a head for the labels.

  Raises:
    ValueError: for models that cannot take the examples, differ in their classes, or have too few for the labels.
  """
  example = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
  for group in groups:
    try:
      logits, variables = jax.eval_shape(lambda group=group: _first_pass(jax.random.key(0), group.model, example))
    except Exception as error:
      net = base.class_of(group.model)
      if not isinstance(error, TypeError | ValueError | ZeroDivisionError) and not blame.is_foreign(net):
        raise
      line = blame.place(net, error) if blame.is_foreign(net) else ''
      reason = NO_UNITS if isinstance(error, ZeroDivisionError) else str(error).splitlines()[0]
      raise ValueError(
        f'models: {group.name} cannot take examples {x.dtype}{list(x.shape[1:])}{line}: {reason}'
      ) from None
    if logits.ndim == 1:
      raise ValueError(f'models: {group.name} returns [batch], without an axis of classes; return [batch, classes]')
    if logits.ndim != 2 or logits.shape[1] != group.model.classes:
      raise ValueError(
        f'models: {group.name} returns logits {list(logits.shape)} for one example of {group.model.classes} classes; '
        'return [batch, classes]'
      )
    _check_differentiable(group.name, logits, variables.get('params', {}))
    laws.check_modes(group.name, group.model, x)
  classes = [group.model.classes for group in groups]
  if len(set(classes)) > 1:
    heads = ', '.join(f'{g.name}: {c}' for g, c in zip(groups, classes, strict=True))
    raise ValueError(f'models have heads of different size ({heads}); give all the same number of classes')
  if (most := int(y.max())) >= classes[0]:
    remedy = f'give them at least {most + 1}'
    if (least := int(y.min())) > 0 and most - least < classes[0]:
      remedy = f'number the classes from 0, as y - {least} does'
    raise ValueError(f'y has the label {most}, but the models have {classes[0]} classes; {remedy}')


def _check_differentiable(name, logits, params):
  """Checks that a model has parameters, none empty, and that gradients reach them: they and logits are real numbers."""
  if not jnp.issubdtype(logits.dtype, jnp.floating):
    raise ValueError(f'models: {name} returns logits {logits.dtype}; return real numbers: logits.astype(jnp.float32)')
  leaves = jax.tree_util.tree_leaves_with_path(params)
  if not leaves:
    raise ValueError(
      f'models: {name} has no parameters, so there is nothing to train; give it a layer such as nn.Dense'
    )
  if not all(leaf.size for _, leaf in leaves):  # which initialisers of newer versions of JAX let pass
    raise ValueError(f'models: {name} has parameters of size 0: {NO_UNITS}')
  for path, leaf in leaves:
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
      raise ValueError(
        f'models: {name} has parameters {leaf.dtype} ({jax.tree_util.keystr(path, simple=True, separator="/")}), which '
        'gradients cannot train; give them a dtype of real numbers, and hold other constants as fields'
      )
