"""The flag for training of somebody's module, under whatever name and in whatever place it has one."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import flax.linen as nn
import flax.nnx as nnx
import jax

from fedkd.checks.kinds import THREEFRY

# Its names, and the value of each in training.
NAMES = dict.fromkeys(('train', 'training', 'is_training', 'is_train', 'train_mode'), True)
NAMES |= dict.fromkeys(('deterministic', 'use_running_average', 'inference', 'inference_mode', 'is_inference'), False)
NAMES |= dict.fromkeys(('eval', 'evaluate', 'evaluation', 'eval_mode', 'is_eval', 'test', 'testing', 'is_test'), False)
ATTRIBUTES = ('training', 'is_training')  # of NNX modules, beside those that Flax sets


def run(net: nn.Module, method: str, train: bool, x: Any, through: Sequence[str] = ()) -> Any:
  """What a method of a bound module returns for `x`, with all its flags set; `through`: those in its **kwargs."""
  if isinstance(net, nnx.bridge.ToLinen):
    object.__setattr__(net, 'nnx_class', _with_streams(net.nnx_class))
  if is_nnx(net):
    return net(x, nnx_method=lambda module, x: _run_nnx(module, method, train, x, through))
  _set_fields(net, train)
  return getattr(net, method)(x, **arguments(getattr(type(net), method), train, through))


def _with_streams(make: Callable) -> Callable:
  """The maker of an NNX module, whose layers may ask for any stream of random numbers: at initialisation there is only
  that of the weights, which they do not then share."""

  if hasattr(make, 'with_streams'):  # a copy of a module that has been called
    return make

  def made(*args, **values):
    rngs = values.get('rngs')
    if rngs is not None and 'default' not in rngs:
      rngs.default = nnx.RngStream(jax.random.key(0, impl=THREEFRY), tag='default')
    return make(*args, **values)

  made.with_streams = True  # type: ignore[attr-defined]
  return made


def _run_nnx(module, method, train, x, through):
  (module.train if train else module.eval)()
  module.set_attributes(**dict.fromkeys(ATTRIBUTES, train), raise_if_not_found=False)
  called = getattr(module, method)
  signed = getattr(type(module), method, None) or type(called).__call__  # or a layer of that name, self.head
  return called(x, **arguments(signed, train, through))


def is_nnx(net: Any) -> bool:
  """Whether a linen module is an NNX module, behind `from_nnx` or `flax.nnx.bridge.to_linen`."""
  return hasattr(net, 'nnx_class')


def arguments(function: Callable, train: bool, through: Sequence[str] = ()) -> dict[str, bool]:
  """The flags of a method as keyword arguments: all that its signature names, `through` its **kwargs, and an argument
  beside `x` that has to be given, whatever its name."""
  parameters = _beside_x(function)
  flags = [p.name for p in parameters if p.name in NAMES and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
  flags += [name for name in through if name not in flags and takes_any(function)]
  needed = [p.name for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
  flags = flags or needed[:1]
  return {name: train == NAMES.get(name, True) for name in flags}


def takes_any(function: Callable) -> bool:
  """Whether a method takes **kwargs."""
  return any(p.kind == p.VAR_KEYWORD for p in _beside_x(function))


def is_agreed(function: Callable) -> bool:
  """Whether a method is called rightly as `f(x, train)`, and has no other flag."""
  first = next(iter(_beside_x(function)), None)
  return first is not None and arguments(function, True) == {first.name: True}


def _beside_x(function) -> list[inspect.Parameter]:
  return list(inspect.signature(function).parameters.values())[2:]  # the first is `self`


def in_fields(net: nn.Module) -> bool:
  """Whether a module or one in its fields has a flag as a field."""
  return any(True for _ in _fields(net))


def _set_fields(net, train) -> None:
  """Sets the flags that are fields, of a bound module that has not been called: it, and the modules in its fields, are
  copies for this pass."""
  for module, name in _fields(net):
    object.__setattr__(module, name, train == NAMES[name])


def _fields(net: nn.Module, parent: Any = None) -> Iterator[tuple[nn.Module, str]]:
  """(module, name) of every flag that is a field. None is a flag where no caller can set it."""
  by_field = isinstance(parent, nn.Sequential) or not arguments(type(net).__call__, True)
  for field in dataclasses.fields(net):
    value = vars(net).get(field.name)
    if field.name in NAMES and (isinstance(value, bool) or (value is None and by_field)):
      yield net, field.name
    for module in _modules(value) if field.name != 'parent' else ():
      yield from _fields(module, net)


def _modules(value) -> Iterator[nn.Module]:
  if isinstance(value, nn.Module):
    yield value
  elif isinstance(value, Mapping | tuple | list):
    for held in value.values() if isinstance(value, Mapping) else value:
      yield from _modules(held)
