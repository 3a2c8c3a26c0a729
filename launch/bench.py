"""Speed of local training, measured through the library's own code.

  python -m launch.bench --suite=cpu --json=results/bench_cpu.json     # about 40 minutes on two cores
  python -m launch.bench --suite=gpu --json=results/bench_gpu.json     # on a machine with a GPU
  python -m launch.bench --suite=peers --json=results/bench_peers.json # beside what other systems do
  python -m launch.bench --suite=cpu --cases=lenet --quick             # the shipped settings only

A row is one case under one lowering of the convolution, one way of mapping the clients, a number of devices and a
precision. Every row runs in a process of its own: `fedkd.round.turns` of one round, compiled once, warmed up once,
median of repetitions. Rows of engine `torch` are `launch/bench_torch.py` (not measured where PyTorch is missing).
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import pathlib
import resource
import statistics
import sys
import threading
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P

from fedkd import methods, round
from fedkd.models import MLP
from fedkd.models.layers import Preprocessed
from fedkd.types import Data, Down, Group, Pool, Rows
from launch import bench_peers, bench_report
from launch.bench_cases import CASES

CAP = 60  # seconds that compiling or the first round of one net may take
BUDGET = 6  # seconds of repetitions per net
ROWS = 100  # training rows per client
PEERS = ('torch', 'torch, files', 'jit loop')


class Config(NamedTuple):
  """What distinguishes the rows of a case."""

  engine: str = (
    'fedkd'  # 'torch'; 'torch, files', which saves and loads every client's model; 'jit loop', a call a batch
  )
  lowering: str = 'auto'  # of the convolution; for PyTorch its memory format
  mapping: str = 'one by one'  # or 'chunks', 'vmap'
  devices: int = 1
  precision: str = 'highest'  # jax_default_matmul_precision


def configs(suite, case, quick):
  """The rows to measure, PyTorch's first."""
  cores, accelerator = os.cpu_count(), suite == 'gpu'
  devices = [1] if accelerator or cores == 1 or case.clients % cores else [1, cores]
  if suite == 'peers':
    torch = [Config(engine, layout) for engine in PEERS[:2] for layout in ('contiguous', 'channels_last')]
    loop = [Config(PEERS[2], 'native')] * (case.method == 'private')  # it knows no method
    return [*torch, *loop, *(c for c in configs('cpu', case, True) if c.engine == 'fedkd')]
  dense = isinstance(case.nets[0], MLP)
  lowerings = ['auto'] if quick else ['matmul'] if dense else ['native', 'matmul']
  mappings = ['one by one', 'chunks', 'vmap'] if case.chunk < case.clients else ['one by one', 'vmap']
  if quick:
    mappings = ['vmap' if accelerator else 'chunks' if dense else 'one by one']  # as `phase.chunk_of`
  precisions = ['highest', 'tensorfloat32', 'bfloat16'] if accelerator else ['highest']
  torch = [] if accelerator else [Config('torch', layout, devices=1) for layout in ('contiguous', 'channels_last')]
  return torch + [Config('fedkd', *rest) for rest in itertools.product(lowerings, mappings, devices, precisions)]


def matmul_flops(jaxpr):
  """FLOPs of every matmul and convolution in a jaxpr, in order: 2 per multiply-add."""
  found = []
  for eqn in jaxpr.eqns:
    out = math.prod(eqn.outvars[0].aval.shape) if eqn.outvars else 0
    shapes = [v.aval.shape for v in eqn.invars]
    if eqn.primitive.name == 'dot_general':
      (contracted, _), _ = eqn.params['dimension_numbers']
      found.append(2 * out * math.prod(shapes[0][i] for i in contracted))
    elif eqn.primitive.name == 'conv_general_dilated':
      features = shapes[1][eqn.params['dimension_numbers'].rhs_spec[0]]
      found.append(2 * out * math.prod(shapes[1]) // features)
    for inner in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda p: hasattr(p, 'eqns')):
      inner = getattr(inner, 'jaxpr', inner)
      found += matmul_flops(inner) if hasattr(inner, 'eqns') else []
  return found


def flops_per_example(net, shape):
  """FLOPs to train `net` on one image: three forward passes less the gradient of the image, which nobody needs."""
  image = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
  net = net.clone(lowering='native')
  variables = jax.eval_shape(lambda x: net.init(jax.random.key(0), x, False), image)
  forward = matmul_flops(jax.make_jaxpr(lambda v, x: net.apply(v, x, False))(variables, image).jaxpr)
  return 3 * sum(forward) - forward[0]


def peak_matmul():
  """The machine's matmul FLOP/s at the precision in force: best of three sizes, several repetitions each."""
  best = 0.0
  for size, repeats in [(1024, 20), (2048, 6), (4096, 3)]:
    a = jax.random.normal(jax.random.key(0), (size, size))
    multiply = jax.jit(jnp.matmul)
    jax.block_until_ready(multiply(a, a))
    for _ in range(repeats):
      start = time.perf_counter()
      jax.block_until_ready(multiply(a, a))
      best = max(best, 2 * size**3 / (time.perf_counter() - start))
  return best


