"""Classes and functions that make an NNX module from its random numbers."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
from flax import nnx

from fedkd.checks import blame
from fedkd.errors import in_a_sentence


def is_maker(make: Any) -> bool:
  """Whether a class or function makes an NNX module, as its bases or its argument `rngs` say."""
  if isinstance(make, type):
    return issubclass(make, nnx.Module)
  return inspect.isfunction(make) and 'rngs' in signature_of(make).parameters


def signature_of(make: Callable, eval_str: bool = False) -> inspect.Signature:
  """What a function or class takes; of an NNX class, whose metaclass hides it, too."""
  if not (isinstance(make, type) and issubclass(make, nnx.Module)):
    return inspect.signature(make, eval_str=eval_str)
  signature = inspect.signature(make.__init__, eval_str=eval_str)
  return signature.replace(parameters=list(signature.parameters.values())[1:])


def given(make: Callable, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
  """{argument: value} of those that are given."""
  return dict(signature_of(make).bind_partial(*args, **kwargs).arguments)


def called(make: Callable, args: tuple, kwargs: Mapping[str, Any], key: jax.Array) -> Any:
  """The module that a class or function makes, its random numbers from `key`."""
  return make(*args, **{**kwargs, str(_name_of_rngs(make, args, kwargs)): nnx.Rngs(key)})


def _name_of_rngs(make, args, kwargs) -> str | None:
  """The argument for random numbers: `rngs`, or the only one of a function that is not given."""
  parameters = signature_of(make).parameters
  if 'rngs' in parameters:
    return 'rngs'
  known = given(make, args, kwargs)
  free = [p.name for p in parameters.values() if p.default is p.empty and p.name not in known]
  return free[0] if len(free) == 1 and not isinstance(make, type) else None


def check(field: str, make: Callable, args: tuple, kwargs: Mapping[str, Any]) -> None:
  """Checks that a class or function can be called with random numbers alone.

  Raises:
    ConfigError: with what it lacks, or that it takes none.
  """
  unfit = lambda error: (
    f'{field} is {blame.named(make)}, which cannot be called with rngs alone: {error}; give functools.partial of it '
    'with its other arguments, let it draw its weights from an argument rngs, or give an instance'
  )
  with in_a_sentence(unfit):
    name = _name_of_rngs(make, args, kwargs)
    if name is None:
      raise TypeError('it has no argument rngs')
    signature_of(make).bind(*args, **{**kwargs, name: None})
