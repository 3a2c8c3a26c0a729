import contextlib
import itertools
import types

import jax
import jax.numpy as jnp
import pytest

from fedkd import plan
from fedkd.models import MLP, LeNet, ResNet18, ThreeConv
from launch.tools.speed import cases, client_updates, flops, measurement, parts, phases, report, rows

TINY = cases.Case('an MLP, three clients', (MLP((8,)),), (4, 1, 1), 3, 5, 2, 2, 1.0)


def test_flops_of_an_mlp_by_hand():
  # 32-64-10: 32 * 64 + 64 * 10 multiply-adds forward, twice that backward, less the gradient of the image.
  assert flops.flops_per_example(MLP((64,)), (32, 1, 1)) == 2 * (3 * (32 * 64 + 64 * 10) - 32 * 64)


def test_flops_of_lenet_by_hand():
  first, second = 28 * 28 * 6 * 5 * 5, 10 * 10 * 16 * 5 * 5 * 6
  dense = 400 * 120 + 120 * 84 + 84 * 10
  assert flops.flops_per_example(LeNet(), (28, 28, 1)) == 2 * (3 * (first + second + dense) - first)


def test_flops_of_a_three_conv_net_by_hand():
  # 32x32 SAME 3x3; 16x16 after 2x2 of stride 2; pooled to 8x8; 3x3 after 3x3 of stride 2; dense without bias.
  first, second = 32 * 32 * 9 * 3 * 128, 16 * 16 * 4 * 128 * 128
  third, dense = 3 * 3 * 9 * 128 * 192, 3 * 3 * 192 * 10
  net = ThreeConv((128, 128, 192))
  assert flops.flops_per_example(net, (32, 32, 3)) == 2 * (3 * (first + second + third + dense) - first)


def test_flops_of_strided_convolutions_by_hand():
  # VALID 3x3 of stride 2: 32 -> 15 -> 7 -> 3.
  first, second, third = 15 * 15 * 9 * 3 * 128, 7 * 7 * 9 * 128 * 128, 3 * 3 * 9 * 128 * 192
  work = 2 * (3 * (first + second + third + 9 * 192 * 10) - first)
  assert flops.flops_per_example(cases.STRIDED[0], (32, 32, 3)) == work


@pytest.mark.parametrize('method', [pytest.param('private', marks=pytest.mark.slow), 'fedhe'])
def test_a_row_has_the_promised_fields(method):
  case = TINY._replace(method=method)
  row = measurement.measure('tiny', case, rows.Config(mapping='chunks'), budget=0, peak=lambda: 1e9)
  assert row['case'] == 'tiny'
  assert {k: row[k] for k in rows.Config._fields} == rows.Config(mapping='chunks')._asdict()
  assert row['examples_per_second'] == pytest.approx(3 * 2 * 5 / row['seconds'])
  assert row['repetitions'] == [3]
  work = 30 * flops.flops_per_example(MLP((8,)), (4, 1, 1))
  assert row['share_of_matmul_peak'] == pytest.approx(work / row['seconds'] / 1e9)
  for name in ('compile_seconds', 'process_peak_mb', 'xla_temporary_mb', 'busy_elsewhere', 'matmul_gflops'):
    assert name in row
  assert 'tiny' in report.table([row])


def test_mappings_train_the_same_clients():
  def after(mapping):
    turns, arguments = client_updates.prepare(TINY, TINY.nets[0], rows.Config(mapping=mapping))
    return jax.jit(turns)(*arguments)[0].params

  first, second = after('one by one'), after('vmap')
  assert all(bool(jnp.allclose(a, b, atol=1e-4)) for a, b in zip(*map(jax.tree.leaves, (first, second)), strict=True))


def measured_row(engine, speed, precision='highest', **more):
  return {'case': 'x', 'engine': engine, 'precision': precision, 'examples_per_second': speed, 'seconds': 1.0, **more}


def test_ratios_are_to_the_faster_memory_format_in_the_same_precision():
  row = measured_row
  rows = [row('torch', 10.0), row('torch', 20.0), row('fedkd', 50.0)]
  rows += [row('torch', 40.0, 'bfloat16'), row('fedkd', 50.0, 'bfloat16'), row('fedkd', 50.0, 'tensorfloat32')]
  assert [r['ratio_to_torch'] for r in report.compare(rows)] == [0.5, 1.0, 2.5, 1.0, 1.25, None]
  alone = report.compare([{**row('torch', 0), 'note': 'not measured'}, row('fedkd', 50.0)])
  assert [r['ratio_to_torch'] for r in alone] == [None, None]


