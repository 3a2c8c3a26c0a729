"""A comparison of three methods in numbers that are made up: three seeds, four clients, two architectures."""

import numpy as np
import pytest

from fedkd.analysis import tidy

ROUNDS = (0, 10, 20)
KNOWN = {'architecture': ['MLP 8', 'MLP 8', 'MLP 16', 'MLP 16'], 'examples': [10, 20, 30, 40]}


def rows(level, sent, seeds=3, test_rows=(50, 50, 50), rounds=ROUNDS):
  """Evaluations of a run whose accuracy grows to about `level`, and which sends so many bytes a round, each way."""
  draw = np.random.default_rng(int(1000 * level))
  out = []
  for i, round in enumerate(rounds):
    accuracy = np.clip(level * (1 + i) / len(rounds) + draw.normal(size=(seeds, 4)) / 50, 0, 1)
    ledger = {name: [float(sent * round)] * seeds for name in ('bytes_up', 'bytes_down')}
    one = {'seeds': list(range(seeds)), 'round': round, 'turns': [4 * round] * seeds, 'test_rows': test_rows[i]}
    one |= {'examples': [64.0 * round] * seeds, 'seconds': 0.5 * round, 'loss': [None if i == 0 else 1 / i] * seeds}
    one |= {'accuracy': accuracy.mean(1).tolist(), 'accuracy_per_client': accuracy.tolist()}
    out.append({**one, **ledger})
  return out


def tidied(name, *args, run=None, **options):
  return tidy.tidy(rows(*args, **options), KNOWN, run=run or name, method=name)


@pytest.fixture(scope='session')
def frame():
  runs = {'private': (0.5, 0), 'fedhe': (0.6, 1e3), 'fedmd': (0.7, 1e6)}
  return tidy.concatenated(tidied(name, *of) for name, of in runs.items())


@pytest.fixture(scope='session')
def many():
  """Eleven methods that end at nearly the same accuracy."""
  names = [
    'agg',
    'fd',
    'fedavg',
    'feddf',
    'fedgen',
    'fedgh',
    'fedh2l',
    'fedhe',
    'fedkd',
    'fedmd',
    'fedproto',
    'private',
  ]
  return tidy.concatenated(tidied(name, 0.6 + 0.002 * i, 1e5 * (1 + i)) for i, name in enumerate(names))


@pytest.fixture
def make():
  return tidied
