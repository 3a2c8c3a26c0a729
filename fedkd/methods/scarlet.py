"""SCARLET: Azuma, Nishio, Kitagawa, Nakano, Tanimura, "Soft-Label Caching and Sharpening for Communication-Efficient
Federated Distillation", 2025, arXiv 2504.19602.

DS-FL whose labels are cached for some rounds on both sides, with a power in place of the softmax.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from fedkd import aggregate, distillation, examples, local, servers
from fedkd.checks.ranges import Count, Positive, Weight, checked
from fedkd.methods.dsfl import Inference, dsfl, evaluated
from fedkd.types import Client, Download, Masked, Method


class ClientState(NamedTuple):
  """The client's copies of labels of all public rows, {'label': [N, C], 'there': bool[N]}, and DS-FL's state."""

  cache: dict
  training: distillation.ClientState


@checked
def scarlet(
  tx: optax.GradientTransformation,
  subset: Count = 1000,
  digest_epochs: Positive = 5,
  digest_batch: Positive = 50,
  epochs: Count | None = 5,
  steps: Count | None = None,
  batch: Positive = 50,
  exponent: Weight = 2.0,
  duration: Count = 50,
  published_off_by_one: bool = False,
  inference: Inference = 'server',
  keep_optimizer: bool = True,
  rule: aggregate.AnyRule = aggregate.mean,
) -> Method:
  """Soft labels of public images, cached.

  Learned, averaged: as in `dsfl`. Sent: up, probabilities on those rows of a round whose label is no longer cached;
  down, labels of which a client has no copy, a signal and the number of each row, and the next rows to predict.

  Args:
    tx, subset, digest_epochs, digest_batch, epochs, steps, batch, inference, keep_optimizer, rule: as in `dsfl`.
    exponent: of the mean probabilities (2 in the authors' code, 1 in their reproducibility branch). May be traced.
    duration: rounds for which a label is valid; 0 is DS-FL with aggregation='power'.
    published_off_by_one: as in the authors' code, at the end of a label's life the server uses a new one while the
      clients keep the old.

  Raises:
    ValueError: as `dsfl`, and where the clients' caches would not fit into memory.
  """
  training: dict[str, Any] = {'epochs': epochs, 'steps': steps, 'batch': batch, 'keep_optimizer': keep_optimizer}
  distilling: dict[str, Any] = {'subset': subset, 'digest_epochs': digest_epochs, 'digest_batch': digest_batch}
  plain = dsfl(tx, **distilling, **training, aggregation='power', exponent=exponent, inference='own').client

  def init(key, model, data, variables):
    rows = examples.public(data).index.shape[0]
    cache = {'label': jnp.zeros((rows, model.classes)), 'there': jnp.zeros(rows, bool)}
    return ClientState(cache, plain.init(key, model, data, variables))

  def step(key, t, model, state, down, data):
    sent, signal, last = down.own['consensus'], down.own['signal']['index'], down.shared['last']['index']
    labels, there = state.cache['label'], state.cache['there']
    at = servers.places(data)[last.value]
    target = jnp.where(sent.valid[:, None], sent.value, labels[at])
    # Of rows without a label, as after missed messages, nothing is distilled.
    lesson = Masked(target, last.valid & (sent.valid | there[at]))
    stored, emptied = (last.valid & (signal.value == s) for s in (servers.STORE, servers.DISCARD))
    cache = {
      'label': labels.at[at].set(jnp.where(stored[:, None], target, labels[at])),
      'there': there.at[at].set((there[at] | stored) & ~emptied),
    }
    received = {'consensus': lesson, 'last': down.shared['last'], 'index': down.shared['index'].value}
    training, up, info = plain.step(key, t, model, state.training, Download(received), data)
    up = {'knowledge': Masked(up['knowledge'], down.shared['index'].valid)}
    return ClientState(cache, training), up, info

  sharpen = servers.sharpening('power', exponent=exponent)
  server = servers.cached_consensus(
    subset, rule, duration=duration, published_off_by_one=published_off_by_one, sharpen=sharpen
  )
  own = Method(Client(init, step), server, lambda state, g: local.variables(state.client[g].training.learner))
  return evaluated(own, inference, tx, local.Work(digest_batch, epochs=digest_epochs))
