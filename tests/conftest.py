"""Before JAX is imported: the CPU, cheap compilation, and a compilation cache of the tests' own."""

import gc
import importlib.metadata
import os
import pathlib

os.environ['JAX_PLATFORMS'] = os.environ.get('FEDKD_TEST_PLATFORM', 'cpu')
# Compilation is the test budget; the laws hold at any optimisation level.
CHEAP = '--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true'
CHEAP += ' --xla_cpu_parallel_codegen_split_count=1 --xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE'
if tuple(map(int, importlib.metadata.version('jaxlib').split('.')[:2])) < (0, 11):  # where XLA still knows it
  CHEAP += ' --xla_cpu_use_fusion_emitters=false'
os.environ['XLA_FLAGS'] = f'{CHEAP} {os.environ.get("XLA_FLAGS", "")}'.strip()  # what was set before wins
os.environ.setdefault('JAX_TRACEBACK_IN_LOCATIONS_LIMIT', '0')  # nobody looks where an operation was written
ROOT = pathlib.Path(os.environ.get('FEDKD_CACHE') or '~/.cache/fedkd').expanduser()
# In the environment, so that the programs that tests start share it.
os.environ['JAX_COMPILATION_CACHE_DIR'] = str(ROOT / 'xla-tests')
os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0.2'
os.environ['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'

import hypothesis  # noqa: E402
import pytest  # noqa: E402

hypothesis.settings.register_profile('fedkd', deadline=None, derandomize=True, database=None, max_examples=15)
hypothesis.settings.load_profile('fedkd')


def pytest_collection_finish():
  """What every one of the five thousand programs of the tests would pay for again."""
  # Tracing makes lasting objects by the million, which the garbage collector would look through again and again.
  gc.freeze()
  gc.set_threshold(100_000, 50, 100)
  _lower_in_one_context()


def pytest_unconfigure():
  """pytest and Python each look through all of these objects once more before they end."""
  gc.freeze()


def _lower_in_one_context():
  """JAX makes an MLIR context, with all its dialects, for every program that it lowers: a fifth of the tests' time."""
  from jax._src.interpreters import mlir
  from jaxlib.mlir import ir

  if not hasattr(mlir, 'make_ir_context'):  # private, and an economy: the tests pass without
    return
  make = mlir.make_ir_context
  shared = make()
  # A program that is lowered while another one is would be written into it.
  mlir.make_ir_context = lambda: shared if ir.Context.current is None else make()


@pytest.fixture(autouse=True)
def _no_figures(request, monkeypatch):
  """A tiny run draws its figures as long as it trains; tests marked `figures` look at them."""
  if 'figures' not in request.keywords:
    monkeypatch.setattr('fedkd.analysis.figures.save_figures', lambda *args: None)


@pytest.fixture
def compiled():
  """The names of programs as they are compiled."""
  import jax

  names = []
  listen = lambda event, _, fun_name='', **more: names.append(fun_name) if 'backend_compile' in event else None
  jax.monitoring.register_event_duration_secs_listener(listen)
  yield names
  jax.monitoring.unregister_event_duration_listener(listen)