def test_suites_cover_the_promised_combinations():
  cpu = rows.configs('cpu', cases.CASES['conv10'], False)
  assert [c.lowering for c in cpu if c.engine == 'torch'] == ['contiguous', 'channels_last']
  ours = {c[1:4] for c in cpu if c.engine == 'fedkd'}
  assert {
    (lowering, mapping, 1) for lowering in ('native', 'matmul') for mapping in ('one by one', 'chunks', 'vmap')
  } <= ours


@pytest.mark.parametrize('name', ['conv-10', 'lenet-100', 'resnet18-1000'])
def test_the_gpu_suite_covers_the_promised_combinations(name):
  found = rows.configs('gpu', cases.CASES[name], False)
  assert {row.backend for row in found} == {'gpu'}
  precisions = ('highest', 'tensorfloat32', 'bfloat16')
  of = lambda engine: {(row.lowering, row.mapping, row.precision) for row in found if row.engine == engine}
  mappings = ('one by one', 'chunks', 'vmap')
  assert of('fedkd') == set(itertools.product(('native', 'matmul'), mappings, precisions))
  assert of('torch') == set(itertools.product(('contiguous', 'channels_last'), ('one by one',), precisions))
  assert of('torch vmap') == set(itertools.product(('contiguous',), ('chunks', 'vmap'), precisions))
  assert of('one model') == {('native', 'one batch', precision) for precision in precisions}
  assert len(found) == len(set(found)) == 18 + 6 + 6 + 3


def test_the_gpu_suite_has_every_net_and_number_of_clients():
  nets = {'conv': cases.STRIDED, 'lenet': (LeNet(),), 'resnet18': (ResNet18(stem='cifar'),)}
  expected = {f'{name}-{n}': (net, n) for name, net in nets.items() for n in (10, 100, 1000)}
  found = {name: (cases.CASES[name].nets, cases.CASES[name].clients) for name in cases.SUITES['gpu']}
  assert found.pop('fedhe-async') == (cases.FEDMD, 1)
  assert found == expected


def test_the_one_model_takes_everybodys_batch():
  assert parts.one_model(TINY)[3:7] == (1, 3 * 5, 2, 1)
  assert parts.one_model(cases.CASES['lenet-1000']).batch == parts.MOST
  row = measurement.measure('tiny', TINY, rows.Config('one model', 'native', 'one batch'), budget=0, peak=lambda: 1e9)
  assert row['examples_per_second'] == pytest.approx(3 * 2 * 5 / row['seconds'])


@pytest.mark.parametrize('name', ['conv-10', 'lenet-10', 'resnet18-10'])
def test_rows_of_bfloat16_convolve_in_it_and_keep_their_parameters(name):
  case = cases.CASES[name]

  def found(precision):
    config = rows.Config(lowering='native', precision=precision)
    model = parts.model_of(case.nets[0], config)
    image = jax.ShapeDtypeStruct((1, *case.shape), jnp.uint8)
    variables = jax.eval_shape(lambda x: model.init(jax.random.key(0), x, False), image)
    traced = str(jax.make_jaxpr(lambda v, x: model.apply(v, x, False)[0])(variables, image))
    dtypes = {line.split(':')[1].split('[')[0] for line in traced.splitlines() if '= conv_general_dilated' in line}
    return dtypes, {leaf.dtype for leaf in jax.tree.leaves(variables)}

  assert found('bfloat16') == ({'bf16'}, {jnp.dtype('float32')})
  assert found('tensorfloat32') == ({'f32'}, {jnp.dtype('float32')})


def test_clients_that_do_not_fit_are_refused_with_both_numbers():
  states = lambda clients: {'weights': jax.ShapeDtypeStruct((clients, 10**9), jnp.float32)}
  client_updates.check_memory(20, states(20), 80 * 10**9)
  with pytest.raises(MemoryError, match='of 21 clients are 84 GB, the device has 80 GB'):
    client_updates.check_memory(21, states(21), 80 * 10**9)


def test_a_row_that_dies_or_hangs_becomes_a_note():
  run = ('timeit', '-n', '1', '-r', '1')
  assert report.measured(*run, 'raise MemoryError("no room")') == {'note': 'not measured: MemoryError: no room'}
  slow = report.measured(*run, 'import time; time.sleep(60)', limit=0.2)
  assert slow == {'note': 'not measured: more than 0.2 s'}
  row = {'case': 'x', **rows.Config('torch vmap', 'contiguous', backend='gpu')._asdict(), **slow}
  assert 'more than 0.2 s' in report.table([row])


