"""Federated learning by knowledge distillation across clients whose models differ in architecture.

The entry points: clients from arrays, a method on them, rounds.

  import fedkd, jax, optax

  federation = fedkd.federation(x, y, parts, models)
  simulation = fedkd.simulation(fedkd.methods.fedhe(optax.adam(1e-3), steps=3, batch=32), federation)
  state = simulation.init(jax.random.key(0))
  state, report = simulation.run(state, rounds=100)
  simulation.accuracy(state, x_test, y_test)
"""

from fedkd import aggregate, codecs, ledger, losses, methods, models, optimizers, parts, plan, schedules, servers
from fedkd.federation import Federation, federation
from fedkd.history import History, restore
from fedkd.round import Report
from fedkd.simulation import Simulation, SimulationState, simulation
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
  'federation',
  'ledger',
  'losses',
  'methods',
  'models',
  'optimizers',
  'parts',
  'plan',
  'restore',
  'schedules',
  'servers',
  'simulation',
  'train',
]
