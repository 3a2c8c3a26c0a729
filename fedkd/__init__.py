"""Federated learning by knowledge distillation across clients whose models differ in architecture.

The entry points: clients from arrays, a method on them, rounds.

  import fedkd, jax, optax

  federation = fedkd.federation(x, y, parts, models)
  simulation = fedkd.simulation(fedkd.methods.fedhe(optax.adam(1e-3), steps=3, batch=32), federation)
  state = simulation.init(jax.random.key(0))
  state, report = simulation.run(state, rounds=100)
  simulation.accuracy(state, x_test, y_test)
"""

import importlib
import sys
from types import ModuleType  # `types` will be fedkd's own here
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from fedkd import aggregate, codecs, ledger, losses, methods, models, optimizers, parts, plan, schedules, servers
  from fedkd.experiment.export.reading import load_exported
  from fedkd.experiment.export.writing import export
  from fedkd.federation import Federation, federation
  from fedkd.history import History, restore
  from fedkd.report import report
  from fedkd.round import Report
  from fedkd.simulation import Simulation, SimulationState, simulation
  from fedkd.sweep.study import sweep
  from fedkd.training import train
  from fedkd.types import Client, Data, Download, Group, Masked, Method, Server

__version__ = '0.1.0'

__all__ = [
  'Client',
  'Data',
  'Download',
  'Federation',
  'Group',
  'History',
  'Masked',
  'Method',
  'Report',
  'Server',
  'Simulation',
  'SimulationState',
  'aggregate',
  'codecs',
  'export',
  'federation',
  'ledger',
  'load_exported',
  'losses',
  'methods',
  'models',
  'optimizers',
  'parts',
  'plan',
  'report',
  'restore',
  'schedules',
  'servers',
  'simulation',
  'sweep',
  'train',
]

# What is no module of its own name; the other names of `__all__` are modules. A name is imported when it is first used,
# so that the command line says its help, or refuses a name, without JAX.
_WHERE = {
  'experiment.export.reading': ('load_exported',),
  'experiment.export.writing': ('export',),
  'federation': ('Federation', 'federation'),
  'history': ('History', 'restore'),
  'report': ('report',),
  'round': ('Report',),
  'simulation': ('Simulation', 'SimulationState', 'simulation'),
  'sweep': ('sweep',),
  'training': ('train',),
  'types': ('Client', 'Data', 'Download', 'Group', 'Masked', 'Method', 'Server'),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}


class _Door(ModuleType):
  """Importing the file `fedkd.simulation` would bind its name here, which is that of the function inside."""

  def __setattr__(self, name, value):
    if not (name in _MODULE_OF and isinstance(value, ModuleType)):
      super().__setattr__(name, value)


def __getattr__(name):
  if name not in __all__:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  module = importlib.import_module(f'{__name__}.{_MODULE_OF.get(name, name)}')
  value = getattr(module, name) if name in _MODULE_OF else module
  globals()[name] = value
  return value


def __dir__():
  return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = _Door
