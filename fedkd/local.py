"""Local training: the one mini-batch loop, used for every client and every server model."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from fedkd import optimizers
from fedkd.models.base import is_augmented
from fedkd.types import ClientInit, Pool, PyTree, State

# (params, batch_stats, key, rows of the batch) -> (loss, (batch_stats, sums))
LossFn = Callable[[PyTree, PyTree, jax.Array, PyTree], tuple[jax.Array, tuple[PyTree, dict]]]


class Learner(NamedTuple):
  """A model in training: `params`, `batch_stats` ({} without BatchNorm) and the optimizer's state."""

  params: PyTree  # what is trained
  batch_stats: PyTree  # statistics of BatchNorm, {} without
  opt: PyTree  # the state of the optimizer


def start(variables: dict, tx: optax.GradientTransformation) -> Learner:
  """A learner at `variables` ({'params', 'batch_stats'}) with a fresh state of the optimizer `tx`."""
  return Learner(variables['params'], variables['batch_stats'], optimizers.init(tx, variables['params']))


def starting(tx: optax.GradientTransformation) -> ClientInit:
  """The `init` of a client whose state is a learner."""
  return lambda key, model, data, variables: start(variables, tx)


def resume(learner: Learner, tx: optax.GradientTransformation, keep: bool) -> Learner:
  """A learner at the beginning of a client update: as it is, or with a fresh state of the optimizer unless `keep`."""
  return learner if keep else start(variables(learner), tx)


def variables(learner: Learner) -> dict:
  """The {'params', 'batch_stats'} of a learner (or of a stack of learners)."""
  return {'params': learner.params, 'batch_stats': learner.batch_stats}


def own_models(state: State, g: int) -> dict:
  """The `Method.variables` of clients whose states are learners: what they have learned themselves."""
  return variables(state.client[g])


def forward(
  model: nn.Module, params: PyTree, batch_stats: PyTree, key: jax.Array, image: jax.Array
) -> tuple[jax.Array, dict, PyTree]:
  """A training-mode forward pass on raw images [B, H, W, channels].

  Returns:
    (logits [B, C], out: dict with 'features', batch_stats after the pass).
  """
  key_dropout, key_augment = jax.random.split(key)
  (logits, out), updated = model.apply(
    {'params': params, 'batch_stats': batch_stats},
    image,
    True,
    rngs={'dropout': key_dropout, 'augment': key_augment},
    mutable=['batch_stats'],
  )
  return logits, out, updated.get('batch_stats', batch_stats)


def alongside(model: nn.Module, variables: dict, key: jax.Array, image: jax.Array) -> PyTree:
  """(Logits, out) of a model in inference mode, on the images that `forward` sees with this key: cropped and flipped
  alike."""
  apply: Callable[..., Any] = model.apply
  if not is_augmented(model):
    return apply(variables, image, False)
  _, key_augment = jax.random.split(key)
  return apply(variables, image, method='augmented', rngs={'augment': key_augment})


def tally(label: jax.Array, **means: jax.Array) -> dict:
  """Metrics of a batch as sums to be added over steps: {'metrics': {'examples': B, name: B * mean, ...}}."""
  examples = jnp.float32(label.shape[0])
  return {'metrics': {'examples': examples, **{name: examples * mean for name, mean in means.items()}}}


def report(sums: dict) -> dict:
  """A client's info from the sums of `fit`: `examples`, and the mean over them of every other metric, NaN of none."""
  metrics = sums['metrics']
  per = metrics['examples']
  return {name: total if name == 'examples' else total / per for name, total in metrics.items()}


def cross_entropy(logits: jax.Array, label: jax.Array) -> jax.Array:
  """Mean over a batch of the cross-entropy of logits [B, C] with labels int[B]."""
  return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, label))


def penalty(out: dict) -> jax.Array | float:
  """The regularisation term that a model adds to every loss (Keras's kernel regularizer); 0 if it has none."""
  return out.get('penalty', 0.0)


def supervised(model: nn.Module, pool: Pool) -> LossFn:
  """Cross-entropy on rows of the pool, as a `loss_fn` for `fit`."""

  def loss_fn(params, batch_stats, key, index):
    image, label = pool.example[index], pool.label[index]
    logits, out, batch_stats = forward(model, params, batch_stats, key, image)
    loss = cross_entropy(logits, label) + penalty(out)
    return loss, (batch_stats, tally(label, loss=loss))

  return loss_fn


def update(
  learner: Learner, tx: optax.GradientTransformation, grads: PyTree, batch_stats: PyTree, t: jax.Array | int = 0
) -> Learner:
  """One optimizer step along `grads` in round `t`; takes the BatchNorm statistics of the pass that made them."""
  updates, opt = optimizers.update(tx, grads, learner.opt, learner.params, t)
  return Learner(optax.apply_updates(learner.params, updates), batch_stats, opt)


def shuffle(key: jax.Array, count: int, size: jax.Array) -> jax.Array:
  """A random order of 0..size-1 in the first `size` places of int32[count] (`size` may be traced)."""
  draw = jnp.where(jnp.arange(count) < size, jax.random.uniform(key, (count,)), 2.0)
  return jnp.argsort(draw)


def draw(key: jax.Array, count: int, size: jax.Array, batch: int) -> jax.Array:
  """`batch` of the rows 0..size-1 without replacement; fewer rows than `batch` repeat cyclically.

  Returns:
    int32[batch], every entry below `size`.
  """
  priority = jnp.where(jnp.arange(count) < size, jax.random.uniform(key, (count,)), -1.0)
  _, chosen = jax.lax.top_k(priority, min(batch, count))
  return chosen[jnp.arange(batch) % jnp.clip(size, 1, min(batch, count))]


