import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkd import losses
from fedkd.losses import kl_divergence, masked_squared_error

OUTPUT = jnp.array([1.0, 2.0, -1.0])
TARGET = jnp.array([0.0, 2.0, 1.0])


def test_is_the_mean_over_the_logits():
  assert masked_squared_error(OUTPUT, TARGET, jnp.array(True)) == pytest.approx((1 + 0 + 4) / 3)


def test_gradient_is_that_of_a_mean_square_and_stops_at_the_target():
  d_output, d_target = jax.grad(masked_squared_error, (0, 1))(OUTPUT, TARGET, jnp.array(True))
  np.testing.assert_allclose(d_output, 2 / 3 * (OUTPUT - TARGET), rtol=1e-6)
  np.testing.assert_array_equal(d_target, 0)


@pytest.mark.parametrize('hole', [0.0, np.nan, np.inf])
def test_without_knowledge_value_and_gradient_are_zero(hole):
  value, gradient = jax.value_and_grad(masked_squared_error)(OUTPUT, jnp.full(3, hole), jnp.array(False))
  assert value == 0
  np.testing.assert_array_equal(gradient, 0)


def test_maps_over_a_batch():
  valid = jnp.array([True, False, True])
  targets = jnp.stack([TARGET, jnp.full(3, jnp.nan), OUTPUT])
  values = jax.vmap(masked_squared_error)(jnp.stack([OUTPUT] * 3), targets, valid)
  np.testing.assert_allclose(values, [5 / 3, 0, 0], rtol=1e-6)


def test_refuses_batches():
  with pytest.raises(AssertionError, match='rank'):
    masked_squared_error(OUTPUT[None], TARGET[None], jnp.array([True]))
  for of_one in (losses.divergence, losses.cross_entropy, losses.kl_divergence):  # they would add up the examples
    with pytest.raises(AssertionError, match='rank'):
      of_one(OUTPUT[None], TARGET[None])


# Distillation.

LOGITS = jnp.array([0.5, -1.0, 2.0])
POSTERIOR = jnp.array([0.7, 0.2, 0.1])


def distribution(z):
  return np.exp(np.asarray(z, float)) / np.exp(np.asarray(z, float)).sum()


def test_kl_is_the_sum_over_classes_of_the_papers_equation():
  q = np.exp(LOGITS) / np.exp(LOGITS).sum()
  assert kl_divergence(POSTERIOR, LOGITS) == pytest.approx(float((POSTERIOR * np.log(POSTERIOR / q)).sum()), rel=1e-5)


def test_kl_is_zero_with_zero_gradient_when_student_equals_teacher():
  value, gradient = jax.value_and_grad(kl_divergence, 1)(jax.nn.softmax(LOGITS), LOGITS + 3)
  assert abs(value) < 1e-6
  np.testing.assert_allclose(gradient, 0, atol=1e-6)


def test_kl_gradient_is_the_difference_of_the_distributions_and_stops_at_the_teacher():
  d_teacher, d_student = jax.grad(kl_divergence, (0, 1))(POSTERIOR, LOGITS)
  np.testing.assert_allclose(d_student, jax.nn.softmax(LOGITS) - POSTERIOR, rtol=1e-5)
  np.testing.assert_array_equal(d_teacher, 0)


def test_kl_of_a_teacher_without_doubt_is_finite():
  value, gradient = jax.value_and_grad(kl_divergence, 1)(jnp.array([0.0, 1.0, 0.0]), LOGITS)
  assert value == pytest.approx(float(-jax.nn.log_softmax(LOGITS)[1]), rel=1e-5)
  assert np.isfinite(gradient).all()


@pytest.mark.parametrize(
  ('name', 'value', 'slope'),
  [('mae', 1.0, [1 / 3, 0, -1 / 3]), ('mse', 5 / 3, [2 / 3, 0, -4 / 3])],
)
def test_digest_losses(name, value, slope):
  loss = getattr(losses, name)
  assert loss(OUTPUT, TARGET) == pytest.approx(value)
  d_output, d_target = jax.grad(loss, (0, 1))(OUTPUT, TARGET)
  np.testing.assert_allclose(d_output, slope, rtol=1e-6)
  np.testing.assert_array_equal(d_target, 0)
  assert loss(OUTPUT, OUTPUT) == 0
  np.testing.assert_array_equal(jax.grad(loss)(OUTPUT, OUTPUT), 0)


