"""What a simulation tells of a state: accuracies, logits, classes and models, as pure functions of it."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedkd import evaluation
from fedkd.checks import arguments, kinds
from fedkd.evaluation import model_of, predict_by, predicted_class
from fedkd.federation import Federation, on_device
from fedkd.states import calibrated
from fedkd.types import Method, clients


def readout(method: Method, federation: Federation, own: Callable[[Any], Any]) -> dict[str, Callable]:
  """The functions of `Simulation` that only read a state, by name.

  Args:
    method, federation: as `simulation` takes them.
    own: state -> the same state, if it is one of the simulation; otherwise it raises.
  """
  groups, arrays = federation.groups, federation[1:]
  all_clients = np.arange(clients(groups))

  def ready(arrays, state):
    return calibrated(method, Federation(groups, *arrays), state.federated, range(len(groups)))

  @functools.partial(jax.jit, static_argnums=0)
  def correct(predict, arrays, state, x, y):
    return evaluation.correct_of_clients(method, groups, all_clients, 0, ready(arrays, state), x, y, predict)

  @functools.partial(jax.jit, static_argnums=0)
  def outputs(predict, arrays, state, x):
    return evaluation.logits_of_clients(method, groups, all_clients, ready(arrays, state), x, predict)

  def accuracy(state, x, y, inference='', domains=None):
    tested = on_device(arguments.tested(x, y, federation.pool.example, groups[0].model.classes))
    is_correct = correct(predict_by(method, inference), arrays, own(state), *tested)
    domains = arguments.domain_of_each(domains, len(y))
    return jnp.mean(is_correct, 1) if domains is None else _per_domain(is_correct, domains)

  def logits(state, x, inference=''):
    x = on_device(arguments.like_those('x', x, federation.pool.example))
    return outputs(predict_by(method, inference), arrays, own(state), x)

  def validation_accuracy(state, inference=''):
    validation = federation.validation
    if validation is None:
      raise ValueError('the federation has no validation rows; give fedkd.federation some, as validation=...')
    x, y = federation.pool.example[validation.index], federation.pool.label[validation.index]
    is_correct = correct(predict_by(method, inference), arrays, own(state), x, y)
    if federation.domain is None:
      return jnp.mean(is_correct, 1)
    return _per_domain(is_correct, federation.domain[validation.index], int(np.max(federation.domain)) + 1)

  def model(state, client):
    kinds.check_number('client', client, range(len(all_clients)), 'the federation', 'clients')
    return model_of(method, groups, ready(arrays, own(state)), client)

  def models(state):
    state = ready(arrays, own(state))
    return tuple(model_of(method, groups, state, int(client)) for client in all_clients)

  return {
    'accuracy': accuracy,
    'logits': logits,
    'predict': lambda state, x, inference='': predicted_class(logits(state, x, inference)),
    'validation_accuracy': validation_accuracy,
    'model': model,
    'models': models,
  }


def _per_domain(is_correct, domain, count=None):
  """Means float32[clients, domains] of float32[clients, T]; 0 of 0 examples are undefined: NaN."""
  total = functools.partial(jax.ops.segment_sum, segment_ids=domain, num_segments=count or int(np.max(domain)) + 1)
  return (total(is_correct.T) / total(jnp.ones((len(domain), 1)))).T
