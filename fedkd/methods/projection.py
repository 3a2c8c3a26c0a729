"""Gradient projection: one gradient against another, as pure functions over pytrees.

A projection is `f(grad, reference) -> (direction, info)`, where `info` has `inner` and `cosine` of the two gradients,
`violated` (1 if they disagree, inner < 0) and the dual variable `dual`.
"""

import jax
import jax.numpy as jnp
import optax

from fedkd.types import PyTree


def _ratio(a, b):
  """a / b, and 0 where b is 0, in the value and in every gradient."""
  some = b > 0
  return jnp.where(some, a / jnp.where(some, b, 1.0), 0.0)


def _info(grad, reference, inner, dual) -> dict:
  norms = jnp.sqrt(optax.tree.vdot(grad, grad) * optax.tree.vdot(reference, reference))
  return {'cosine': _ratio(inner, norms), 'violated': jnp.float32(inner < 0), 'dual': dual}


def _add(a, scale, b):
  return jax.tree.map(lambda x, y: x + scale * y, a, b)


def qp(grad: PyTree, reference: PyTree, margin: float = 0.0, ridge: float = 0.0) -> tuple[PyTree, dict]:
  """The direction closest to `grad` whose inner product with `reference` is not negative.

  FedH2L (Li et al., 2021, Eqs. 9-15): min |g - grad|^2 subject to <g, reference> >= 0 has one constraint, so its dual
  is a number, v = max(margin, -<grad, reference> / (|reference|^2 + ridge)), and g = grad + v * reference. A zero
  reference is no constraint: v = 0. `margin` and `ridge` are 0 in the paper, 0.5 and 1e-3 in the code of GEM.

  Args:
    grad, reference: pytrees of one structure; all leaves together are one vector.
    margin, ridge: see above.
  """
  inner, square = optax.tree.vdot(grad, reference), optax.tree.vdot(reference, reference)
  dual = jnp.where(square > 0, jnp.maximum(margin, _ratio(-inner, square + ridge)), 0.0)
  return _add(grad, dual, reference), _info(grad, reference, inner, dual)


def none(grad: PyTree, reference: PyTree) -> tuple[PyTree, dict]:
  """`grad` unchanged; the info describes the gradients that a projection would have had."""
  return grad, _info(grad, reference, optax.tree.vdot(grad, reference), jnp.float32(0))


def pcgrad(grad: PyTree, reference: PyTree) -> tuple[PyTree, dict]:
  """The sum of both gradients, each projected against the other where they disagree (Yu et al., 2020, code).

  PCGrad's projection of `grad` is that of `qp`; what differs is that `reference` is projected too, and added.
  """
  first, info = qp(grad, reference)
  second, _ = qp(reference, grad)
  return _add(first, 1.0, second), info
