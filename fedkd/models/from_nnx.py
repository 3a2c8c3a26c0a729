"""Flax NNX modules under the contract of linen modules: a pass merges the variables into the module, and keeps those
that it has changed."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
from flax import nnx
from flax.core import FrozenDict

from fedkd.checks import blame
from fedkd.checks.kinds import THREEFRY
from fedkd.errors import ConfigError
from fedkd.models import nnx_makers, nnx_state
from fedkd.models.nnx_instance import Instance

PARTS = ('features', 'head')


class FromNNX(nn.Module):
  """An NNX module as a linen module: returns `nnx_method(module, x)` of the module with the variables of the scope.

  `nnx.Param` are 'params' and `nnx.BatchStat` are 'batch_stats', under the names of their attributes. Streams of random
  numbers start afresh in each pass: at initialisation from the key of the weights, in training from that of dropout.
  """

  make: Callable  # rngs -> module: an NNX class, a function, or an `Instance`
  args: tuple = ()
  kwargs: Mapping[str, Any] = FrozenDict()
  nnx_class: type = dataclasses.field(default=nnx.Module, compare=False, repr=False)
  parts: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)  # which of `PARTS` the module has
  values: Mapping[str, Any] = dataclasses.field(default=FrozenDict(), compare=False, repr=False)  # for a group's name

  @nn.compact
  def __call__(self, x, nnx_method):
    is_new = not self.variables
    stream = 'params' if is_new else 'dropout'
    key = self.make_rng(stream) if self.has_rng(stream) else jax.random.key(0, impl=THREEFRY)
    module = made(self.make, self.args, self.kwargs, key)
    if is_new:
      self._keep(module)
    else:
      nnx_state.merge(module, self.variables)
      nnx_state.reseed(module, nnx.Rngs(jax.random.fold_in(key, 1)))
    alone = self.is_mutable_collection('batch') and not self.is_initializing()
    if alone:  # statistics of this very batch, as `layers.BatchNorm` leaves them
      module.set_attributes(nnx.BatchNorm, momentum=0.0, raise_if_not_found=False)
    output = nnx_method(module, x)
    self._keep(module)
    if alone:
      for name, held in nnx_state.variables(module).get('batch_stats', {}).items():
        self.put_variable('batch', name, held)
    return output

  def _keep(self, module) -> None:
    for collection, tree in nnx_state.variables(module).items():
      if self.is_mutable_collection(collection):
        for name, held in tree.items():
          self.put_variable(collection, name, held)

  def __getattr__(self, name):
    if name in PARTS and name in self.parts:
      return getattr(self.nnx_class, name, nnx.Module.__call__)
    return super().__getattr__(name)


def made(make: Callable, args: tuple, kwargs: Mapping[str, Any], key: jax.Array) -> Any:
  """The module of an instance, a class or a function; what is random in it follows from `key`."""
  return make() if isinstance(make, Instance) else nnx_makers.called(make, args, kwargs, key)


def as_linen(model: Any, field: str) -> Any:
  """An NNX module, or what makes one, as a linen module; anything else as it is.

  Args:
    model: an instance brings its own weights; a class, a `functools.partial` of one or a function rngs -> module is
      initialised from the key of a run, as linen modules are.
    field: the argument that names it, for the message.

  Raises:
    ConfigError: for a module that cannot be made from `rngs` alone, or has state that a round cannot carry.
  """
  if isinstance(model, nnx.Module):
    nnx_state.check(field, model)
    return _wrapped(field, Instance(model, field), (), {})
  make, args, kwargs = model, (), {}
  if isinstance(model, functools.partial):
    make, args, kwargs = model.func, model.args, model.keywords
  if not (nnx_makers.is_maker(make) if isinstance(make, type) else inspect.isroutine(make)):
    return model
  kwargs = {name: value for name, value in kwargs.items() if name != 'rngs'}
  nnx_makers.check(field, make, args, kwargs)
  return _wrapped(field, make, args, kwargs)


def _wrapped(field, make, args, kwargs) -> FromNNX:
  """From shapes alone: the module is made in a trace, which shows what its arrays depend on."""
  seen = []

  def plain_arrays(key):
    with blame.guard(field, make):
      module = made(make, args, kwargs, key)
    if not isinstance(module, nnx.Module):
      returned = type(module).__name__
      raise ConfigError(f'{field} is {blame.named(make)}, which returns a {returned}; let it return an nnx.Module')
    nnx_state.check(field, module)
    own = {} if isinstance(make, Instance) else nnx_makers.given(make, args, kwargs)
    parts = tuple(part for part in PARTS if callable(getattr(module, part, None)))
    seen.append((type(module), parts, FrozenDict({**nnx_state.attributes(module), **own})))
    return nnx_state.plain_arrays(module)

  traced, shapes = jax.make_jaxpr(plain_arrays, return_shape=True)(jax.random.key(0, impl=THREEFRY))
  nnx_state.check_constant(f'{field}: {seen[0][0].__name__}', traced.jaxpr, list(shapes))
  return FromNNX(make, tuple(args), FrozenDict(kwargs), *seen[0])


def instances(model: nn.Module) -> tuple[Instance, ...]:
  """The NNX instances of the clients of a group, by its model; () for other modules."""
  net = model
  while not isinstance(net, FromNNX):
    if not isinstance(getattr(net, 'net', None), nn.Module):
      return ()
    net = net.net
  return net.make.of_clients if isinstance(net.make, Instance) else ()


def with_instance(model: nn.Module, instance: Instance) -> nn.Module:
  """A model around an NNX instance, with another in its place."""
  return (
    model.clone(make=instance) if isinstance(model, FromNNX) else model.clone(net=with_instance(model.net, instance))
  )


def together(models: Sequence[nn.Module]) -> nn.Module:
  """The model of a group from those of its clients, which are equal: the first, with the instances of all."""
  given = [one for model in models for one in instances(model)]
  return with_instance(models[0], given[0].among(given)) if given else models[0]
