"""Selective-FD: three rounds of a twin in NumPy, given which images each client selects."""

import jax.numpy as jnp
import numpy as np
import optax

from fedkd import methods
from twins import OWN, RATE, assert_alike, made_with, parties

SUBSET, AMBIGUITY = 8, 0.95
MANY = 840  # a multiple of every number of rows up to 8: a batch holds all of them as often


def test_three_rounds_are_those_of_the_twin():
  how = {'digest_steps': 2, 'digest_batch': MANY, 'steps': 2, 'batch': 12, 'auxiliary': 20, 'ambiguity': AMBIGUITY}
  method = methods.selective_fd(optax.sgd(RATE), SUBSET, **how)
  made = made_with(method)
  _, y, clients = parties(made, lambda client: client.training.learner)
  public, selected = list(np.asarray(made.data[0].public.index)), np.random.default_rng(0).random((3, 10)) < 0.5
  client = made.state.client[0]._replace(selected=jnp.asarray(selected))
  state, rows, target, counts = made.state._replace(client=(client,)), None, None, []
  for t in range(3):
    index = np.asarray(state.server.next_rows)
    state, report = made.run(1, state, t, length=1)
    info = {name: np.asarray(values)[0] for name, values in report.info[0].items()}
    for k, party in enumerate(clients):
      distilled = [party.train(rows, target) for _ in range(2 * (t > 0))]
      np.testing.assert_allclose(info['distill_loss'][k], np.mean(distilled or np.nan), rtol=1e-4)
      np.testing.assert_allclose(
        info['loss'][k], np.mean([party.train(OWN[k], y[OWN[k]]) for _ in range(2)]), rtol=1e-4
      )
    predicted = np.stack([party.probabilities(index) for party in clients])
    mine = selected[:, [public.index(i) for i in index]]  # [clients, rows]
    heard = mine.any(0)
    mean = (predicted * mine[..., None]).sum(0)[heard] / mine.sum(0)[heard, None]
    clear = 2 * (1 - mean.max(1)) < AMBIGUITY
    rows, target = index[heard][clear], mean[clear]
    on = np.asarray(state.server.has_consensus)
    np.testing.assert_array_equal(index[on], rows)
    np.testing.assert_allclose(np.asarray(state.server.consensus)[on], target, rtol=1e-4, atol=1e-6)
    counts.append((SUBSET, heard.sum(), len(rows), mine.sum()))
    assert_alike(state.client[0].training.learner, clients)
  drawn, heard, kept, votes = np.sum(counts, 0)
  assert votes > drawn > heard > kept > 0  # some images are nobody's, of some the mean is ambiguous
