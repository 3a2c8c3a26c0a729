import jax
import jax.numpy as jnp
import pytest

from fedkd.models import MLP, LeNet, ThreeConv
from launch import bench, bench_cases, bench_report

TINY = bench_cases.Case('an MLP, three clients', (MLP((8,)),), (4, 1, 1), 3, 5, 2, 2, 1.0)


def test_flops_of_an_mlp_by_hand():
  # 32-64-10: 32 * 64 + 64 * 10 multiply-adds forward, twice that backward, less the gradient of the image.
  assert bench.flops_per_example(MLP((64,)), (32, 1, 1)) == 2 * (3 * (32 * 64 + 64 * 10) - 32 * 64)


def test_flops_of_lenet_by_hand():
  first, second = 28 * 28 * 6 * 5 * 5, 10 * 10 * 16 * 5 * 5 * 6
  dense = 400 * 120 + 120 * 84 + 84 * 10
  assert bench.flops_per_example(LeNet(), (28, 28, 1)) == 2 * (3 * (first + second + dense) - first)


def test_flops_of_a_three_conv_net_by_hand():
  # 32x32 SAME 3x3; 16x16 after 2x2 of stride 2; pooled to 8x8; 3x3 after 3x3 of stride 2; dense without bias.
  first, second = 32 * 32 * 9 * 3 * 128, 16 * 16 * 4 * 128 * 128
  third, dense = 3 * 3 * 9 * 128 * 192, 3 * 3 * 192 * 10
  net = ThreeConv((128, 128, 192))
  assert bench.flops_per_example(net, (32, 32, 3)) == 2 * (3 * (first + second + third + dense) - first)


def test_flops_of_strided_convolutions_by_hand():
  # VALID 3x3 of stride 2: 32 -> 15 -> 7 -> 3.
  first, second, third = 15 * 15 * 9 * 3 * 128, 7 * 7 * 9 * 128 * 128, 3 * 3 * 9 * 128 * 192
  work = 2 * (3 * (first + second + third + 9 * 192 * 10) - first)
  assert bench.flops_per_example(bench_cases.STRIDED[0], (32, 32, 3)) == work


@pytest.mark.parametrize('method', ['private', 'fedhe'])
def test_a_row_has_the_promised_fields(method):
  case = TINY._replace(method=method)
  row = bench.measure('tiny', case, bench.Config(mapping='chunks'), budget=0, peak=lambda: 1e9)
  assert row['case'] == 'tiny'
  assert {k: row[k] for k in bench.Config._fields} == bench.Config(mapping='chunks')._asdict()
  assert row['examples_per_second'] == pytest.approx(3 * 2 * 5 / row['seconds'])
  assert row['repetitions'] == [3]
  work = 30 * bench.flops_per_example(MLP((8,)), (4, 1, 1))
  assert row['share_of_matmul_peak'] == pytest.approx(work / row['seconds'] / 1e9)
  for name in ('compile_seconds', 'process_peak_mb', 'xla_temporary_mb', 'busy_elsewhere', 'matmul_gflops'):
    assert name in row
  assert 'tiny' in bench_report.table([row])


def test_mappings_train_the_same_clients():
  def after(mapping):
    turns, arguments = bench.prepare(TINY, TINY.nets[0], bench.Config(mapping=mapping))
    return jax.jit(turns)(*arguments)[0].params

  first, second = after('one by one'), after('vmap')
  assert all(bool(jnp.allclose(a, b, atol=1e-4)) for a, b in zip(*map(jax.tree.leaves, (first, second)), strict=True))


def test_ratios_are_to_the_faster_memory_format():
  row = lambda engine, speed: {'case': 'x', 'engine': engine, 'examples_per_second': speed, 'seconds': 1.0}
  rows = bench_report.compare([row('torch', 10.0), row('torch', 20.0), row('fedkd', 50.0)])
  assert [r['ratio_to_torch'] for r in rows] == [0.5, 1.0, 2.5]
  alone = bench_report.compare([{**row('torch', 0), 'note': 'not measured'}, row('fedkd', 50.0)])
  assert [r['ratio_to_torch'] for r in alone] == [None, None]


def test_suites_cover_the_promised_combinations():
  cpu = bench.configs('cpu', bench.CASES['conv10'], False)
  assert [c.lowering for c in cpu if c.engine == 'torch'] == ['contiguous', 'channels_last']
  ours = {c[1:4] for c in cpu if c.engine == 'fedkd'}
  assert {
    (lowering, mapping, 1) for lowering in ('native', 'matmul') for mapping in ('one by one', 'chunks', 'vmap')
  } <= ours
  gpu = bench.configs('gpu', bench.CASES['conv10'], False)
  assert {c.precision for c in gpu} == {'highest', 'tensorfloat32', 'bfloat16'}


def test_the_jit_loop_trains():
  row = bench.measure('tiny', TINY, bench.Config('jit loop', 'native'), budget=0, peak=lambda: 1e9)
  assert row['examples_per_second'] == pytest.approx(3 * 2 * 5 / row['seconds'])


def test_peers_are_named_where_they_are_faster():
  row = lambda engine, speed: {'case': 'x', 'engine': engine, 'examples_per_second': speed}
  rows = [
    row('fedkd', 20.0),
    row('torch', 10.0),
    row('torch', 40.0),
    row('jit loop', 5.0),
    {**row('torch', 90), 'note': 'n'},
  ]
  assert list(bench_report.against(rows)) == ['x: fedkd is 0.50 x torch (SLOWER)', 'x: fedkd is 4.00 x jit loop']
  engines = [c.engine for c in bench.configs('peers', bench_cases.CASES['lenet'], False)]
  assert set(engines) == {'torch', 'torch, files', 'jit loop', 'fedkd'}


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
  lines = bench_report.overview({'cores': 2, 'cases': {'x': 'a net', 'y': 'another'}, 'rows': rows}).splitlines()
  assert lines == [
    '| case | PyTorch | fedkd, one device |',
    '| --- | --- | --- |',
    '| a net | 10 examples/s | 30 examples/s, 3.00 x, 50% of matmul peak, 1.0 s to compile, 1,000 MB |',
    '| another | - | - |',
  ]