@pytest.mark.parametrize('temperature', [1.0, 3.0])
def test_kl_at_a_temperature(temperature):
  p, q = (np.exp(z / temperature) / np.exp(z / temperature).sum() for z in (np.asarray(TARGET), np.asarray(OUTPUT)))
  assert losses.kl(OUTPUT, TARGET, temperature) == pytest.approx(temperature**2 * (p * np.log(p / q)).sum(), rel=1e-5)
  d_output, d_target = jax.grad(losses.kl, (0, 1))(OUTPUT, TARGET, temperature)
  np.testing.assert_allclose(d_output, temperature * (q - p), rtol=1e-4)
  np.testing.assert_array_equal(d_target, 0)


@pytest.mark.parametrize('target', [[0.7, 0.2, 0.1], [0.6, 0.0, 0.4], [0.5, 0.2, 0.1]])
@pytest.mark.parametrize('name', ['divergence', 'cross_entropy'])
def test_gradients_flow_into_both_sides_of_a_divergence_and_of_a_cross_entropy(name, target):
  """Also of a target that does not add up to 1; a class of probability 0 adds nothing, and its slope is 0."""
  loss = {'divergence': losses.divergence, 'cross_entropy': lambda p, z: losses.cross_entropy(z, p)}[name]
  value, (d_target, d_logits) = jax.value_and_grad(loss, (0, 1))(jnp.array(target), LOGITS)
  p, log = np.array(target), np.log(distribution(LOGITS))
  some = p > 0
  own = np.log(np.where(some, p, 1)) if name == 'divergence' else 0 * p
  assert value == pytest.approx((p * (own - log)).sum(), rel=1e-5)
  np.testing.assert_allclose(d_target, np.where(some, own - log + (name == 'divergence'), 0), rtol=1e-5)
  np.testing.assert_allclose(d_logits, np.exp(log) * p.sum() - p, rtol=1e-4, atol=1e-6)


# KL to received logits.

DIRECTED = {'server': lambda mine, theirs: (theirs, mine), 'client': lambda mine, theirs: (mine, theirs)}


@pytest.mark.parametrize('direction', ['server', 'client'])
def test_masked_kl_in_its_direction(direction):
  p, q = DIRECTED[direction](distribution(OUTPUT), distribution(TARGET))
  value = losses.masked_kl(OUTPUT, TARGET, jnp.array(True), direction)
  assert value == pytest.approx((p * np.log(p / q)).sum(), rel=1e-5)
  assert losses.masked_kl(OUTPUT, OUTPUT + 2, jnp.array(True), direction) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize('direction', ['server', 'client'])
def test_the_gradient_of_masked_kl_stops_at_the_target(direction):
  d_output, d_target = jax.grad(losses.masked_kl, (0, 1))(OUTPUT, TARGET, jnp.array(True), direction)
  p, q = distribution(OUTPUT), distribution(TARGET)
  slope = {'server': p - q, 'client': p * (np.log(p / q) - (p * np.log(p / q)).sum())}[direction]
  np.testing.assert_allclose(d_output, slope, rtol=1e-4, atol=1e-6)
  np.testing.assert_array_equal(d_target, 0)


@pytest.mark.parametrize('hole', [0.0, np.nan, np.inf])
@pytest.mark.parametrize('direction', ['server', 'client'])
def test_masked_kl_without_knowledge_is_zero_with_zero_gradient(direction, hole):
  loss = jax.value_and_grad(losses.masked_kl)
  value, gradient = loss(OUTPUT, jnp.full(3, hole), jnp.array(False), direction)
  assert value == 0
  np.testing.assert_array_equal(gradient, 0)


# Classes that a model masks with logits of minus infinity.

