"""Speed of local training, measured through the library's own code.

  python -m launch.bench --suite=cpu --json=results/bench_cpu.json     # about 40 minutes on two cores
  python -m launch.bench --suite=gpu --json=results/bench_gpu.json     # on a machine with a GPU, hours (see below)
  python -m launch.bench --suite=peers --json=results/bench_peers.json # compared with other systems
  python -m launch.bench --suite=seeds --json=results/bench_seeds.json # seeds as one run and apart, about 5 minutes
  python -m launch.bench --suite=cpu --cases=lenet --quick             # the shipped settings only

A row is one case under one lowering of the convolution, one way of mapping the clients, a number of devices and a
precision. Every row runs in a process of its own: `fedkd.round.client_updates` of one round, compiled once, warmed up
once, median of repetitions. Rows of engine `torch` are `launch/bench/torch_loop.py` (not measured where PyTorch is
missing).

The GPU suite has nets x 10, 100, 1 000 clients x lowerings x mappings x precisions; in addition PyTorch's loop over
clients, `torch.func.vmap` (`launch/bench/stacked.py`) and one model with a large batch, the ceiling; and the 50 000
client updates of FedHe's asynchronous run (`launch/bench/phases.py`), or as many as ten minutes allow. What does not
fit into the GPU, or takes too long, becomes a row with a note. About 300 rows of half a minute to eight minutes each:
expect three to six hours (an estimate: no GPU has run it yet), `--quick` about half of that,
`--cases=conv-100,lenet-100` one. The file is written after every row.

The suite of seeds measures 1, 2 and 3 seeds as one program, mapped by a loop or by vmap, against as many runs one after
the other, on the default device, with an empty compilation cache for each row.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from fedkd import round
from fedkd.models.initial import initial_variables
from fedkd.simulation import initial_state
from fedkd.types import Data, Download
from launch.bench import flops, parts, peers, phases, report
from launch.bench.cases import CASES, SUITES
from launch.bench.clock import BUDGET, COMPILING, ROW_LIMIT, deadline, timed_in_time
from launch.bench.rows import Config, chunk_of, configs


def prepare(case, net, config):
  """One round of a case for one net, as (function to jit, its arguments); argument 0 (the state) can be donated.

  Raises:
    MemoryError: for more clients than fit on the device.
  """
  case = case._replace(nets=(net,))
  federation, method, key = parts.federation_of(case, config), parts.method_of(case), jax.random.key(0)
  (group,), (data,), ids = federation.groups, federation.data(), jnp.arange(case.clients)
  example = jax.ShapeDtypeStruct(case.shape, np.uint8)

  def init():
    fresh = initial_variables(key, group.model, example)
    return initial_state(key, method, federation, (jax.tree.map(lambda a: a[None], fresh),))

  check_memory(case.clients, jax.eval_shape(init).client)
  state = jax.jit(init)()
  (down,) = method.server.send(key, jnp.int32(0), federation.groups, state.server, (ids,), federation.data())
  width, slots = chunk_of(case, config), case.clients // config.devices

  def updates(state, key, pool, private, everyone, shared, participants):
    own = Data(pool, private, everyone)
    view = Download, shared, down.own, own
    return round.client_updates(key, jnp.int32(0), method.client, group, state, *view, participants, width)

  participants = ids % slots
  arguments = state.client[0], jax.random.key(2), data.pool, data.private, data.everyone, down.shared, participants
  if config.devices > 1:
    mesh, split, whole = jax.make_mesh((config.devices,), ('clients',)), P('clients'), P()
    specs = (split, whole, whole, split, whole, whole, split)
    updates = jax.shard_map(updates, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False)
    arguments = tuple(jax.device_put(a, jax.NamedSharding(mesh, s)) for a, s in zip(arguments, specs, strict=True))
  return updates, arguments


def check_memory(clients, states, limit=None):
  """Checks that the clients' states fit into the device's memory, or into `limit` bytes.

  Raises:
    MemoryError: with both numbers.
  """
  limit = limit or (jax.devices()[0].memory_stats() or {}).get('bytes_limit')  # None on a CPU
  need = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(states))
  if limit and need > limit:
    raise MemoryError(f'the states of {clients} clients are {need / 1e9:.0f} GB, the device has {limit / 1e9:.0f} GB')


def measure_net(case, net, config, row, budget):
  """(seconds of the repetitions, compile seconds, bytes of XLA's temporaries) of one net."""
  client_updates, arguments = prepare(case, net, config)
  start = time.perf_counter()
  with deadline(row, 'compiling', COMPILING[config.backend]):
    compiled = jax.jit(client_updates, donate_argnums=0).lower(*arguments).compile()
  compile_seconds = time.perf_counter() - start
  state, rest = arguments[0], arguments[1:]

  def one_round():
    nonlocal state
    state, _ = jax.block_until_ready(compiled(state, *rest))

  return timed_in_time(one_round, budget, row), compile_seconds, compiled.memory_analysis().temp_size_in_bytes


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
    from launch.bench import (
      stacked,
      torch_loop,  # PyTorch is optional
    )

    module = stacked if config.engine == 'torch vmap' else torch_loop
    one = lambda net: module.seconds_per_round(case, net, config, *parts.examples(case), clock)
    results = [(one(net), None, None) for net in case.nets]
  elif config.engine == 'flower':
    from launch.bench import flower  # so is Flower

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
    from launch.bench import torch_loop

    return flops.peak_matmul(torch_loop.multiplier(config), flops.SIZES + flops.LARGE)
  more = () if jax.default_backend() == 'cpu' else flops.LARGE
  return flops.peak_matmul(flops.multiplier(config.precision), flops.SIZES + more)


def device_bytes(config):
  """The most bytes of the device that were in use; None for a CPU."""
  if config.engine.startswith('torch'):
    from launch.bench import torch_loop

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


def spawn(name, config, quick):
  """`measure` in a process of its own. On a CPU: waits until other processes are idle, and repeats the measurement, up
  to three times, if they used a fifth of a core (except for Flower, which runs other processes itself); returns the
  least disturbed row."""
  command = ['launch.bench', '--row', json.dumps([name, *config]), *['--quick'] * quick]
  rows = []
  for _ in range(3 if config.backend == 'cpu' else 1):
    report.wait_for_idle(5 if quick or config.backend == 'gpu' else 120)
    rows.append({'case': name, **config._asdict(), **report.measured(*command, limit=ROW_LIMIT)})
    if 'note' in rows[-1] or (rows[-1]['busy_elsewhere'] or 0) < 0.2:
      break
  return min(rows, key=lambda row: ('note' in row, row.get('busy_elsewhere') or 0))


def one_row(name, config, quick):
  """Measures a row in this process, whose devices and caches it sets up, and prints it."""
  if jax.config.jax_platforms != 'cuda' and config.devices > 1:
    jax.config.update('jax_num_cpu_devices', config.devices)
  if config.engine.startswith('torch'):
    jax.config.update('jax_platforms', 'cpu')  # the GPU, and its libraries, are PyTorch's
  with tempfile.TemporaryDirectory() as cache:
    if config.seed_axis:  # runs find each other's programs, as those of `fedkd.experiment`
      jax.config.update('jax_compilation_cache_dir', cache)
    print(json.dumps(measure(name, CASES[name], config, 1 if quick else BUDGET)))


def main():
  """Measures a suite, or with --row one of its rows (in the subprocess of a suite)."""
  flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  flags.add_argument('--suite', choices=list(SUITES), default='cpu')
  flags.add_argument('--json', help='write the results here')
  flags.add_argument('--cases', default='', help='instead of all cases of the suite, of ' + ', '.join(CASES))
  flags.add_argument('--quick', action='store_true', help='the shipped lowering and mapping only, short repetitions')
  flags.add_argument('--markdown', action='store_true', help='print the table as Markdown')
  flags.add_argument('--row', help=argparse.SUPPRESS)
  args = flags.parse_args()
  # On a GPU this process and its rows share the memory: allocate on demand.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  os.environ.setdefault('XLA_CLIENT_MEM_FRACTION', '0.95')
  if args.row:
    name, *config = json.loads(args.row)
    one_row(name, Config(*config), args.quick)
    return
  names = args.cases.split(',') if args.cases else SUITES[args.suite]
  if unknown := [name for name in names if name not in CASES]:
    flags.error(f'unknown cases {", ".join(unknown)}; choose from {", ".join(CASES)}')
  if args.suite == 'gpu' and jax.default_backend() != 'gpu':
    print('no GPU: JAX finds none here; install jax[cuda13] on a machine with one, or use --suite=cpu', file=sys.stderr)
    sys.exit(2)
  machine, rows = report.machine(), []
  bars, titles = {n: CASES[n].bar for n in names}, {n: CASES[n].title for n in names}
  for name in names:
    for config in configs(args.suite, CASES[name], args.quick):
      rows.append(spawn(name, config, args.quick))
      print(report.table(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
      result = {**machine, 'suite': args.suite, 'cases': titles, 'rows': report.compare(rows)}
      result['verdicts'] = list(report.conclusions(args.suite, rows, bars))
      if args.json:  # after every row: a long measurement that is stopped keeps what it has
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1) + '\n')
  print(report.table(rows, ' | ' if args.markdown else '  '), *result['verdicts'], sep='\n')


if __name__ == '__main__':
  main()
