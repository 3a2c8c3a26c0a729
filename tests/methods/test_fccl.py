"""FCCL: the cross-correlation of outputs over a batch."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import methods, models, plan
from fedkd.methods.fccl import correlation_loss
from helpers import CLASSES, augmented, problem

RANDOM = np.random.default_rng(0)
OUTPUT, TARGET = RANDOM.normal(size=(2, 6, 3))


def found(output, target, off_diagonal=0.1):
  return correlation_loss(jnp.asarray(output), jnp.asarray(target), off_diagonal)


def test_the_loss_is_that_of_a_twin_in_numpy():
  one, other = ((z - z.mean(0)) / z.std(0, ddof=1) for z in (OUTPUT, TARGET))
  c = one.T @ other / 6
  squares = sum((1 - c[u, u]) ** 2 + 0.1 * sum((1 + c[u, v]) ** 2 for v in range(3) if v != u) for u in range(3))
  np.testing.assert_allclose(found(OUTPUT, TARGET), squares, rtol=1e-5)


def test_neither_scale_nor_shift_of_a_class_matters():
  np.testing.assert_allclose(found(OUTPUT, TARGET), found(3 * OUTPUT + [1, 2, 3], TARGET / 5 - 4), rtol=1e-4)
  np.testing.assert_allclose(found(OUTPUT, OUTPUT, 0.0), 3 * (1 - 5 / 6) ** 2, rtol=1e-4)


def test_a_class_without_variance_has_a_finite_gradient_and_targets_have_none():
  flat = OUTPUT * [1, 1, 0]
  assert np.isfinite(jax.grad(found)(jnp.asarray(flat), flat)).all()
  assert not np.asarray(jax.grad(found, 1)(OUTPUT, jnp.asarray(TARGET))).any()


def test_correlations_over_one_example_are_refused():
  with pytest.raises(ValueError, match=r'digest_batch=1 must be .*at least 2'):
    methods.fccl(optax.sgd(0.1), digest_batch=1)


def test_the_models_that_a_client_had_see_the_images_that_it_sees():
  """Under crops and flips a model that does not learn has no divergence from itself."""
  loss = []
  for weight in (0.0, 1.0):
    method = methods.fccl(optax.sgd(0.0), epochs=1, batch=8, subset=0, digest_batch=4, inter=weight, intra=weight)
    made = augmented(problem(method, [models.MLP((), classes=CLASSES)], [2], plan.synchronous()([2], 1)))
    loss.append(made.run()[1].info[0]['loss'])
  np.testing.assert_allclose(*loss, rtol=1e-6)


def test_the_defaults_are_the_authors():
  """Their settings for OfficeHome, but for one pass over public images; not those of RHFL."""
  defaults = {name: field.default for name, field in inspect.signature(methods.fccl).parameters.items()}
  fields = ('subset', 'digest_epochs', 'digest_batch', 'epochs', 'batch', 'off_diagonal', 'restart')
  assert [defaults[field] for field in fields] == [5000, 1, 512, 6, 512, 0.0051, True]
