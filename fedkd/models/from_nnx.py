"""Flax NNX modules under the contract of linen modules: a pass merges the variables into the module, and splits them
off afterwards."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx
from flax.core import FrozenDict
from flax.traverse_util import flatten_dict, unflatten_dict

from fedkd.checks import blame
from fedkd.checks.kinds import THREEFRY
from fedkd.errors import ConfigError
from fedkd.models import nnx_state
from fedkd.models.nnx_instance import Instance, attributes, reseed

COLLECTIONS = {'params': nnx.Param, 'batch_stats': nnx.BatchStat}
PARTS = ('features', 'head')


class FromNNX(nn.Module):
  """An NNX module as a linen module: calls `nnx_method(module, x)` of the module with the variables of the scope.

  `nnx.Param` are 'params' and `nnx.BatchStat` are 'batch_stats', under the names of their attributes. Streams of random
  numbers start afresh in each pass: at initialisation from the key of the weights, in training from that of dropout.
  """

  make: Callable  # rngs -> module: an NNX class, a function, or an `Instance`
  args: tuple = ()
  kwargs: Mapping[str, Any] = FrozenDict()
  nnx_class: type = dataclasses.field(default=nnx.Module, compare=False, repr=False)
  parts: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)  # which of `PARTS` the module has
  values: Mapping[str, Any] = dataclasses.field(default=FrozenDict(), compare=False, repr=False)  # for a name

  @nn.compact
  def __call__(self, x, nnx_method):
    is_new = not self.variables
    stream = 'params' if is_new else 'dropout'
    key = self.make_rng(stream) if self.has_rng(stream) else jax.random.key(0, impl=THREEFRY)
    module = made(self.make, self.args, self.kwargs, key)
    if is_new:
      self._keep(module)
    else:
      load(module, self.variables)
      reseed(module, nnx.Rngs(jax.random.fold_in(key, 1)))
    output = nnx_method(module, x)
    self._keep(module)
    return output

  def _keep(self, module) -> None:
    for collection, tree in variables_of(module).items():
      if self.is_mutable_collection(collection):
        for name, held in tree.items():
          self.put_variable(collection, name, held)

  def __getattr__(self, name):
    if name in PARTS and name in self.parts:
      return getattr(self.nnx_class, name, Callable)
    return super().__getattr__(name)


def is_maker(make: Any) -> bool:
  """Whether a class or function makes an NNX module, as its bases or its argument `rngs` say."""
  is_class = isinstance(make, type)
  return (
    issubclass(make, nnx.Module) if is_class else inspect.isfunction(make) and 'rngs' in signature_of(make).parameters
  )


def as_linen(model: Any, field: str) -> Any:
  """An NNX module, class or function of `rngs` as a linen module; anything else as it is.

  Args:
    model: an instance brings its own weights; a class, `functools.partial` of one or a function rngs -> module is
      initialised from the key of a run, as linen modules are.
    field: the argument that names it, for the message.

  Raises:
    ConfigError: for a module that cannot be made from `rngs` alone, or has state that a round cannot carry.
  """
  if isinstance(model, nnx.Module):
    nnx_state.check(field, model)
    return _wrapped(field, Instance(model, field), (), {})
  inner = model.func if isinstance(model, functools.partial) else model
  is_class = isinstance(inner, type)
  if not (issubclass(inner, nnx.Module) if is_class else inspect.isroutine(inner)):
    return model
  args, kwargs = (model.args, model.keywords) if inner is not model else ((), {})
  return _wrapped(field, inner, args, {name: value for name, value in kwargs.items() if name != 'rngs'})


def _wrapped(field, make, args, kwargs) -> FromNNX:
  seen = []
  _check_takes_rngs(field, make, args, kwargs)

  def drawn(key):
    with blame.guard(field, make):
      module = made(make, args, kwargs, key)
    if not isinstance(module, nnx.Module):
      raise ConfigError(
        f'{field} is {blame.named(make)}, which returns a {type(module).__name__}; let it return an nnx.Module'
      )
    nnx_state.check(field, module)
    parts = tuple(part for part in PARTS if callable(getattr(module, part, None)))
    seen.append((type(module), parts, FrozenDict({**attributes(module), **_given(make, args, kwargs)})))
    return nnx_state.arrays(module)

  traced, arrays = jax.make_jaxpr(drawn, return_shape=True)(jax.random.key(0, impl=THREEFRY))
  nnx_state.check_constant(field, seen[0][0], traced.jaxpr, arrays)
  return FromNNX(make, tuple(args), FrozenDict(kwargs), *seen[0])


def _given(make, args, kwargs):
  if isinstance(make, Instance):
    return {}
  return signature_of(make).bind_partial(*args, **kwargs).arguments


def made(make: Callable, args: tuple, kwargs: Mapping[str, Any], key: jax.Array) -> Any:
  """The module of a class or function, its random numbers from `key`."""
  rngs = nnx.Rngs(key)
  if isinstance(make, Instance):
    return make(rngs)
  return make(*args, **{**kwargs, _name_of_rngs(make, args, kwargs): rngs})


def _name_of_rngs(make, args, kwargs) -> str | None:
  """The argument for `rngs`: of that name, or the only one that is not given."""
  signature = signature_of(make)
  if 'rngs' in signature.parameters:
    return 'rngs'
  given = signature.bind_partial(*args, **kwargs).arguments
  free = [p.name for p in signature.parameters.values() if p.default is p.empty and p.name not in given]
  return free[0] if len(free) == 1 and not inspect.isclass(make) else None


def signature_of(make: Callable, eval_str: bool = False) -> inspect.Signature:
  """What a function or an NNX class takes; the metaclass of the latter hides it."""
  if not (isinstance(make, type) and issubclass(make, nnx.Module)):
    return inspect.signature(make, eval_str=eval_str)
  signature = inspect.signature(make.__init__, eval_str=eval_str)
  return signature.replace(parameters=list(signature.parameters.values())[1:])


def _check_takes_rngs(field, make, args, kwargs):
  if isinstance(make, Instance):
    return
  try:
    name = _name_of_rngs(make, args, kwargs)
    if name is None:
      raise TypeError('it takes no rngs')
    signature_of(make).bind(*args, **{**kwargs, name: None})
  except (TypeError, ValueError) as error:
    raise ConfigError(
      f'{field} is {blame.named(make)}, which cannot be called with rngs alone ({error}), and its weights have to '
      f'follow from them; give functools.partial({make.__name__}, ...) with the other arguments, or an instance'
    ) from error


def variables_of(module: nnx.Module) -> dict:
  """{'params', 'batch_stats'} of a module, nested by the names of its attributes; without those that are empty."""
  out = {}
  for collection, kind in COLLECTIONS.items():
    found = {tuple(map(str, path)): v.get_value() for path, v in nnx.iter_graph(module) if isinstance(v, kind)}
    if found:
      out[collection] = unflatten_dict({path: jax.tree.map(jnp.asarray, value) for path, value in found.items()})
  return out


def load(module: nnx.Module, variables: Mapping[str, Any]) -> None:
  """Sets the variables of a module; those that are not given stay."""
  for collection, kind in COLLECTIONS.items():
    for path, variable in list(nnx.iter_graph(module)):
      held = functools.reduce(_inner, map(str, path), variables.get(collection)) if isinstance(variable, kind) else None
      if held is not None:
        variable.set_value(held)


def _inner(tree, name):
  return None if tree is None else tree.get(name)


def instances(model: nn.Module) -> tuple[Instance, ...]:
  """The NNX instances of the clients of a group, by its model; () for other modules."""
  net = model
  while not isinstance(net, FromNNX):
    if not hasattr(net, 'net'):
      return ()
    net = net.net
  return net.make.of_clients if isinstance(net.make, Instance) else ()


def with_instance(net: nn.Module, instance: Instance) -> nn.Module:
  """A model around an NNX instance, with another in its place."""
  return net.clone(make=instance) if isinstance(net, FromNNX) else net.clone(net=with_instance(net.net, instance))


def together(models: Sequence[nn.Module]) -> nn.Module:
  """The model of a group from those of its clients, which are equal: the first, with the instances of all."""
  given = [one for model in models for one in instances(model)]
  return with_instance(models[0], given[0].among(given)) if given else models[0]


def reached(model: nn.Module, x: jax.ShapeDtypeStruct, method: str | None) -> dict[str, int]:
  """{path: axes} of the parameters that a method of a model around an NNX module uses, in the order in which it uses
  them; from shapes alone. All of them exist, whichever method is called first."""
  args = () if method else (False,)
  variables = jax.eval_shape(lambda x: model.init(jax.random.key(0), x, *args, method=method), x)
  params = flatten_dict(variables['params'], sep='/')
  other = {name: tree for name, tree in variables.items() if name != 'params'}

  def forward(leaves, other, x):
    params = unflatten_dict(dict(zip(paths, leaves, strict=True)), sep='/')
    return model.apply({'params': params, **other}, x, *args, method=method)

  paths = list(params)
  traced = jax.make_jaxpr(forward)(list(params.values()), other, x).jaxpr
  names = dict(zip(traced.invars, paths, strict=False))  # those of the parameters come first
  used = [v for equation in traced.eqns for v in equation.invars if not hasattr(v, 'val')]
  return {names[v]: params[names[v]].ndim for v in used if v in names}
