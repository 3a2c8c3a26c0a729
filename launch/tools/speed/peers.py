"""Other systems' way, for `launch.bench`: a jitted step in a Python loop over clients and batches, as in fedjax."""

import jax
import numpy as np
import optax

from fedkd import local
from fedkd.models.base import Preprocessed
from fedkd.types import Pool


def seconds_per_round(case, net, images, labels, rows, timed):
  """One round of `case` with `net`, timed by `timed` (a function to call -> seconds).

  `lax.conv`, Adam, one client after the other, batches cut by NumPy and handed to the device one by one.

  Args:
    images, labels, rows: uint8 [N, H, W, channels], int [N], int [clients, n].
  """
  model = Preprocessed(net.clone(lowering='native'), np.float32(0), np.float32(1 / 255))
  tx, draw = optax.adam(1e-3), np.random.default_rng(0)
  fresh = jax.jit(lambda: model.init(jax.random.key(0), images[:1], False))()
  variables = {'params': fresh['params'], 'batch_stats': fresh.get('batch_stats', {})}
  learners = [local.start(variables, tx) for _ in rows]

  @jax.jit
  def step(learner, key, image, label):
    loss_fn = local.supervised(model, Pool(image, label))
    grads, (batch_stats, _) = jax.grad(loss_fn, has_aux=True)(
      learner.params, learner.batch_stats, key, np.arange(case.batch)
    )
    return local.update(learner, tx, grads, batch_stats)

  def one_round():
    for k, own_rows in enumerate(rows):
      for i in range(case.steps):
        chosen = own_rows[draw.permutation(len(own_rows))[: case.batch]]
        learners[k] = step(learners[k], jax.random.key(i), images[chosen], labels[chosen])
    jax.block_until_ready(learners)

  return timed(one_round)
