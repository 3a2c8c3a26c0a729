"""One row of the speed benchmark, measured in this process."""

import resource
import statistics
import time

import jax

from launch.tools.speed import flops, parts, peers, phases, report
from launch.tools.speed.client_updates import measure_net
from launch.tools.speed.clock import BUDGET, timed_in_time


def measure(name, case, config, budget=BUDGET, peak=None):
  """Measures one row in this process, whose peak memory it then is (Flower's is not known).

  peak: () -> FLOP/s of matmuls; None: measured.
  """
  row = {'case': name, **config._asdict()}
  case = parts.one_model(case) if config.engine == 'one model' else case
  before = time.perf_counter(), time.process_time(), report.busy_seconds()
  with jax.default_matmul_precision(config.precision):
    updates, results, more = _results(case, config, row, budget)
    wall, own = time.perf_counter() - before[0], time.process_time() - before[1]
    here = config.engine != 'flower'  # its work and memory are other processes'
    busy = before[2] and (report.busy_seconds() - before[2] - own) / wall  # cores
    row['busy_elsewhere'] = busy if here else None
    used = device_bytes(config)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # before the matmuls
    memory = {'process_peak_mb': most if here else None}
    memory['device_peak_mb'] = used and used // 2**20
    return {**row, **_summary(case, updates, results, peak or (lambda: measured_peak(config))), **memory, **more}


def _results(case, config, row, budget):
  """(client updates per net, (seconds of the repetitions, compile seconds, bytes of temporaries) of every program that
  ran, other fields of the row)."""
  updates, more = [case.clients * config.seeds] * len(case.nets), {}
  clock = lambda one_round: timed_in_time(one_round, budget, row)
  if config.engine.startswith('torch'):
    from launch.tools.speed import (
      stacked,
      torch_loop,  # PyTorch is optional
    )

    module = stacked if config.engine == 'torch vmap' else torch_loop
    one = lambda net: module.seconds_per_round(case, net, config, *parts.examples(case), clock)
    results = [(one(net), None, None) for net in case.nets]
  elif config.engine == 'flower':
    from launch.tools.speed import flower  # so is Flower

    results = [(flower.seconds_per_round(case, net, config, clock), None, None) for net in case.nets]
  elif config.engine == 'jit loop':
    one = lambda net: peers.seconds_per_round(case, net, *parts.examples(case), clock)
    results = [(one(net), None, None) for net in case.nets]
  elif config.seed_axis:
    seconds, compiling = phases.seeds(case, config, row, budget)
    results, more = [(seconds, sum(compiling), None)], {'compile_seconds_each': compiling}
  elif case.updates:
    updates, seconds, compiling = phases.asynchronous(case, config, row, 100 * budget)
    results = [([seconds], compiling, None)]
    more = {'turns': sum(updates), 'turns_planned': case.updates, 'turns_per_second': sum(updates) / seconds}
  else:
    results = [measure_net(case, net, config, row, budget) for net in case.nets]
  return updates, results, more


def measured_peak(config):
  """FLOP/s of matmuls in a row's precision, by the system that the row measures where that has the GPU to itself."""
  if config.engine.startswith('torch') and config.backend == 'gpu':
    from launch.tools.speed import torch_loop

    return flops.peak_matmul(torch_loop.multiplier(config), flops.SIZES + flops.LARGE)
  more = () if jax.default_backend() == 'cpu' else flops.LARGE
  return flops.peak_matmul(flops.multiplier(config.precision), flops.SIZES + more)


def device_bytes(config):
  """The most bytes of the device that were in use; None for a CPU."""
  if config.engine.startswith('torch'):
    from launch.tools.speed import torch_loop

    return torch_loop.device_bytes()
  return (jax.devices()[0].memory_stats() or {}).get('peak_bytes_in_use')


def _summary(case, updates, results, peak):
  """The measured fields of a row, summed over its programs; `updates`: per net, of all clients."""
  seconds, compiling, temporary = zip(*results, strict=True)
  medians = [statistics.median(s) for s in seconds]
  each = case.steps * case.batch
  pairs = zip(updates, case.nets, strict=True)
  work = sum(many * each * flops.flops_per_example(net, case.shape) for many, net in pairs)
  best = peak()
  return {
    'examples_per_second': sum(updates) * each / sum(medians),
    'seconds': sum(medians),
    'seconds_per_net': medians,
    'slowest_over_fastest': max(max(s) / min(s) for s in seconds),
    'repetitions': [len(s) for s in seconds],
    'train_gflops': work / sum(medians) / 1e9,
    'matmul_gflops': best / 1e9,
    'share_of_matmul_peak': work / sum(medians) / best,
    'compile_seconds': None if None in compiling else sum(compiling),
    'xla_temporary_mb': None if None in temporary else max(temporary) / 2**20,
  }
