"""What `repr` of federations, simulations and states says."""

import flax.linen as nn
import jax
import numpy as np
import optax

import fedkd
from fedkd import models, summary

Y = np.arange(12) % 2
PARTS = [[0, 1, 2], [3, 4], [5], [6, 7]]
X = np.zeros((12, 3), np.float32)
NETS = [models.MLP((4,), classes=2), models.MLP((5,), classes=2)]


def test_of_everything_that_a_federation_may_have():
  x = np.full((12, 2, 3, 1), 7, np.uint8)
  made = fedkd.federation(
    x, Y, PARTS, [NETS[0], NETS[1], NETS[1], NETS[0]], shared=[[0, 1], [3], [5], [6]], validation=[8, 9], domains=Y
  )
  lines = repr(made).splitlines()
  assert lines == [
    'Federation of 4 clients in 2 groups of equal models',
    '  MLP 4: 2 clients (0, 3)',
    '  MLP 5: 2 clients (1, 2)',
    '  examples: 12 of uint8[2, 3, 1]',
    '  seen by models: (x - mean) * scale; mean: 7, scale: 0.003922',
    '  public: 5 examples',
    '  validation: 2 examples',
    '  shared: some examples of every client',
    '  domains: one of every example',
  ]


def test_says_which_normalisation_was_chosen():
  told = lambda x, **more: repr(fedkd.federation(x, Y, PARTS, nn.Dense(2), **more)).split('seen by models: ')[1]
  x = np.arange(36, dtype=np.float32).reshape(12, 3)
  assert told(x) == 'as they are'
  assert told(x, normalise=(1.5, 2.0)) == '(x - mean) * scale; mean: 1.5, scale: 2'
  mean = np.arange(3)
  assert told(x, normalise=(mean, 2.0)) == f'(x - mean) * scale; mean: {mean.dtype}[3] from 0 to 2, scale: 2'


def test_is_short_and_its_groups_can_be_counted():
  x = np.zeros((12, 3), np.float32)
  made = fedkd.federation(
    x,
    Y,
    np.arange(12),
    [nn.Dense(2, kernel_init=nn.initializers.normal(i)) for i in range(1, 11)] + [nn.Dense(2)] * 2,
    domains=Y,
  )
  lines = repr(made).splitlines()
  assert len(lines) <= 12
  assert lines[0] == 'Federation of 12 clients in 11 groups of equal models'
  assert lines[5] == '  and 7 groups more'
  assert max(map(len, lines)) <= 100
  one = fedkd.federation(x, Y, np.arange(12), nn.Dense(2))
  assert repr(one).splitlines()[1] == '  Dense: 12 clients (0, 1, 2, 3, 4, 5, ...)'


def test_of_traced_tables():
  made = fedkd.federation(np.zeros((12, 3), np.float32), Y, PARTS, nn.Dense(2), public=[8, 9])
  told = []
  jax.eval_shape(lambda arrays: told.append(repr(type(made)(made.groups, *arrays))), made[1:])
  assert told == [repr(made)]


def test_a_simulation_says_what_a_round_costs_a_client():
  made = fedkd.simulation(
    fedkd.methods.fedhe(optax.sgd(0.1), steps=1, batch=2), fedkd.federation(X, Y, PARTS, NETS * 2)
  )
  lines = repr(made).splitlines()
  assert lines[0] == 'Simulation of 4 clients in 2 groups of equal models'
  assert lines[-3:] == [
    '  a round, for each client at most:',
    '    MLP 4: 26 parameters; up 4 knowledge (16 B) + 2 labels (8 B); down 4 knowledge (16 B) + 2 labels (8 B)',
    '    MLP 5: 32 parameters; up 4 knowledge (16 B) + 2 labels (8 B); down 4 knowledge (16 B) + 2 labels (8 B)',
  ]


def test_a_state_says_its_round_and_size():
  made = fedkd.simulation(
    fedkd.methods.private(optax.sgd(0.1), steps=1, batch=2), fedkd.federation(X, Y, PARTS, NETS[0])
  )
  state = made.init(jax.random.key(0))
  size = 4 * summary.size_of(made.model(state, 0)[1]) / 1e6
  assert repr(state) == f'SimulationState: round 0, {size:.3f} MB of clients, 0.000 MB of the server'
  mapped = jax.vmap(made.init)(jax.random.split(jax.random.key(0), 3))
  assert repr(mapped).startswith('SimulationState: round 0, 3 seeds, ')
  told = []
  jax.eval_shape(lambda state: told.append(repr(state)), state)  # traced, its round is unknown
  assert told[0].startswith('SimulationState: round, ')
