"""What a config names: methods, plans, optimizers, schedules, codecs, partitions, models and functions on data.

`name` chooses the factory, the other fields are its arguments. Names are looked up in the `__all__` of a module, and
'module:function' reaches everything else on the Python path.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

import flax.linen as nn
import optax
from ml_collections import ConfigDict, config_dict

from fedkd import aggregate, codecs, losses, methods, models, schedules
from fedkd import plan as plans
from fedkd.checks import blame, kinds, ranges
from fedkd.checks.ranges import Fraction, Range, Share, Weight
from fedkd.config.lookup import (
  called_with,
  check_call,
  functions,
  parameters_of,
  resolve,
  takes_function,
  takes_model,
  takes_optimizer,
  type_of,
)
from fedkd.config.trees import freeze, to_json
from fedkd.data import transforms
from fedkd.data.splits import flower, personal_splits, skews, split, stored
from fedkd.data.splits import partition as partitions
from fedkd.errors import ConfigError, check_known
from fedkd.models.from_nnx import as_linen
from fedkd.models.nnx_makers import is_maker
from fedkd.types import Method

OPTAX = (
  *('adabelief', 'adadelta', 'adafactor', 'adagrad', 'adam', 'adamax', 'adamaxw', 'adamw', 'adan', 'amsgrad'),
  *('fromage', 'lamb', 'lars', 'lion', 'noisy_sgd', 'novograd', 'optimistic_adam', 'optimistic_gradient_descent'),
  *('radam', 'rmsprop', 'rprop', 'sgd', 'sign_sgd', 'sm3', 'yogi'),
)
OPTAX_SCHEDULES = (
  *('cosine_decay_schedule', 'cosine_onecycle_schedule', 'exponential_decay', 'linear_onecycle_schedule'),
  *('linear_schedule', 'polynomial_schedule', 'warmup_constant_schedule', 'warmup_cosine_decay_schedule'),
  'warmup_exponential_decay_schedule',
)
OPTIMIZERS = {name: getattr(optax, name) for name in OPTAX if hasattr(optax, name)}

CODECS = {name: getattr(codecs, name) for name in codecs.CODECS}


class Kind(NamedTuple):
  """What one field of a config chooses by name.

  Attributes:
    field: of the config.
    choices: by plain name.
    makes: what they return.
    passed: the arguments that the runner passes by position; those of a method have these names.
    offered: those that it passes by name to whom they mean something.
    needs: parameters that a factory must have.
    key: of a block, where the name is.
    path: what else a name may be.
  """

  field: str
  choices: dict[str, Callable]
  makes: Any = object
  passed: tuple[str, ...] = ()
  offered: tuple[str, ...] = ()
  needs: tuple[str, ...] = ()
  key: str = 'name'
  path: str = 'module:function'


PARTITIONS = {
  name: f for module in (partitions, skews, personal_splits, stored, flower) for name, f in functions(module).items()
}
SHARES = ('validation', 'public_share', 'test_share', 'aligned')
KINDS = {
  kind.field: kind
  for kind in (
    Kind('method', functions(methods), Method, ('tx',)),
    Kind('plan', functions(plans), Callable, needs=('seed',)),
    Kind('optimizer', OPTIMIZERS, optax.GradientTransformation, needs=('learning_rate',)),
    Kind('schedule', functions(schedules) | {name: getattr(optax, name) for name in OPTAX_SCHEDULES}, Callable),
    Kind('codec_up', CODECS, codecs.Codec),
    Kind('codec_down', CODECS, codecs.Codec),
    Kind('data.partition', PARTITIONS, object, ('labels', 'clients', 'seed'), ('origin', 'test_labels')),
    Kind('data.protocol', functions(split), split.Split, ('source', 'parts', 'seed', *SHARES)),
    Kind('data.normalise', functions(transforms), object, ('images',), ('name',)),
    Kind('model', functions(models), nn.Module, (), ('classes', 'lowering'), key='model', path='module:Class'),
  )
}
# Those whose fields are in the config, as blocks.
BLOCKS = ('method', 'plan', 'optimizer', 'schedule', 'codec_up', 'codec_down', 'data.partition')
SHOWN = 5  # other choices that have a field
FINITE = Annotated[float, Range()]
# Of arguments whose own annotation has no range: optax's, and other people's.
RANGES: dict[str, dict[str, Any]] = {
  'optimizer': {
    **{name: Weight for name in ('learning_rate', 'eps', 'eps_root', 'weight_decay')},
    **{name: Share for name in ('b1', 'b2', 'b3', 'momentum')},
    'decay': Fraction,
  }
}


def factory(kind: Kind, name: Any, field: str = '') -> tuple[Callable, dict[str, inspect.Parameter]]:
  """The factory that a block names, and those of its parameters that are fields of the block.

  Raises:
    ConfigError: for an unknown name, or a factory that does not accept what the runner passes.
  """
  field = f'{field or kind.field}.{kind.key}' if kind.key == 'model' or kind.field in BLOCKS else kind.field
  function = resolve(name, kind.choices, field, kind.path)
  if not callable(function):
    raise ConfigError(
      f'{field}={name!r} is not a function or class; give one of {", ".join(kind.choices)}, or {kind.path}'
    )
  parameters = parameters_of(function)
  first = tuple(parameters)[: len(kind.passed)]
  if kind.makes is Method and first != kind.passed:
    raise ConfigError(f'{field}={to_json(name)!r}: let its first parameter be {kind.passed[0]}, the optimizer')
  if lacking := [needed for needed in kind.needs if needed not in parameters]:
    raise ConfigError(f'{field}={to_json(name)!r} has no parameter {lacking[0]!r}; give another')
  apart = {*first, *kind.offered, *(('parent', 'name', 'rngs') if kind.key == 'model' else ())}
  return function, {key: p for key, p in parameters.items() if key not in apart}


def allowed(kind: Kind, function: Callable, key: str, value: Any) -> Any:
  """The annotation, with its range, that a value of an argument of a factory has to fit."""
  own = ranges.annotations_of(function).get(key, Any)
  if ranges.is_bounded(own):
    return own
  elsewhere = kind.field == 'schedule' or (function.__module__ or '').startswith('optax')
  number = isinstance(value, int | float | str | bytes) and not isinstance(value, bool)
  return RANGES.get(kind.field, {}).get(key) or (FINITE if elsewhere and number and own is not str else own)


def method(name: Any, **values: Any) -> ConfigDict:
  """The config block of a method: its name and every hyperparameter, with defaults; others likewise.

  Raises:
    ConfigError: for an unknown name, a value that the factory does not accept, or one that is missing.
  """
  return block(KINDS['method'], name, values)


def plan(name: Any, **values: Any) -> ConfigDict:
  """The config block of a plan, as `method`."""
  return block(KINDS['plan'], name, values)


def optimizer(name: Any, **values: Any) -> ConfigDict:
  """The config block of an optimizer, as `method`: one of optax by plain name, ours as 'fedkd.optimizers:NAME'."""
  return block(KINDS['optimizer'], name, values)


def schedule(name: Any, **values: Any) -> ConfigDict:
  """The config block of a schedule, as `method`: one of `fedkd.schedules` or of optax by plain name."""
  return block(KINDS['schedule'], name, values)


def codec_up(name: Any, **values: Any) -> ConfigDict:
  """The config block of the codec of uploads, as `method`: one of `fedkd.codecs` by plain name."""
  return block(KINDS['codec_up'], name, values)


def codec_down(name: Any, **values: Any) -> ConfigDict:
  """The config block of the codec of downloads, as `codec_up`."""
  return block(KINDS['codec_down'], name, values)


def partition(name: Any, **values: Any) -> ConfigDict:
  """The config block of a partition, as `method`: one of `fedkd.data.splits` by plain name."""
  return block(KINDS['data.partition'], name, values)


def block(kind: Kind, name: Any, values: dict, missing: bool = False) -> ConfigDict:
  """A config block, as `method`. `missing`: whether a value without default may be given later."""
  _, parameters = factory(kind, name)
  check_fields(kind, values, parameters, f'{kind.field} {_own_name(name)}')
  out = ConfigDict({'name': name}, convert_dict=False)
  for key, parameter in parameters.items():
    value = values.get(key, parameter.default)
    if value is inspect.Parameter.empty and not missing:
      raise ConfigError(f'{kind.field} {_own_name(name)} needs a value for {key!r}')
    if takes_function(parameter) and not isinstance(value, int | float):
      named = value.__name__ if key not in values and callable(value) else value
      value = config_dict.FieldReference(named, field_type=object)
    elif value is None or value is inspect.Parameter.empty:
      value = config_dict.placeholder(type_of(parameter))
    out[key] = value
  return out


def build(kind: str, values: Any, *passed: Any, field: str = '', **offered: Any) -> Any:
  """What the function returns that a config names: the only place where one is called.

  Args:
    kind: of `KINDS`, such as 'method'.
    values: the block, or a dict like it.
    *passed: what the runner passes by position: the optimizer of a method.
    field: where the block is, if not in the field of that name.
    **offered: what it passes by name to those that take it.

  Raises:
    ConfigError: for an unknown name or field, a value that is missing or that the factory refuses.
  """
  of, field = KINDS[kind], field or kind
  if not isinstance(values, dict | ConfigDict) or of.key not in values:
    raise ConfigError(
      f'{field}={kinds.short(to_json(values))} has no {of.key}; it must be a block such as '
      f'{{{of.key!r}: {next(iter(of.choices))!r}}}, with one of {", ".join(of.choices)}'
    )
  values = dict(values)
  name = values.pop(of.key)
  make, parameters = factory(of, name, field)
  what = f'{field}, a {_own_name(name)},' if of.makes is nn.Module else f'{field} {_own_name(name)}'
  check_fields(of, values, parameters, what)
  for key, parameter in parameters.items():
    if parameter.default is inspect.Parameter.empty and values.get(key) is None:
      raise ConfigError(f'{what} needs a value for {key!r}; set {field}.{key}')
    if key in values:
      values[key] = _argument(of, field, key, values[key], parameter)
      if values[key] is not None or parameter.default is not None:
        ranges.check(f'{field}.{key}', values[key], allowed(of, make, key, values[key]))
  values |= _taken(of, make, offered, f'{field}.{of.key}={to_json(name)!r}')
  if of.makes is nn.Module and is_maker(make):
    return as_linen(functools.partial(make, **values), f'{field}.{of.key}')
  if of.makes is not Method:
    check_call(f'{field}={to_json(name)!r}', make, of.passed[: len(passed)], values)
  with blame.guard(field, make, '' if of.field.startswith('data.') else f'{what} cannot be built'):
    made = make(*passed, **values)
  if not isinstance(made, of.makes):
    wanted = 'a function' if of.makes is Callable else f'a {of.makes.__name__}'
    raise ConfigError(
      f'{field} {blame.name_of(make)}{blame.place(make)} returned {type(made).__name__}; let it return {wanted}'
    )
  return made


def check_fields(kind: Kind, names: Iterable[str], known: Iterable[str], what: str) -> None:
  """Checks that every name is one of the fields `known` of a block; `what`: whose they are.

  Raises:
    ConfigError: for another name; where other choices of the kind have it, with theirs.
  """
  known = list(known)
  for name in (name for name in names if name not in known):
    others = [choice for choice, make in kind.choices.items() if name in parameters_of(make)]
    some = ', '.join(others[:SHOWN]) + ', ...' * (len(others) > SHOWN)
    check_known([name], known, what, more=f'; another {kind.field} has it: {some}' if others else '')


def _taken(kind, make, offered, what) -> dict:
  """What of that which the runner offers a function takes; a model must take all of it."""
  taken = {key: value for key, value in offered.items() if key in parameters_of(make)}
  lacking = [key for key in offered if key not in taken and not (key == 'lowering' and is_maker(make))]
  if kind.makes is nn.Module and lacking:
    raise ConfigError(f'{what} has no field {lacking[0]!r}; add it, as fedkd/models/__init__.py describes')
  return taken


def _argument(kind, field, key, value, parameter):
  """What a factory takes for the value of a field: the function that text names, the optimizer or model that a block
  names."""
  if takes_model(parameter):
    return build('model', freeze(value), field=f'{field}.{key}')
  if isinstance(value, str) and takes_function(parameter):
    found = resolve(value, _functions_for(kind, parameter), f'{field}.{key}')
    if not callable(found) and not isinstance(found, tuple):  # a tuple: a stateful rule
      raise ConfigError(f'{field}.{key}={value!r} is a {type(found).__name__}; give the path of a function')
    check_call(f'{field}.{key}={value!r}', found, called_with(parameter))
    return found
  if isinstance(value, dict | ConfigDict) and takes_optimizer(parameter):
    return build('optimizer', value, field=f'{field}.{key}')
  return value


def _functions_for(kind, parameter) -> dict[str, Callable]:
  """What plain text may name: the default's own neighbours, else for a method all rules and losses."""
  if takes_optimizer(parameter):
    return {}
  if not inspect.isfunction(parameter.default):
    return functions(aggregate) | functions(losses) if kind.makes is Method else {}
  return functions(sys.modules[parameter.default.__module__]) | {parameter.default.__name__: parameter.default}


def _own_name(name) -> str:
  return to_json(name).rpartition(':')[2]


def label(values: Any) -> str:
  """The name of a config block for tables and figures: a function's own name, without its module."""
  return _own_name(values['name'])