@pytest.mark.slow
@pytest.mark.parametrize('axis', ['apart', 'map'])
def test_seeds_as_one_run_and_apart(axis):
  config = rows.Config(mapping='auto', seeds=2, seed_axis=axis)
  row = measurement.measure('tiny', TINY, config, budget=0, peak=lambda: 1e9)
  assert row['examples_per_second'] == pytest.approx(2 * 3 * 2 * 5 / row['seconds'])
  assert len(row['compile_seconds_each']) == (2 if axis == 'apart' else 1)
  assert row['compile_seconds'] == pytest.approx(sum(row['compile_seconds_each']))
  assert f'2 seeds {axis}' in report.table([row])


ASYNCHRONOUS = TINY._replace(nets=(MLP((8,)), MLP((4,))), clients=1, method='fedhe', updates=23)


@pytest.mark.slow
def test_an_asynchronous_run_makes_the_turns_of_its_plan():
  turns, seconds, _ = phases.asynchronous(ASYNCHRONOUS, rows.Config(mapping='auto'), {'case': 'tiny'}, 100)
  assert turns == [(each >= 0).sum() for each in plan.asynchronous()([1, 1], 23).participants]
  assert sum(turns) == 23
  assert seconds > 0


def test_an_asynchronous_run_ends_with_its_budget(monkeypatch):
  calls = []
  one = types.SimpleNamespace(length=8, run=lambda state, at, count: (state, calls.append((at, count))))
  monkeypatch.setattr(phases, 'compiled', lambda *args: (one, None))
  turns, _, _ = phases.asynchronous(ASYNCHRONOUS, rows.Config(mapping='auto'), {'case': 'tiny'}, 0)
  assert calls == [(0, 8)]
  assert turns == [(each[:8] >= 0).sum() for each in plan.asynchronous()([1, 1], 23).participants]
  calls.clear()
  assert sum(phases.asynchronous(ASYNCHRONOUS, rows.Config(), {'case': 'tiny'}, 100)[0]) == 23
  assert calls == [(0, 8), (8, 8), (16, 7)]


def test_a_row_of_turns_counts_the_work_of_every_net(monkeypatch):
  case = ASYNCHRONOUS
  monkeypatch.setattr(phases, 'asynchronous', lambda *args: ([15, 8], 2.0, 1.0))
  row = measurement.measure('tiny', case, rows.Config(mapping='auto'), peak=lambda: 1e9)
  assert (row['turns'], row['turns_planned'], row['turns_per_second']) == (23, 23, 11.5)
  assert row['examples_per_second'] == pytest.approx(23 * 2 * 5 / 2)
  work = [flops.flops_per_example(net, (4, 1, 1)) for net in case.nets]
  assert row['train_gflops'] == pytest.approx(2 * 5 * (15 * work[0] + 8 * work[1]) / 2 / 1e9)


def test_what_the_gpu_suite_concludes():
  how = {'lowering': 'native', 'devices': 1, 'share_of_matmul_peak': 0.25}
  row = lambda engine, speed, mapping, *rest: measured_row(engine, speed, *rest, mapping=mapping, **how)
  rows = [
    row('torch', 10.0, 'one by one'),
    row('one model', 1000.0, 'one batch'),
    row('fedkd', 100.0, 'chunks'),
    row('fedkd', 250.0, 'vmap'),
    row('fedkd', 300.0, 'vmap', 'bfloat16'),
    {**row('fedkd', 900.0, 'chunks'), 'note': 'not measured'},
  ]
  assert list(report.conclusions('gpu', report.compare(rows), {'x': 20.0, 'y': 0.0})) == [
    'x: 25.00 x PyTorch (promised 20.0: kept), 25% of matmul peak; native, vmap, 1 device(s)',
    'x, highest: native, vmap: 250 examples/s, 25% of matmul peak',
    'x, bfloat16: native, vmap: 300 examples/s, 25% of matmul peak',
    'x: fedkd is 25.00 x torch',
    'x: fedkd is 0.25 x one model (SLOWER)',
  ]


def test_what_the_seeds_suite_concludes():
  row = lambda seeds, axis, seconds, compiling: {
    'case': 'x',
    'seeds': seeds,
    'seed_axis': axis,
    'seconds': seconds,
    'compile_seconds': compiling,
  }
  rows = [row(1, 'apart', 1.0, 8.0), row(2, 'apart', 2.0, 10.0), row(2, 'map', 2.2, 9.0)]
  assert list(report.seeds([*rows, {**row(2, 'vmap', 1.0, 1.0), 'note': 'n'}])) == [
    'x: 2 seeds, map: 1.10 x a round, 0.90 x compiling of 2 runs'
  ]


