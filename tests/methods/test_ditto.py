"""Ditto on softmax regression, where the whole of a client's rows is one batch."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import local, methods
from fedkd.methods.fedprox import proximal
from helpers import assert_same_bits, row
from twins import PARTS, RATE, Party, assert_alike, made_with, numbers_of, parties

HOW = {'steps': 3, 'batch': 16}  # of 16, 8 and 4 rows every one as often
SGD = optax.sgd(RATE)


def test_without_the_pull_it_is_private_beside_fedavg():
  both, alone = made_with(methods.ditto(SGD, **HOW, weight=0.0)), made_with(methods.private(SGD, **HOW))
  assert_same_bits(both.run()[0].client[0].params, alone.run()[0].client[0].params)


@pytest.mark.parametrize('weight', [0.5, 10.0])
def test_the_global_model_is_fedavgs_whatever_the_pull(weight):
  both, average = made_with(methods.ditto(SGD, **HOW, weight=weight)), made_with(methods.fedavg(SGD, **HOW))
  assert_same_bits(both.run()[0].server, average.run()[0].server)


@pytest.mark.parametrize('weight', [0.7, 1 / RATE])
def test_three_rounds_are_those_of_a_twin_in_numpy(weight):
  """At weight = 1 / rate a step ends at the received model less the last gradient."""
  made = made_with(methods.ditto(SGD, **HOW, weight=weight))
  x, true, own = parties(made)
  w = numbers_of(made.state.server['params'])
  for _ in range(3):
    moved = []
    for party, rows in zip(own, PARTS, strict=True):
      common = Party(x, row(made.state.client[0], 0))
      common.w = w
      for _ in range(HOW['steps']):
        slope = x[rows].T @ (party.probabilities(rows) - true[rows]) / len(rows)
        party.w = party.w - RATE * (slope + weight * (party.w - w))
        common.w = common.w - RATE * (x[rows].T @ (common.probabilities(rows) - true[rows]) / len(rows))
      moved.append(common.w)
    w = np.average(moved, 0, [len(rows) for rows in PARTS])
  assert_alike(made.run()[0].client[0], own)


def test_a_quadratic_ends_between_the_own_optimum_and_the_global_one():
  own_optimum, centre, weight = 3.0, -1.0, 0.5
  quadratic = lambda v, stats, key, index: ((v['a'] - own_optimum) ** 2 / 2, (stats, {}))
  learner = local.start({'params': {'a': np.float32(0)}, 'batch_stats': {}}, SGD)
  loss = proximal(quadratic, {'a': np.float32(centre)}, weight)
  after, _ = local.fit(jax.random.key(0), learner, SGD, loss, (jnp.zeros(1), 1), local.Work(1, 200))
  assert float(after.params['a']) == pytest.approx((own_optimum + weight * centre) / (1 + weight), abs=1e-5)
