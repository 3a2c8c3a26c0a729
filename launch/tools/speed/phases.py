"""Whole phases of the library for `launch.bench`: an asynchronous run, and several seeds of one run."""

import time

import jax
import jax.numpy as jnp
import numpy as np

from fedkd import plan
from fedkd.experiment import phase
from fedkd.experiment.build import assembly
from fedkd.experiment.programs import ExecutionOptions, Task
from launch.tools.speed import parts
from launch.tools.speed.clock import CAP, COMPILING, deadline, timed_in_time

FIRST = 10  # rounds of the first call, which sets the pace
CALL = 10  # seconds of the calls after it, as `experiment.loop`


def compiled(case, config, seeds, plan, length):
  """(`Phase` of a case, its nets being the groups, with its program compiled; its first `State`).

  Args:
    seeds: list of int.
    length: most rounds of one call.
  """
  federation = parts.federation_of(case, config)
  each = lambda tree: jax.tree.map(lambda a: jnp.broadcast_to(a, (len(seeds), *a.shape)), tree)
  of_seeds = federation._replace(private=each(federation.private), everyone=each(federation.everyone))
  cheap = {'xla_backend_optimization_level': 0} if jax.default_backend() == 'cpu' else None  # as `build`
  example = jax.ShapeDtypeStruct(case.shape, np.uint8)
  variables = assembly.initial_variables(assembly.initialisers(federation.groups, example, cheap), seeds)
  options = ExecutionOptions('vmap' if config.seed_axis == 'vmap' else 'map', 0, length, 100)
  keys = jnp.stack([jax.random.key(seed) for seed in seeds])
  everybody = np.arange(case.clients * len(case.nets))
  rounds, method = len(plan.participants[0]), parts.method_of(case)
  one = phase.make(Task(case.method, method, plan, rounds, keys, of_seeds, everybody, variables, False, options))
  state, _ = jax.block_until_ready(one.run(one.init(variables), 0, 0))  # no round: compiles
  return one, state


def seeds(case, config, row, budget):
  """(seconds of the repetitions of a round of all seeds, compile seconds of every program).

  A round of seeds that are 'apart' is one round of every run, one after the other.
  """
  every = list(range(config.seeds))
  once = plan.synchronous()([case.clients] * len(case.nets), 1)
  runs, compiling = [], []
  for some in [[seed] for seed in every] if config.seed_axis == 'apart' else [every]:
    begun = time.perf_counter()
    with deadline(row, 'compiling', COMPILING[config.backend] * len(some)):
      runs.append(list(compiled(case, config, some, once, 1)))
    compiling.append(time.perf_counter() - begun)

  def one_round():
    for run in runs:
      run[1], _ = jax.block_until_ready(run[0].run(run[1], 0, 1))

  return timed_in_time(one_round, budget, row), compiling


def asynchronous(case, config, row, budget):
  """(client updates per net, their seconds, compile seconds) of an asynchronous run, ended after `budget` seconds."""
  table = plan.asynchronous()([case.clients] * len(case.nets), case.updates)
  begun = time.perf_counter()
  with deadline(row, 'compiling', CAP * len(case.nets)):
    one, state = compiled(case, config, [0], table, min(case.updates, phase.MOST_ROUNDS))
  compiling = time.perf_counter() - begun
  made, spent, begun = 0, 0.0, time.perf_counter()
  while not made or (made < case.updates and spent < budget):
    paced = max(1, int(CALL * made / spent)) if made else FIRST
    count = min(one.length, case.updates - made, paced)
    state, report = one.run(state, made, count)
    jax.device_get(report)
    made, spent = made + count, time.perf_counter() - begun
  return [int((participants[:made] >= 0).sum()) for participants in table.participants], spent, compiling