MASK = jnp.array([-jnp.inf])
VALID = jnp.array(True)
MEANS = {  # over the classes, the masked ones among them
  'masked_squared_error': lambda output, target: masked_squared_error(output, target, VALID),
  'mae': losses.mae,
  'mse': losses.mse,
}
SUMS = {
  'kl': lambda output, target: losses.kl(output, target, 2.0),
  'kl_divergence': lambda output, target: kl_divergence(jax.nn.softmax(target), output),
  'cross_entropy': lambda output, target: losses.cross_entropy(output, jax.nn.softmax(target)),
  'server': lambda output, target: losses.masked_kl(output, target, VALID, 'server'),
  'client': lambda output, target: losses.masked_kl(output, target, VALID, 'client'),
}


@pytest.mark.parametrize('name', MEANS | SUMS)
def test_a_class_that_both_sides_mask_adds_nothing_to_value_and_gradient(name):
  loss, share = (MEANS | SUMS)[name], 3 / 4 if name in MEANS else 1.0
  value, gradient = jax.value_and_grad(loss)(jnp.append(OUTPUT, MASK), jnp.append(TARGET, MASK))
  expected, slope = jax.value_and_grad(loss)(OUTPUT, TARGET)
  assert value == pytest.approx(share * float(expected), rel=1e-5)
  np.testing.assert_allclose(gradient[:3], share * np.asarray(slope), rtol=1e-4, atol=1e-6)
  assert gradient[3] == 0


@pytest.mark.parametrize('name', MEANS)
@pytest.mark.parametrize('side', [0, 1])
def test_a_class_that_one_side_masks_adds_nothing_to_a_distance(name, side):
  ends = [(MASK, jnp.array([0.7])), (jnp.array([0.7]), MASK)][side]
  pair = [jnp.append(vector, end) for vector, end in zip((OUTPUT, TARGET), ends, strict=True)]
  value, gradient = jax.value_and_grad(MEANS[name])(*pair)
  assert value == pytest.approx(3 / 4 * float(MEANS[name](OUTPUT, TARGET)), rel=1e-5)
  assert gradient[3] == 0


@pytest.mark.parametrize('name', SUMS)
@pytest.mark.parametrize('side', [0, 1])
def test_a_class_that_one_side_masks_leaves_a_divergence_finite(name, side):
  ends = [(MASK, jnp.array([0.7])), (jnp.array([0.7]), MASK)][side]
  value, gradient = jax.value_and_grad(SUMS[name])(*map(jnp.append, (OUTPUT, TARGET), ends))
  assert np.isfinite(value)
  assert np.isfinite(gradient).all()
  if name != 'client' and side == 0:  # the sum of the teacher's other classes, by hand
    t = 2.0 if name == 'kl' else 1.0
    p, q = distribution(jnp.append(TARGET, 0.7) / t)[:3], distribution(OUTPUT / t)
    entropy = 0 if name == 'cross_entropy' else (p * np.log(p)).sum()
    assert value == pytest.approx(t**2 * (entropy - (p * np.log(q)).sum()), rel=1e-5)


def test_sums_per_class_are_those_of_its_examples():
  member, output = np.array([[1.0, 0], [0, 1], [0, 1]]), np.array([[1.0, -2.0, 0.5], [2.0, 4.0, -1.0], [3.0, 0.0, 9.0]])
  found = losses.class_sums(jnp.asarray(member), jnp.asarray(output))
  np.testing.assert_allclose(found, [output[0], output[1] + output[2]])


def test_sums_per_class_are_masked_where_the_model_masks():
  member = jnp.array([[1.0, 0], [0, 1], [0, 1]])
  output = jnp.array([[1.0, -jnp.inf], [2.0, -jnp.inf], [3.0, -jnp.inf]])
  np.testing.assert_array_equal(losses.class_sums(member, output), [[1.0, -np.inf], [5.0, -np.inf]])


def test_a_probability_that_a_codec_has_made_negative_adds_nothing():
  rounded = jnp.array([0.6, 0.4, -0.001])
  value, gradient = jax.value_and_grad(losses.divergence, 1)(rounded, LOGITS)
  assert value == pytest.approx(float(losses.divergence(jnp.array([0.6, 0.4, 0.0]), LOGITS)))
  assert np.isfinite(gradient).all()
  assert np.isnan(losses.divergence(jnp.array([0.6, jnp.nan, 0.4]), LOGITS))  # which ends a run
