"""Mutants that change no result, and why."""

AUXILIARY = 'an auxiliary output of the loss, through which no gradient flows'
RECEIVED = 'a message, which depends on no parameter'
EVEN = 'the squares and absolute values of a difference do not see its sign'

PADDING = 'rows behind those that there are, which are never looked at'

EQUIVALENT: dict[str, str] = {
  'methods/fd.py fd.step.loss_fn: jax.lax.stop_gradient(_output(logits, knowledge)) -> _output(logits, knowledge)': (
    AUXILIARY
  ),
  'methods/fd.py _distance: jax.lax.stop_gradient(target) -> target': RECEIVED,
  'methods/fedgkt.py _continuation.receive.loss_fn: jax.lax.stop_gradient(logits) -> logits': AUXILIARY,
  'methods/fedh2l.py _received: jax.lax.stop_gradient(values_of(message)) -> values_of(message)': RECEIVED,
  'methods/fedhe.py fedhe.step.loss_fn: jax.lax.stop_gradient(logits) -> logits': AUXILIARY,
  'methods/fedproto.py client_of.step.loss_fn: jax.lax.stop_gradient(f) -> f': AUXILIARY,
  "methods/felo.py exchanging.step.loss_fn: jax.lax.stop_gradient({'features': of.T @ f, 'logits': class_sums(of, "
  "logits)}) -> {'features': of.T @ f, 'logits': class_sums(of, logits)}": AUXILIARY,
  'methods/fedgen.py fedgen.step.loss_fn: jax.lax.stop_gradient(of_generated(key_own, label)) -> '
  'of_generated(key_own, label)': '`losses.kl_divergence` stops the gradient into its target',
  'methods/coboosting.py direction.combined: jnp.sum(mix * jax.nn.softmax(logits / MOVED_AT)) -> jnp.mean(mix '
  '* jax.nn.softmax(logits / MOVED_AT))': 'a sign does not see a positive factor',
  'methods/fedapen.py apart: places - 1 -> places - 0 * 1': PADDING,
  'methods/fedapen.py apart: places - 1 -> places + 1': PADDING,
  'methods/fedapen.py learned_weight.loss: len(label) - 1 -> len(label) - 0 * 1': PADDING,
  'methods/fedapen.py learned_weight.loss: len(label) - 1 -> len(label) + 1': PADDING,
  'methods/fiarse.py part_of: len(ordered) - max(1, int(numeric.share_of(share, len(ordered)))) -> 0 * len(ordered) - '
  'max(1, int(numeric.share_of(share, len(ordered))))': 'places from the end are those from the beginning',
  'methods/fedkt.py part_of: -len(rows) // parts -> -len(rows)': PADDING,
  'methods/fedkt.py part_of: len(rows) - 1 -> len(rows) - 0 * 1': PADDING,
  'methods/fedkt.py part_of: len(rows) - 1 -> len(rows) + 1': PADDING,
  'methods/fedkt.py winners: counts + jax.random.laplace(key, counts.shape) / noise -> counts - '
  'jax.random.laplace(key, counts.shape) / noise': 'the noise is as often below 0 as above',
  'servers/teachers.py _observed: jnp.float32(0) + sum(seen) -> 0 * jnp.float32(0) + sum(seen)': 'a sum with 0',
  'servers/confidence_weights.py confidences: equal + beta * share -> 0 * equal + beta * share': (
    'a softmax does not see what is added to all'
  ),
  'servers/buffers.py push: pushed[label] - limit -> 0 * pushed[label] - limit': (
    'more is then written to one place, of which a scatter on the CPU keeps the last; on other devices anything'
  ),
  'losses.py masked_squared_error: away(jnp.where(valid, output, 0), target) -> away(target, jnp.where(valid, output, '
  '0))': EVEN,
  'losses.py mae: away(output, jax.lax.stop_gradient(target)) -> away(jax.lax.stop_gradient(target), output)': EVEN,
  'losses.py mse: away(output, jax.lax.stop_gradient(target)) -> away(jax.lax.stop_gradient(target), output)': EVEN,
  'methods/ktpfl.py _passes: epochs + 1 -> epochs + 0 * 1': (
    'the sum of 1..n-1 is that of 1..n less n: the first round of `epochs` passes may count as of the rise or not'
  ),
}