class Work(NamedTuple):
  """How long a call of `fit` trains; exactly one of `steps` and `epochs` is given, and None and 0 both mean not given.

  batch: examples per step, 1 or more.
  steps: that many steps, each on rows drawn afresh without replacement (fewer rows than `batch` repeat cyclically, so
    that BatchNorm sees a full batch); or
  epochs: that many passes in fresh random orders, the last batch of a pass filled from its beginning; may be traced.
  """

  batch: int
  steps: int | None = None
  epochs: int | jax.Array | None = None


def _check_work(work):
  for (field, value), least in zip(work._asdict().items(), (1, 0, 0), strict=True):
    if value is not None and not isinstance(value, jax.Array) and value < least:
      raise ValueError(f'{field}={value} must be at least {least}')
  if given(work.steps) == given(work.epochs):
    lengths = ('steps', work.steps), ('epochs', work.epochs)
    given_as = ', '.join(f'{field}={"traced" if isinstance(value, jax.Array) else value}' for field, value in lengths)
    raise ValueError(f'local training needs steps or epochs, not both: {given_as}; set one to 0 and the other above 0')


def given(count: int | jax.Array | None) -> bool:
  """Whether a number of steps or epochs asks for training; neither None nor 0 does."""
  return isinstance(count, jax.Array) or bool(count)  # traced: whether it is 0 will be seen


def steps_of(work: Work, size: jax.Array | int) -> jax.Array | int:
  """How many mini-batches a call of `fit` makes of `size` examples."""
  count = work.epochs if given(work.epochs) else work.steps
  assert count is not None  # one of both is given
  return count * -(-size // work.batch) if given(work.epochs) else count


def fit(
  key: jax.Array,
  learner: Learner,
  tx: optax.GradientTransformation,
  loss_fn: LossFn,
  examples: tuple,
  work: Work,
  t: jax.Array | int = 0,
  *,
  last_pass: tuple[str, ...] = (),
  before: jax.Array | int | None = None,
) -> tuple[Learner, dict]:
  """Trains on mini-batches of examples.

  Args:
    key: randomness of this call.
    learner: where to start.
    tx: optax optimizer.
    loss_fn: (params, batch_stats, key, rows of the batch) -> (loss, (batch_stats, sums)).
    examples: (rows, size), for example a client's `ExampleIndices`. Rows: a pytree with leaves [n_max, ...], of which
      entries from `size` on are padding and never drawn. Size: int32[], may be traced: clients of unequal size cost
      nothing extra one by one. 0 leaves the learner exactly as it is.
    work: the batch, and the number of steps or epochs.
    t: the round, for an optimizer that follows it (`optimizers.scheduled`), and for a schedule inside `tx`, which
      counts the steps of the run: also those of rounds whose optimizer state is lost, or that the client has missed.
    last_pass: names of sums that begin anew with each of the `epochs`, so that those of the last remain.
    before: steps, or epochs, of the rounds before this one; None: in each as many as in this call.

  Returns:
    (learner, sums): `sums` added up over all steps, from the forward passes that trained.

  Raises:
    ValueError: unless exactly one of `steps` and `epochs` is given, or for a negative number, or an empty batch.
  """
  _check_work(work)
  (rows, size, *_), (batch, steps, epochs) = examples, work
  count = jax.tree.leaves(rows)[0].shape[0]
  loss_fn = jax.jit(loss_fn)  # traced once, for the shapes of its sums and for its gradient

  def train(key, chosen, carry):
    learner, total = carry
    grad_fn = jax.grad(loss_fn, has_aux=True)
    examples = jax.tree.map(lambda leaf: leaf[chosen], rows)
    grads, (batch_stats, sums) = grad_fn(learner.params, learner.batch_stats, key, examples)
    return update(learner, tx, grads, batch_stats, t), jax.tree.map(jnp.add, total, sums)

  def step(i, carry):
    key_batch, key_model = jax.random.split(jax.random.fold_in(key, i))
    return train(key_model, draw(key_batch, count, size, batch), carry)

  def epoch(e, carry):
    carry = carry[0], {**carry[1], **jax.tree.map(jnp.zeros_like, {name: carry[1][name] for name in last_pass})}
    key_order, key_steps = jax.random.split(jax.random.fold_in(key, e))
    order = shuffle(key_order, count, size)

    def inner(i, carry):
      chosen = order[(i * batch + jnp.arange(batch)) % jnp.maximum(size, 1)]
      return train(jax.random.fold_in(key_steps, i), chosen, carry)

    return jax.lax.fori_loop(0, -(-size // batch), inner, carry)

  sample = jax.tree.map(lambda leaf: jnp.zeros((batch, *leaf.shape[1:]), leaf.dtype), rows)
  shapes = jax.eval_shape(loss_fn, learner.params, learner.batch_stats, key, sample)[1][1]
  nothing = jax.tree.map(jnp.zeros_like, shapes)
  each = -(-size // batch) if given(epochs) else 1  # steps of an epoch
  past = t * steps_of(work, size) if before is None else before * each
  start = learner._replace(opt=optimizers.advanced(learner.opt, past)), nothing
  if given(epochs):
    return jax.lax.fori_loop(0, epochs, epoch, start)
  after = jax.lax.fori_loop(0, steps, step, start)
  return jax.tree.map(lambda a, b: jnp.where(size > 0, a, b), after, (learner, nothing))