@pytest.mark.parametrize('name', ['conv-10', 'lenet-10', 'resnet18-10', 'fedhe-async'])
def test_pytorchs_twins_have_as_many_weights(name):
  pytest.importorskip('torch')
  from launch.tools.speed import torch_nets

  case = cases.CASES[name]
  for net in case.nets:
    variables = jax.eval_shape(lambda net=net: net.init(jax.random.key(0), jnp.zeros((1, *case.shape)), False))
    twin = torch_nets.build(net, case.shape)
    assert sum(p.numel() for p in twin.parameters()) == sum(a.size for a in jax.tree.leaves(variables['params']))


def test_the_jit_loop_trains():
  row = measurement.measure('tiny', TINY, rows.Config('jit loop', 'native'), budget=0, peak=lambda: 1e9)
  assert row['examples_per_second'] == pytest.approx(3 * 2 * 5 / row['seconds'])


def test_a_client_of_flower_goes_on_with_its_weights():
  torch = pytest.importorskip('torch')
  pytest.importorskip('flwr')
  from launch.tools.speed import flower, torch_loop, torch_nets

  config, net = rows.Config('flower', 'contiguous'), TINY.nets[0]
  data = torch_loop.tensors(*parts.examples(TINY), torch.device('cpu'))
  twin, kept = torch_nets.build(net, TINY.shape), None
  for seed in (0, 1):
    torch.manual_seed(seed)
    kept = flower.train(TINY, net, config, 1, kept and {k: v.clone() for k, v in kept.items()})
    if seed == 0:
      twin.load_state_dict(kept)
  torch.manual_seed(1)
  adam = torch.optim.Adam(twin.parameters())
  before = {name: value.clone() for name, value in twin.state_dict().items()}
  torch_loop.client_update(twin, adam, data[0], data[1], data[2][1], None, TINY, contextlib.nullcontext())
  for name, value in twin.state_dict().items():
    assert not torch.equal(value, before[name])
    torch.testing.assert_close(kept[name], value)


def test_flower_runs_everybody():
  pytest.importorskip('torch')
  pytest.importorskip('flwr')
  row = measurement.measure('tiny', TINY, rows.Config('flower', 'contiguous'), budget=0, peak=lambda: 1e9)
  assert row['examples_per_second'] == pytest.approx(3 * 2 * 5 / row['seconds'])
  assert (row['busy_elsewhere'], row['process_peak_mb']) == (None, None)
  assert 'flower' in report.table([row])


def test_peers_are_named_where_they_are_faster():
  row = measured_row
  measured = [
    row('fedkd', 20.0),
    row('torch', 10.0),
    row('torch', 40.0),
    row('jit loop', 5.0),
    {**row('torch', 90), 'note': 'n'},
    row('fedkd', 30.0, 'bfloat16'),
    row('torch', 20.0, 'bfloat16'),
  ]
  assert list(report.against(measured)) == [
    'x: fedkd is 0.50 x torch (SLOWER)',
    'x: fedkd is 4.00 x jit loop',
    'x, bfloat16: fedkd is 1.50 x torch',
  ]
  engines = [c.engine for c in rows.configs('peers', cases.CASES['lenet'], False)]
  assert set(engines) == {'torch', 'torch, files', 'jit loop', 'flower', 'fedkd'}
  engines = [c.engine for c in rows.configs('peers', cases.CASES['fedmd'], False)]
  assert set(engines) == {'torch', 'torch, files', 'fedkd'}


def test_an_overview_has_the_fastest_row_of_every_system():
  row = lambda engine, devices, speed: {
    'case': 'x',
    'engine': engine,
    'devices': devices,
    'precision': 'highest',
    'examples_per_second': speed,
    'ratio_to_torch': speed / 10,
    'share_of_matmul_peak': 0.5,
    'compile_seconds': 1.0,
    'process_peak_mb': 1000,
  }
  rows = [row('torch', 1, 10.0), row('fedkd', 1, 15.0), row('fedkd', 1, 30.0), {**row('fedkd', 2, 90.0), 'note': 'n'}]
  lines = report.overview({'cores': 2, 'cases': {'x': 'a net', 'y': 'another'}, 'rows': rows}).splitlines()
  assert lines == [
    '| case | PyTorch | fedkd, one device |',
    '| --- | --- | --- |',
    '| a net | 10 examples/s | 30 examples/s, 3.00 x, 50% of matmul peak, 1.0 s to compile, 1,000 MB |',
    '| another | - | - |',
  ]
