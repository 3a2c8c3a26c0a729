"""Ranges of hyperparameters, declared in the signature of their factory: `batch: Positive = 50, alpha: Weight = 1.0`.

Choices of words are declared likewise: `average: Literal['uniform', 'counts'] = 'uniform'`. `checked` makes a factory
refuse other values, with the name and the range or choices; configs check the same annotations, and `--help` of a
config prints them. An array without axes is the number it holds. Traced values and functions are let through, and
arrays where no single number is asked for. Optimizers and modules are checked by their annotation, too: configs have
blocks in their place.
"""

import functools
import inspect
import math
import numbers
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, NamedTuple

import flax.linen as nn
import jax
import numpy as np
import optax

from fedkd.checks.kinds import short, what_is
from fedkd.errors import ConfigError, check_known, is_it

MOST = {int: 2**31 - 1, float: float(np.finfo(np.float32).max)}  # what the device's int32 and float32 hold


class Range(NamedTuple):
  """Numbers from `least` or above `above`, up to `most` or below `below`, which the device can hold."""

  least: float = -math.inf
  above: float = -math.inf
  most: float = math.inf
  below: float = math.inf

  def __contains__(self, value) -> bool:
    return self.least <= value <= self.most and (value > self.above or self.above == -math.inf) and value < self.below

  def __str__(self) -> str:
    words = (('at least', self.least), ('above', self.above), ('at most', self.most), ('below', self.below))
    return ' and '.join(f'{word} {bound:,}' for word, bound in words if math.isfinite(bound))


Positive = Annotated[int, Range(least=1)]
Count = Annotated[int, Range(least=0)]  # 0: none, or all, as its factory says
Weight = Annotated[float, Range(least=0)]
Scale = Annotated[float, Range(above=0)]
Share = Annotated[float, Range(least=0, below=1)]
Fraction = Annotated[float, Range(least=0, most=1)]
Ratio = Annotated[float, Range(above=0, most=1)]
Seed = Annotated[int, Range(least=0, most=2**32 - 1)]  # more would repeat: JAX's keys have 32 bits of it

Factory = typing.TypeVar('Factory', bound=Callable)


def checked(factory: Factory) -> Factory:
  """`factory`, which refuses arguments outside the ranges of its annotations, and what is no optimizer or module; where
  one of `steps` and `epochs` is given, the default of the other does not count.

  Raises:
    ConfigError: by the factory, in one sentence with the name, the value and the range or remedy.
  """
  signature = inspect.signature(factory)

  @functools.wraps(factory)
  def make(*args, **values):
    annotations = annotations_of(factory)
    given = _bound(factory, signature, args, values)
    for look in (check, check_object):  # numbers first
      for name, value in given.arguments.items():
        look(name, value, annotations.get(name, Any))
    given.arguments.update({name: _number(value) for name, value in given.arguments.items()})
    return factory(*given.args, **given.kwargs, **_turned_off(signature, given.arguments))

  return typing.cast(Factory, make)


def _bound(factory, signature, args, values) -> inspect.BoundArguments:
  """The arguments by name; what does not fit is refused with the factory's name, which Python leaves out here."""
  parameters = signature.parameters.values()
  if all(parameter.kind != parameter.VAR_KEYWORD for parameter in parameters):
    check_known(values, signature.parameters, factory.__qualname__, 'argument')
  try:
    return signature.bind(*args, **values)
  except TypeError as error:
    raise TypeError(f'{factory.__qualname__}({", ".join(signature.parameters)}): {error}') from error


def _turned_off(signature, given) -> dict[str, None]:
  """The other way to say how long local training is, which has a default that would contradict the one given."""
  for named, other in (('steps', 'epochs'), ('epochs', 'steps')):
    if {named, other} <= signature.parameters.keys() and other not in given:
      value = given.get(named)
      if value is not None and (hasattr(value, 'dtype') or value):
        return {other: None}
  return {}


@functools.cache
def annotations_of(function: Callable) -> dict[str, Any]:
  """The annotations of a function with their ranges; none where they cannot be evaluated."""
  try:
    return typing.get_type_hints(inspect.unwrap(function), include_extras=True)
  except (NameError, TypeError, SyntaxError, AttributeError):  # annotations imported for type checkers only
    return {}


def check(field: str, value: Any, annotation: Any) -> None:
  """Checks a value against the range and the kind of number, or the choices, if an annotation has them.

  Raises:
    ConfigError: in one sentence with field, value and range or choices.
  """
  if isinstance(value, jax.core.Tracer) or callable(value):  # known later only; a schedule or a rule
    return
  options = _options(annotation)
  value = _number(value)
  if isinstance(value, np.ndarray | jax.Array):
    if all(_kind(option) or option is type(None) for option in options):
      raise ConfigError(f'{field} is {what_is(value)}; it must be {describe(annotation)}')
    return
  if all(_kind(option) is None for option in options) or any(_fits(value, option) for option in options):
    return
  if len(options) == 1 and typing.get_origin(options[0]) is tuple and isinstance(value, tuple | list):
    for i, (entry, of_entry) in enumerate(_entries(value, options[0])):
      check(f'{field}[{i}]', entry, of_entry)
  words = describe(annotation)
  only_words = all(_kind(option) in (Literal, None) for option in options)
  known = [word for option in options for word in typing.get_args(option) if isinstance(word, str)]
  unknown = f'is unknown; choose {words}{is_it(value, known)}'
  remedy = unknown if only_words else f'must be {words}{_limit(value, words)}'
  raise ConfigError(f'{field}={short(value)} {remedy}')


