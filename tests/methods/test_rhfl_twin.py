"""RHFL: three rounds of a twin in NumPy."""

import numpy as np
import optax
import pytest

from fedkd import methods
from helpers import softmax
from twins import OWN, RATE, assert_alike, made_with, parties

CE, RCE, BETA, SUBSET, MOMENTUM = 0.3, 0.7, 0.5, 8, 0.9


def symmetric(p, y):
  """(the losses [B] of probabilities and one-hot labels [B, C], their gradients to the logits)."""
  log = np.log(np.where(y > 0, 1, 1e-4))
  losses = -CE * (y * np.log(p)).sum(1) - RCE * (p * log).sum(1)
  return losses, CE * (p - y) - RCE * p * (log - (p * log).sum(1, keepdims=True))


@pytest.mark.parametrize('restart', [True, False])
def test_three_rounds_are_those_of_the_twin(restart):
  """With momentum, which a public batch has none of where each begins with an optimizer of its own."""
  tx, weights = optax.sgd(RATE, MOMENTUM), {'ce': CE, 'rce': RCE, 'beta': BETA}
  method = methods.rhfl(tx, SUBSET, 2, SUBSET, epochs=2, batch=12, restart=restart, **weights)
  made = made_with(method)
  _, y, clients = parties(made, lambda client: client.learner)
  state, last, weight, predicted, lost = made.state, None, None, None, None
  for t in range(3):
    index = np.asarray(state.server.next_rows)
    state, report = made.run(1, state, t, length=1)
    info = {name: np.asarray(values)[0] for name, values in report.info[0].items()}
    for k, party in enumerate(clients):
      if t:
        others = [j for j in range(3) if j != k]
        target = np.einsum('j,jmc->mc', weight[others], predicted[others])
        party.restart(momentum=0 if restart else MOMENTUM)
        distilled = [party.train(last, target) for _ in range(2)]
        np.testing.assert_allclose(info['distill_loss'][k], np.mean(distilled), rtol=1e-4)
      losses = []
      party.restart(MOMENTUM)
      for _ in range(2):
        each, slope = symmetric(party.probabilities(OWN[k]), y[OWN[k]])
        party.descend(OWN[k], slope)
        losses.append(each.mean())
      np.testing.assert_allclose(info['loss'][k], np.mean(losses), rtol=1e-4)
    before, last = lost, index
    predicted = np.stack([party.probabilities(index) for party in clients])
    lost = np.array([symmetric(party.probabilities(OWN[k]), y[OWN[k]])[0].mean() for k, party in enumerate(clients)])
    gain = (before - lost) / lost if t else None
    weight = softmax(1 / 2 + BETA * gain / gain.sum()) if t else np.full(3, 1 / 2)
    np.testing.assert_allclose(state.server.prediction, predicted, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(state.server.loss, lost, rtol=1e-4)
    np.testing.assert_allclose(state.server.weight, weight, rtol=1e-4)
    assert_alike(state.client[0].learner, clients)
