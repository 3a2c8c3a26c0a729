"""Partial weight sharing: some layers are sent, the others stay with their clients.

A part is {path: array}, its paths being those of `params` with slashes. Groups may call their layers by different
names: parts of two groups correspond entry by entry, in the order in which a forward pass reaches them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from fedkd import inference
from fedkd.models.base import class_of, is_nnx
from fedkd.models.nnx_state import is_variable
from fedkd.servers.static import Static
from fedkd.servers.weights import variables_of
from fedkd.types import Data, Download, Group, PyTree, Server

Select = Callable[[nn.Module, Data], Sequence[str]]  # (model, `Data`) -> paths


def pick(params: PyTree, paths) -> dict[str, jax.Array]:
  """The part of `params` with these paths; of stacked params as well."""
  flat = flatten_dict(params, sep='/')
  return {path: flat[path] for path in paths}


def put(params: PyTree, part: dict[str, jax.Array]) -> PyTree:
  """`params` with a part replaced."""
  return unflatten_dict({**flatten_dict(params, sep='/'), **part}, sep='/')


def put_in_each(params: PyTree, part: dict[str, jax.Array]) -> PyTree:
  """Stacked `params` [n, ...] with the same part [...] in all of them."""
  rows = jax.tree.leaves(params)[0].shape[0]
  return put(params, {path: jnp.broadcast_to(leaf, (rows, *leaf.shape)) for path, leaf in part.items()})


def _reached(model: nn.Module, x, method: str | None = None) -> dict[str, int]:
  """{path: axes} of the parameters in the order in which a forward pass reaches them; from shapes alone."""
  if is_nnx(model):
    return _reached_of_nnx(model, x, method)
  axes: dict[str, int] = {}

  def init(x):
    args = (x,) if method else (x, False)
    params = flatten_dict(model.init(jax.random.key(0), *args, method=method)['params'], sep='/')
    axes.update({path: leaf.ndim for path, leaf in params.items()})

  jax.eval_shape(init, x)
  return axes


def _reached_of_nnx(model, x, method) -> dict[str, int]:
  """As `_reached`: all parameters of an NNX module are there from its beginning, whichever a method uses."""
  args = () if method else (False,)
  variables = jax.eval_shape(lambda x: model.init(jax.random.key(0), x, *args, method=method), x)
  params = flatten_dict(variables.pop('params'), sep='/')

  def forward(leaves, x, variables):
    params = unflatten_dict(leaves, sep='/')
    return model.apply({'params': params, **variables}, x, *args, method=method)

  traced = jax.make_jaxpr(forward)(params, x, variables).jaxpr
  names = dict(zip(traced.invars, sorted(params), strict=False))  # those of the parameters come first
  operands = [v for equation in traced.eqns for v in equation.invars if is_variable(v)]
  return {names[v]: params[names[v]].ndim for v in operands if v in names}


def _head(model, data) -> dict[str, int]:
  shape = inference.feature_shape(model, data.pool)
  return _reached(model, jax.ShapeDtypeStruct((1, *shape), jnp.float32), 'head')


def head(model: nn.Module, data: Data) -> list[str]:
  """The paths of a model's head.

  Raises:
    ValueError: for a model that returns logits alone.
  """
  return list(_head(model, data))


def body(model: nn.Module, data: Data) -> list[str]:
  """The paths of all parameters but those of the head.

  Raises:
    ValueError: for a model that returns logits alone.
  """
  of_head = head(model, data)
  return [path for layer in layers(model, data) for path in layer if path not in of_head]


def linear_head(model: nn.Module, data: Data) -> list[str]:
  """As `head`, for methods that apply heads without their models.

  Raises:
    ValueError: also for a head that is not a single linear layer.
  """
  axes = _head(model, data)
  if sorted(axes.values()) not in ([2], [1, 2]):
    name = class_of(model).__name__
    raise ValueError(f'models: the head of {name} has {", ".join(axes)}; this method needs one linear layer')
  return list(axes)


def linear(head: Sequence[jax.Array], feature: jax.Array) -> jax.Array:
  """Logits [B, C] that the arrays of a `linear_head` make of features [B, d]."""
  kernel = next(leaf for leaf in head if leaf.ndim == 2)
  return feature @ kernel + sum(leaf for leaf in head if leaf.ndim == 1)


def layers(model: nn.Module, data: Data) -> list[list[str]]:
  """The paths of every layer with parameters of its own, layers in the order in which a forward pass reaches them."""
  example = data.pool.example
  of_layers: dict[str, list[str]] = {}
  for path in _reached(model, jax.ShapeDtypeStruct((1, *example.shape[1:]), example.dtype)):
    of_layers.setdefault(path.rpartition('/')[0], []).append(path)
  return list(of_layers.values())


class PartState(NamedTuple):
  """The state of the server of a part, and the part's paths in every group, for `global_part`: a method's `variables`
  sees a state alone."""

  server: PyTree
  paths: tuple[Static, ...]


def part(select: Select, server: Server, statistics: bool = False) -> Server:
  """`server` for a part of the weights, as `weights` is for all of them.

  Messages are {'params': {path: array}, 'batch_stats', 'count'} up, and down without the count; `batch_stats` is {}
  unless `statistics`. Uploads without 'params' reach `server` as they are.

  Raises:
    ValueError: at init, if the parts of two groups differ in their shapes.
  """

  def init(key, groups, variables, data):
    paths = tuple(Static(tuple(select(g.model, d))) for g, d in zip(groups, data, strict=True))
    parts = [tuple(pick(v['params'], p.value).values()) for v, p in zip(variables, paths, strict=True)]
    _check_equal(groups, paths, parts)
    some = lambda v: v['batch_stats'] if statistics else {}
    own = tuple({'params': p, 'batch_stats': some(v)} for v, p in zip(variables, parts, strict=True))
    return PartState(server.init(key, groups, own, data), paths)

  def receive(key, t, groups, state, uploads, ids, data):
    ordered = lambda up, paths: {**up, 'params': tuple(up['params'][path] for path in paths.value)}
    if 'params' in uploads[0]:
      uploads = tuple(map(ordered, uploads, state.paths))
    after, info = server.receive(key, t, groups, state.server, uploads, ids, data)
    return state._replace(server=after), info

  def send(key, t, groups, state, ids, data):
    downs = server.send(key, t, groups, state.server, ids, data)
    return tuple(Download(shared=_named(down.shared, paths)) for down, paths in zip(downs, state.paths, strict=True))

  return server._replace(init=init, receive=receive, send=send)


def _named(message, paths):
  return {**message, 'params': dict(zip(paths.value, message['params'], strict=True))}


def global_part(state: PartState, g: int) -> dict:
  """What a server of a part around `weights` holds for group `g`: {'params': {path: array}, 'batch_stats'}."""
  return _named(variables_of(state.server, g), state.paths[g])


def _check_equal(groups: tuple[Group, ...], paths, parts):
  shapes = [[leaf.shape for leaf in one] for one in parts]
  for group, own, of_group in zip(groups, paths, shapes, strict=True):
    if of_group != shapes[0]:
      listed = lambda names, sizes: ', '.join(f'{n} {list(s)}' for n, s in zip(names, sizes, strict=True)) or 'nothing'
      raise ValueError(
        f'groups: what {group.name} shares is {listed(own.value, of_group)}, and {groups[0].name} shares '
        f'{listed(paths[0].value, shapes[0])}; share layers of equal shapes, or give the models features of one width'
      )