def _number(value):
  """What an array without axes holds, as a Python object, a short float by its digits: 0.7 of np.float32(0.7), which
  is 0.699999988; everything else as it is."""
  known = isinstance(value, np.generic | np.ndarray | jax.Array) and not isinstance(value, jax.core.Tracer)
  holds = known and not value.ndim and not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
  if holds and jax.dtypes.issubdtype(value.dtype, np.floating):
    return float(str(np.asarray(value)))
  return value.item() if holds else value


def check_object(field: str, value: Any, annotation: Any) -> None:
  """Checks that a value is the optimizer or module that an annotation asks for.

  Raises:
    ConfigError: in one sentence with field, value and remedy.
  """
  options = _options(annotation)
  for kind, (fits, remedy) in OBJECTS.items():
    if kind in options and not fits(value) and not (value is None and type(None) in options):
      raise ConfigError(f'{field} is {what_is(value)}; give {remedy}')


def _is_optimizer(value) -> bool:
  """By its two functions: `optax.MultiSteps` has them and is no GradientTransformation."""
  return all(callable(getattr(value, name, None)) for name in ('init', 'update')) and not isinstance(value, type)


# What is no number: (whether a value is one, what to give).
OBJECTS = {
  optax.GradientTransformation: (_is_optimizer, 'an optax optimizer, such as optax.adam(1e-3)'),
  nn.Module: (lambda value: isinstance(value, nn.Module), 'a Flax module, such as fedkd.models.MLP((32,))'),
}


def describe(annotation: Any) -> str:
  """The range of an annotation in words, such as 'a whole number of at least 1, or None', or its choices, such as
  'one of mean, median'; '' without one."""
  texts = [_describe_one(option) for option in _options(annotation) if _kind(option)]
  if not texts:
    return ''
  return ', or '.join([*texts, *(['None'] if type(None) in _options(annotation) else [])])


def _describe_one(option) -> str:
  kind, allowed = _kind(option), _range(option)
  if kind is Literal:
    return f'one of {", ".join(map(str, typing.get_args(option)))}'
  if kind is bool:
    return 'True or False'
  if kind is str:
    return 'text'
  if kind is tuple:
    inner = dict.fromkeys(filter(None, (describe(entry) for entry in typing.get_args(option) if entry is not ...)))
    size = '' if ... in typing.get_args(option) else f' of {len(typing.get_args(option))}'
    return f'a tuple{size}' + (f', each {" or ".join(inner)}' if inner else '')
  number, words = {int: 'a whole number', float: 'a number'}[kind], str(allowed or '')
  return f'{number} {"" if words.startswith(("above", "below")) else "of "}{words}' if words else number


def _options(annotation) -> tuple:
  union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
  return typing.get_args(annotation) if union else (annotation,)


def is_bounded(annotation: Any) -> bool:
  """Whether an annotation, or an entry of it, has a range or choices."""
  has = lambda option: _range(option) or _kind(option) is Literal
  return any(has(option) or any(map(is_bounded, typing.get_args(plain(option)))) for option in _options(annotation))


def plain(annotation: Any) -> Any:
  """An annotation without its ranges."""
  if typing.get_origin(annotation) is Annotated:
    return typing.get_args(annotation)[0]
  options = _options(annotation)
  return typing.Union[tuple(map(plain, options))] if len(options) > 1 else annotation  # noqa: UP007


def _range(option) -> Range | None:
  extra: Iterable = typing.get_args(option)[1:] if typing.get_origin(option) is Annotated else ()
  return next((entry for entry in extra if isinstance(entry, Range)), None)


def _kind(option) -> Any:
  """int, float, bool, str, tuple or Literal; None for what is not checked."""
  inner = plain(option)
  if typing.get_origin(inner) in (tuple, Literal):
    return typing.get_origin(inner)
  return inner if inner in (bool, int, float, str) else None


def _fits(value, option) -> bool:
  kind = _kind(option)
  if option is type(None) or value is None:
    return option is type(None) and value is None
  if kind is None:
    return False
  if kind is Literal:
    return isinstance(value, str) and value in typing.get_args(option)
  if kind is tuple:
    return isinstance(value, tuple | list) and _length_fits(value, option) and _entries_fit(value, option)
  if kind in (bool, str) or isinstance(value, bool):
    return kind in (bool, str) and isinstance(value, kind)
  is_number: bool = isinstance(value, numbers.Integral if kind is int else numbers.Real)
  allowed = _range(option)
  if not is_number or allowed is None:
    return is_number
  most = MOST[kind] if allowed.most == math.inf else allowed.most
  return -MOST[float] <= value <= most and value in allowed


def _length_fits(value, option) -> bool:
  return ... in typing.get_args(option) or len(value) == len(typing.get_args(option))


def _entries_fit(value, option) -> bool:
  fits = lambda entry, of: _kind(plain(of)) is None or any(_fits(entry, one) for one in _options(of))
  return all(fits(entry, of) for entry, of in _entries(value, option))


def _entries(value, option):
  inner = typing.get_args(option)
  return zip(value, [inner[0]] * len(value) if ... in inner else inner, strict=False)


def _limit(value, words) -> str:
  is_number: bool = isinstance(value, numbers.Real)
  if not is_number or 'at most' in words or abs(value) <= MOST[int]:
    return ''
  return ', of at most 32 bits' if math.isfinite(value) else ', and finite'
