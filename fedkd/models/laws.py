"""What holds for every model, whatever its flag for training is called: a tiny check of somebody's module, once.

In training, statistics of batches move and dropout draws; in evaluation, the logits of an example depend on nothing but
the example. And logits are no probabilities.
"""

import warnings
from collections.abc import Callable
from typing import Any

import flax
import flax.linen as nn
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np

from fedkd.checks import blame
from fedkd.errors import ConfigError
from fedkd.models import base
from fedkd.models.identity import identity
from fedkd.types import PyTree

ROWS = 4  # examples in a batch of the check
KEPT = 256  # modules that are remembered
REMEDY = 'give `__call__` (or `features`) an argument `train`, and pass it on as `{}=not train`'
STATISTICS, DROPOUT = 'use_running_average', 'deterministic'
# What a model in evaluation mode does not raise.
OTHER_MODE = (flax.errors.InvalidRngError, flax.errors.ModifyScopeVariableError)
_passed: set = set()


def check_modes(name: str, model: nn.Module, x: Any) -> None:
  """Checks that a model trains in training and evaluates in evaluation; not that of a module of this package.

  From shapes alone, but for one small program that evaluates `ROWS` examples.

  Args:
    name: of its group.
    model: `base.Preprocessed`.
    x: examples [N, ...].

  Raises:
    ConfigError: with what to write.
  """
  if not blame.is_foreign(base.class_of(model)):
    return
  known = identity(model.net), x.shape[1:], str(x.dtype)
  if known in _passed:
    return
  x = np.asarray(x[np.arange(ROWS) % len(x)])
  variables = jax.eval_shape(lambda: {'batch_stats': {}, **model.init(jax.random.key(0), x[:1], False)})
  _check_training(f'models: {name}', model, variables, x)
  _check_evaluation(f'models: {name}', model, variables, x)
  if len(_passed) >= KEPT:
    _passed.clear()
  _passed.add(known)


def _check_training(who, model, variables, x):
  draws: dict[str, bool] = {}
  moves: dict[str, bool] = {}

  def forward(variables, key):
    rngs = {'dropout': key, 'augment': key}
    with nn.intercept_methods(_watching(draws)):
      _, after = model.apply(variables, x, True, rngs=rngs, mutable=['batch_stats'])
    before = jax.tree_util.tree_leaves_with_path(variables['batch_stats'])
    for (path, old), new in zip(before, jax.tree.leaves(after.get('batch_stats', {})), strict=True):
      layer = jax.tree_util.keystr(path[:-1], simple=True, separator='/')
      moves[layer] = moves.get(layer, False) or new is not old

  with blame.guard('model', base.class_of(model)):
    jax.eval_shape(forward, variables, jax.random.key(0))
  _tell(f'{who} trains with BatchNorm in evaluation mode', moves, REMEDY.format(STATISTICS))
  _tell(f'{who} trains without its dropout', draws, REMEDY.format(DROPOUT))


def _tell(what, active, remedy):
  """Refuses a model of which no layer is active in training, and warns of one where some are not."""
  still = [layer for layer, is_active in active.items() if not is_active]
  if not still:
    return
  text = f'{what} ({", ".join(still[:3])}{", ..." if len(still) > 3 else ""}); {remedy}'
  if len(still) == len(active):
    raise ConfigError(text)
  warnings.warn(f'{text}, unless it shall be so', stacklevel=2)


def _watching(draws: dict[str, bool]) -> Callable:
  """An interceptor of Flax's methods that notes whether each dropout layer draws."""

  def interceptor(function, args, kwargs, context):
    module = context.module
    if 'nnx_method' in kwargs:
      kwargs = {**kwargs, 'nnx_method': _counting(kwargs['nnx_method'], draws)}
    is_layer = context.method_name == '__call__' and type(module).__module__.startswith('flax.linen')
    if is_layer and (getattr(module, 'rate', 0) or getattr(module, 'dropout_rate', 0)):
      given = kwargs.get('deterministic', args[1] if isinstance(module, nn.Dropout) and len(args) > 1 else None)
      off = module.deterministic if given is None else given
      layer = '/'.join(module.path)
      draws[layer] = draws.get(layer, False) or not off
    return function(*args, **kwargs)

  return interceptor


def _counting(method: Callable, draws: dict[str, bool]) -> Callable:
  """A method of an NNX module that notes the same: a stream of random numbers counts its draws."""

  def counting(module, *args, **kwargs):
    nodes = {'/'.join(map(str, path)): node for path, node in nnx.iter_graph(module) if isinstance(node, nnx.Dropout)}
    drops = {path: node.rngs.count for path, node in nodes.items() if 0 < node.rate < 1 and node.rngs is not None}
    before = {path: count.get_value() for path, count in drops.items()}
    output = method(module, *args, **kwargs)
    for path, count in drops.items():
      draws[path] = draws.get(path, False) or count.get_value() is not before[path]
    return output

  return counting


def _check_evaluation(who, model, variables, x):
  draws: dict[str, bool] = {}

  def forward(variables, x):
    with nn.intercept_methods(_watching(draws)):
      return model.apply(variables, x, False)[0]

  cheap = {'xla_backend_optimization_level': 0} if jax.default_backend() == 'cpu' else None
  drawn = _drawn(variables)
  try:
    with blame.guard('model', base.class_of(model), through=OTHER_MODE):
      program = jax.jit(forward, compiler_options=cheap).lower(drawn, x).compile()  # called as it is, also in a trace
    whole, alone = (np.asarray(program(drawn, rows), np.float32) for rows in (x, x[np.zeros(ROWS, int)]))
  except flax.errors.InvalidRngError:
    draws['any'] = True
  except flax.errors.ModifyScopeVariableError:
    whole, alone = np.zeros((ROWS, 1)), np.ones((ROWS, 1))
  if any(draws.values()):
    raise ConfigError(f'{who} draws random numbers in evaluation; {REMEDY.format(DROPOUT)}')
  if len(whole) != ROWS:
    raise ConfigError(f'{who} returns logits {list(whole.shape)} for {ROWS} examples; return [batch, classes]')
  if not np.allclose(whole[0], alone[0], rtol=1e-3, atol=1e-3 * np.abs(alone[0]).max(), equal_nan=True):
    raise ConfigError(
      f'{who} gives an example other logits in evaluation when the rest of the batch changes; '
      + REMEDY.format(STATISTICS)
    )
  if (whole >= 0).all() and np.allclose(whole.sum(-1), 1, atol=1e-2):
    raise ConfigError(f'{who} returns probabilities, which losses take for logits; return the numbers before softmax')


def _drawn(shapes: PyTree) -> PyTree:
  """Variables of these shapes that keep activations in range, without compiling an initialiser: weights of variance
  2 / fan-in, statistics of 1."""
  random = np.random.default_rng(0)

  def one(path, leaf):
    if path[0].key == 'batch_stats' or not jnp.issubdtype(leaf.dtype, jnp.floating):
      return np.ones(leaf.shape, leaf.dtype)
    numbers = random.normal(size=leaf.shape) * (2 / max(np.prod(leaf.shape[:-1]), 1)) ** 0.5
    return (numbers if leaf.ndim > 1 else 0.5 + 0.1 * random.normal(size=leaf.shape)).astype(leaf.dtype)

  return jax.tree_util.tree_map_with_path(one, shapes)
