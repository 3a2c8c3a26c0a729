"""FLOPs of a net, and the peak FLOP/s of the machine, for `launch.bench`."""

import math
import time

import jax
import jax.numpy as jnp

SIZES = ((1024, 20), (2048, 6), (4096, 3))  # of square matrices, and how often
LARGE = ((8192, 10),)  # enough for an accelerator


def matmul_flops(jaxpr):
  """FLOPs of every matmul and convolution in a jaxpr, in order: 2 per multiply-add."""
  found = []
  for eqn in jaxpr.eqns:
    out = math.prod(eqn.outvars[0].aval.shape) if eqn.outvars else 0
    shapes = [v.aval.shape for v in eqn.invars]
    if eqn.primitive.name == 'dot_general':
      (contracted, _), _ = eqn.params['dimension_numbers']
      found.append(2 * out * math.prod(shapes[0][i] for i in contracted))
    elif eqn.primitive.name == 'conv_general_dilated':
      features = shapes[1][eqn.params['dimension_numbers'].rhs_spec[0]]
      found.append(2 * out * math.prod(shapes[1]) // features)
    for inner in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda p: hasattr(p, 'eqns')):
      inner = getattr(inner, 'jaxpr', inner)
      found += matmul_flops(inner) if hasattr(inner, 'eqns') else []
  return found


def flops_per_example(net, shape):
  """FLOPs to train `net` on one image: three forward passes less the gradient of the image, which is not needed."""
  image = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
  net = net.clone(lowering='native')
  variables = jax.eval_shape(lambda x: net.init(jax.random.key(0), x, False), image)
  forward = matmul_flops(jax.make_jaxpr(lambda v, x: net.apply(v, x, False))(variables, image).jaxpr)
  return 3 * sum(forward) - forward[0]


def multiplier(precision):
  """size -> a function that multiplies two square matrices, and waits; 'bfloat16': matrices of that type."""

  def of_size(size):
    a = jax.random.normal(jax.random.key(0), (size, size), jnp.bfloat16 if precision == 'bfloat16' else jnp.float32)
    multiply = jax.jit(jnp.matmul)
    return lambda: jax.block_until_ready(multiply(a, a))

  return of_size


def peak_matmul(of_size, sizes=SIZES):
  """The machine's matmul FLOP/s: best of some sizes, several repetitions each. `of_size`: as `multiplier`."""
  best = 0.0
  for size, repeats in sizes:
    multiply = of_size(size)
    multiply()
    for _ in range(repeats):
      start = time.perf_counter()
      multiply()
      best = max(best, 2 * size**3 / (time.perf_counter() - start))
  return best
