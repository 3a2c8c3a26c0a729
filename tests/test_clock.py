"""Time without compilation."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedkd
from fedkd import clock
from helpers import CLASSES, pool

EVENT = '/jax/core/compile/backend_compile_duration'


def test_spans_that_overlap_count_once():
  assert clock.covered([]) == 0
  assert clock.covered([(4.0, 5.0), (0.0, 2.0), (1.0, 3.0), (0.5, 1.0)]) == 4


def spend(event, seconds):
  """Work of so many seconds, of which JAX says that they went into `event`."""
  begun = time.time()
  time.sleep(seconds)
  jax.monitoring.record_event_time_span(event, begun, begun + seconds)
  return event


def test_what_jax_compiles_is_left_out_and_other_work_is_not():
  assert clock.timed(lambda: spend('/jax/some/thing', 0.05))[1] >= 0.05
  out, seconds = clock.timed(lambda: spend(EVENT, 0.05))
  assert (out, 0 <= seconds < 0.05) == (EVENT, True)


def test_jax_tells_of_its_compilations_and_nobody_listens_afterwards(monkeypatch):
  told = []
  monkeypatch.setattr(clock, 'covered', lambda spans: told.append(spans) or 0.0)
  clock.timed(lambda: jax.jit(lambda x: jnp.cos(x) + 41)(1.0).block_until_ready())
  assert len(told[0]) >= 3  # traced, lowered, compiled
  before = len(told[0])
  spend(EVENT, 0.0)
  assert len(told[0]) == before
  with pytest.raises(ZeroDivisionError):
    clock.timed(lambda: 1 / 0)
  assert len(told) == 1


def test_a_history_has_the_seconds_of_the_clock(monkeypatch):
  images = pool()
  federation = fedkd.federation(images.example, images.label, [np.arange(30)], fedkd.models.MLP((), classes=CLASSES))
  simulation = fedkd.simulation(fedkd.methods.private(optax.sgd(0.1), steps=1, batch=8), federation)
  monkeypatch.setattr(clock, 'timed', lambda work: (work(), 0.25))
  frame = fedkd.train(simulation, jax.random.key(0), rounds=4, every=2)[1].frame()
  assert frame[frame['metric'] == 'seconds']['value'].tolist() == [0, 0.25, 0.5]
