"""Losses for one example, as pure functions; map them over a batch with `jax.vmap`."""

import chex
import jax
import jax.numpy as jnp


def masked_squared_error(output, target, valid):
  """Mean squared distance of an output to received knowledge; 0, with zero gradient, where there is none.

  FedHe (Chan and Ngai, 2021), the knowledge term of Eq. 13, with MSE over the logits as in the authors' code.

  Args:
    output: [C], what the client computed.
    target: [C], what it received; no gradient flows into it. Ignored (may be NaN) unless `valid`.
    valid: bool[], whether the target exists.

  Returns:
    float[].
  """
  chex.assert_rank([output, target, valid], [1, 1, 0])
  target = jnp.where(valid, jax.lax.stop_gradient(target), 0)
  # Masking both sides, not the product: 0 * NaN would be NaN, in the value and in the gradient.
  return jnp.mean(jnp.square(jnp.where(valid, output, 0) - target))