def examples(case):
  """(images uint8 [N, H, W, channels], labels [N], rows [clients, ROWS]) of random numbers."""
  draw = np.random.default_rng(0)
  count = case.clients * ROWS
  images = draw.integers(0, 256, (count, *case.shape), np.uint8)
  return images, draw.integers(0, 10, count).astype(np.int32), np.arange(count, dtype=np.int32).reshape(-1, ROWS)


def prepare(case, net, config):
  """One round of a case for one net, as (function to jit, its arguments); argument 0 (the state) can be donated."""
  images, labels, rows = examples(case)
  model = Preprocessed(net.clone(lowering=config.lowering), np.float32(0), np.float32(1 / 255))
  method = getattr(methods, case.method)(optax.adam(1e-3), steps=case.steps, batch=case.batch)
  ids = np.arange(case.clients, dtype=np.int32)
  size = jnp.full(case.clients, ROWS, jnp.int32)
  pool = Pool(jnp.asarray(images), jnp.asarray(labels))
  private = Rows(jnp.asarray(rows), size, jnp.asarray(ids))
  everyone = Rows(jnp.arange(rows.size), jnp.int32(rows.size), jnp.int32(-1))
  fresh = jax.jit(lambda: model.init(jax.random.key(0), pool.image[:1], False))()
  variables = {'params': fresh['params'], 'batch_stats': fresh.get('batch_stats', {})}
  learner = method.client.init(jax.random.key(0), model, None, variables)
  state = jax.tree.map(lambda a: jnp.array(jnp.broadcast_to(a, (case.clients, *a.shape))), learner)
  group = Group(net.__class__.__name__, model, ids)
  server = method.server.init(jax.random.key(1), (group,), (variables,), (Data(pool, private, everyone),))
  (down,) = method.server.send(jax.random.key(1), jnp.int32(0), server, (jnp.asarray(ids),))

  seats = case.clients // config.devices
  chunk = {'one by one': 1, 'chunks': min(case.chunk, seats), 'vmap': seats}[config.mapping]

  def turns(state, key, pool, private, everyone, shared, who):
    data = Data(pool, private, everyone)
    return round.turns(key, jnp.int32(0), method.client, group, state, Down, shared, down.own, data, who, chunk)

  who = jnp.arange(case.clients) % seats
  arguments = state, jax.random.key(2), pool, private, everyone, down.shared, who
  if config.devices > 1:
    mesh, split, whole = jax.make_mesh((config.devices,), ('clients',)), P('clients'), P()
    specs = (split, whole, whole, split, whole, whole, split)
    turns = jax.shard_map(turns, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False)
    arguments = tuple(jax.device_put(a, jax.NamedSharding(mesh, s)) for a, s in zip(arguments, specs, strict=True))
  return turns, arguments


def timed(one_round, budget):
  """Seconds of at least three repetitions of `one_round`, after one that warms up."""
  seconds = []
  one_round()
  while len(seconds) < 3 or (sum(seconds) < budget and len(seconds) < 50):
    start = time.perf_counter()
    one_round()
    seconds.append(time.perf_counter() - start)
  return seconds


@contextlib.contextmanager
def deadline(row, what):
  """Prints the row with a note and ends this process where the block takes more than CAP seconds."""

  def late():
    print(json.dumps({**row, 'note': f'{what} > {CAP} s'}), flush=True)
    os._exit(0)

  timer = threading.Timer(CAP, late)
  timer.start()
  try:
    yield
  finally:
    timer.cancel()


def measure_net(case, net, config, row, budget):
  """(seconds of the repetitions, compile seconds, bytes of XLA's temporaries) of one net."""
  turns, arguments = prepare(case, net, config)
  start = time.perf_counter()
  with deadline(row, 'compiling'):
    compiled = jax.jit(turns, donate_argnums=0).lower(*arguments).compile()
  compile_seconds = time.perf_counter() - start
  state, rest = arguments[0], arguments[1:]

  def one_round():
    nonlocal state
    state, _ = jax.block_until_ready(compiled(state, *rest))

  with deadline(row, 'the first round'):
    one_round()
  return timed(one_round, budget), compile_seconds, compiled.memory_analysis().temp_size_in_bytes


