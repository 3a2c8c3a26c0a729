"""FCCL: three rounds of a twin in NumPy, its gradients by finite differences."""

import numpy as np
import optax
import pytest

from fedkd import methods
from helpers import CLASSES, softmax
from twins import OWN, RATE, assert_alike, made_with, parties, slope_of

OFF, INTER, INTRA, TEMPERATURE, SUBSET, MOMENTUM = 0.2, 1.5, 0.6, 2.0, 8, 0.9


def apart(z, target):
  """How far the correlations of outputs with targets [B, C] are from the identity."""
  one, other = ((a - a.mean(0)) / a.std(0, ddof=1) for a in (z, target))
  c, same = one.T @ other / len(z), np.eye(CLASSES)
  return (same * (1 - c) ** 2 + OFF * (1 - same) * (1 + c) ** 2).sum()


def revisited(z, y, *teachers):
  """The loss on own rows of logits [B, C], given the logits of the model of the round before and the first one."""
  loss = -(y * np.log(softmax(z))).sum(1).mean()
  for weight, teacher in zip((INTER, INTRA), teachers, strict=True):
    p, q = softmax(teacher / TEMPERATURE), softmax(z / TEMPERATURE)
    loss += weight * (p * np.log(p / q)).sum(1).mean()
  return loss


@pytest.mark.parametrize('restart', [True, pytest.param(False, marks=pytest.mark.slow)])
def test_three_rounds_are_those_of_the_twin(restart):
  """With momentum, which a public batch has none of where each begins with an optimizer of its own."""
  weights = {'off_diagonal': OFF, 'inter': INTER, 'intra': INTRA, 'temperature': TEMPERATURE}
  tx = optax.sgd(RATE, MOMENTUM)
  method = methods.fccl(tx, SUBSET, 2, SUBSET, epochs=2, batch=12, restart=restart, **weights)
  made = made_with(method)
  _, y, clients = parties(made, lambda client: client.learner)
  first = [party.logits(own) for party, own in zip(clients, OWN, strict=True)]
  state, last, target = made.state, None, None

  def minimise(party, rows, loss, *given):
    z = party.logits(rows)
    party.descend(rows, len(rows) * slope_of(lambda z: loss(z, *given), z))
    return loss(z, *given)

  for t in range(3):
    index = np.asarray(state.server.next_rows)
    state, report = made.run(1, state, t, length=1)
    info = {name: np.asarray(values)[0] for name, values in report.info[0].items()}
    for k, (party, own) in enumerate(zip(clients, OWN, strict=True)):
      teachers = party.logits(own), first[k]
      party.restart(momentum=0 if restart else MOMENTUM)
      distilled = [minimise(party, last, apart, target) for _ in range(2 * (t > 0))]
      np.testing.assert_allclose(info['distill_loss'][k], np.mean(distilled or np.nan), rtol=1e-4)
      party.restart(MOMENTUM)
      losses = [minimise(party, own, revisited, y[own], *teachers) for _ in range(2)]
      np.testing.assert_allclose(info['loss'][k], np.mean(losses), rtol=1e-4)
    target, last = np.mean([party.logits(index) for party in clients], 0), index
    np.testing.assert_allclose(state.server.consensus, target, rtol=1e-4, atol=1e-5)
    assert_alike(state.client[0].learner, clients)