def measure(name, case, config, budget=BUDGET, peak=peak_matmul):
  """Measures one row in this process, whose peak memory it then is."""
  row = {'case': name, **config._asdict()}
  before = time.perf_counter(), time.process_time(), bench_report.busy_seconds()
  clock = lambda one_round: timed(one_round, budget)
  if config.engine.startswith('torch'):
    from launch import bench_torch  # PyTorch is optional

    images, labels, rows = examples(case)
    arrays = images.astype(np.float32) / 255, labels, rows
    how = config.lowering == 'channels_last', config.engine == 'torch, files'
    one = lambda net: bench_torch.seconds_per_round(case, net, *how, *arrays, clock, os.cpu_count())
    results = [(one(net), None, None) for net in case.nets]
  elif config.engine == 'jit loop':
    one = lambda net: bench_peers.seconds_per_round(case, net, *examples(case), clock)
    results = [(one(net), None, None) for net in case.nets]
  else:
    jax.config.update('jax_default_matmul_precision', config.precision)
    results = [measure_net(case, net, config, row, budget) for net in case.nets]
  wall, own = time.perf_counter() - before[0], time.process_time() - before[1]
  row['busy_elsewhere'] = before[2] and (bench_report.busy_seconds() - before[2] - own) / wall  # cores
  return {**row, **_summary(case, results, peak)}


def _summary(case, results, peak):
  """The measured fields of a row, summed over the nets of the case."""
  seconds, compiling, temporary = zip(*results, strict=True)
  medians = [statistics.median(s) for s in seconds]
  per_net = case.clients * case.steps * case.batch
  work = sum(per_net * flops_per_example(net, case.shape) for net in case.nets)
  memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # before the matmuls of `peak`
  best = peak()
  return {
    'examples_per_second': per_net * len(case.nets) / sum(medians),
    'seconds': sum(medians),
    'seconds_per_net': medians,
    'slowest_over_fastest': max(max(s) / min(s) for s in seconds),
    'repetitions': [len(s) for s in seconds],
    'train_gflops': work / sum(medians) / 1e9,
    'matmul_gflops': best / 1e9,
    'share_of_matmul_peak': work / sum(medians) / best,
    'compile_seconds': None if None in compiling else sum(compiling),
    'process_peak_mb': memory,
    'xla_temporary_mb': None if None in temporary else max(temporary) / 2**20,
  }


def spawn(name, config, quick, tries=3):
  """`measure` in a process of its own, again where other processes took a fifth of a core; the least disturbed row."""
  command = ['launch.bench', '--row', json.dumps([name, *config]), *['--quick'] * quick]
  rows = []
  for _ in range(tries):
    bench_report.wait_for_idle(5 if quick else 120)
    rows.append({'case': name, **config._asdict(), **bench_report.measured(*command)})
    if 'note' in rows[-1] or (rows[-1]['busy_elsewhere'] or 0) < 0.2:
      break
  return min(rows, key=lambda row: row.get('busy_elsewhere') or 0)


def main():
  """Measures a suite, or with --row one row of it (how the suite calls itself)."""
  flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  flags.add_argument('--suite', choices=['cpu', 'gpu', 'peers'], default='cpu')
  flags.add_argument('--json', help='write the results here')
  flags.add_argument('--cases', default=','.join(CASES), help='of ' + ', '.join(CASES))
  flags.add_argument('--quick', action='store_true', help='the shipped lowering and mapping only, short repetitions')
  flags.add_argument('--markdown', action='store_true', help='print the table as Markdown')
  flags.add_argument('--row', help=argparse.SUPPRESS)
  args = flags.parse_args()
  if args.row:
    name, *config = json.loads(args.row)
    config = Config(*config)
    if jax.config.jax_platforms != 'cuda' and config.devices > 1:
      jax.config.update('jax_num_cpu_devices', config.devices)
    print(json.dumps(measure(name, CASES[name], config, 1 if args.quick else BUDGET)))
    return
  names = args.cases.split(',')
  if unknown := [name for name in names if name not in CASES]:
    flags.error(f'unknown cases {", ".join(unknown)}; choose from {", ".join(CASES)}')
  if args.suite == 'gpu' and jax.default_backend() != 'gpu':
    print('no GPU: JAX finds none here; install jax[cuda13] on a machine with one, or use --suite=cpu', file=sys.stderr)
    sys.exit(2)
  machine, rows = bench_report.machine(), []
  bars, titles = {n: CASES[n].bar for n in names}, {n: CASES[n].title for n in names}
  for name in names:
    for config in configs(args.suite, CASES[name], args.quick):
      rows.append(spawn(name, config, args.quick))
      print(bench_report.table(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
      verdicts = {'cpu': bench_report.verdicts(rows, bars), 'gpu': (), 'peers': bench_report.against(rows)}
      result = {**machine, 'suite': args.suite, 'cases': titles, 'rows': bench_report.compare(rows)}
      result['verdicts'] = list(verdicts[args.suite])
      if args.json:  # after every row: a long measurement that is stopped keeps what it has
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1) + '\n')
  print(bench_report.table(rows, ' | ' if args.markdown else '  '), *result['verdicts'], sep='\n')


if __name__ == '__main__':
  main()
