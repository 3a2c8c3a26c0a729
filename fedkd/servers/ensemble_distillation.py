"""A server that distils the ensemble of the models it receives into their averages."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedkd import distillation, examples, inference, local, losses
from fedkd.servers.weights import variables_of, with_variables
from fedkd.types import Pool, Server

CHECK = 100  # steps between two looks at the validation accuracy
CHANCE = 1.2  # times the accuracy of guessing: a model below is dropped
OUTLIER = 1.5  # standard deviations below the mean of the others: a teacher there is dropped
NOISE = 5000  # images of noise, where they take the place of public ones


Targets = Literal['avg_logits', 'avg_probs', 'avg_losses']
Start = Literal['average', 'previous']


def distilled(
  server: Server,
  *,
  tx: optax.GradientTransformation,
  work: local.Work,
  targets: Targets,
  start: Start,
  drop_worst: bool,
  patience: int | None,
  noise: bool,
) -> Server:
  """`server`, the `weights` of every architecture, whose averages then learn from all uploaded models.

  Its state is {'weights': that of `server`}; what is sent is what `server` sends. An architecture that no client
  trained keeps its weights.

  Args:
    tx, work: optimizer of the distillation, fresh in every round, images per step and steps at most; 0 steps: averages
      stay as they are.
    targets, start, drop_worst: as in `methods.feddf`.
    patience: steps without a better accuracy on the labels of the public rows after which it stops, having kept the
      best of every 100 steps; None: public labels are not used.
    noise: whether the images are noise, not the public ones.
  """

  def init(key, groups, variables, data):
    return {'weights': server.init(key, groups, variables, data)}

  def receive(key, t, groups, state, uploads, ids, data):
    if not sum(slot.shape[0] for slot in ids):
      return state, {}
    nets = [group.model for group in groups]
    present = [(slot >= 0).astype(jnp.float32) for slot in ids]
    teaching, averaged = present, present
    if drop_worst:
      correct = [
        jax.lax.map(lambda up, net=net: _accuracy(net, up, data), _variables(up))
        for net, up in zip(nets, uploads, strict=True)
      ]
      averaged, teaching = _kept(correct, present, nets[0].classes)
    both = zip(uploads, averaged, strict=True)
    counted = tuple({**up, 'count': up['count'] * keep.astype(jnp.int32)} for up, keep in both)
    weights, info = server.receive(key, t, groups, state['weights'], counted, ids, data)
    if not work.steps:
      return {**state, 'weights': weights}, info
    image = _noise(data[0].pool.example) if noise else data[0].pool.example[examples.public(data[0]).index]
    size = jnp.asarray(NOISE if noise else examples.public(data[0]).size)
    target = _ensemble(nets, uploads, teaching, image, targets)
    begin = weights if start == 'average' else state['weights']
    new, lost = [], []
    for g, (net, here) in enumerate(zip(nets, present, strict=True)):
      first = variables_of(begin, g)
      train = lambda net=net, first=first: _student(key, t, net, first, (image, target, size), data, tx, work, patience)
      after, loss = jax.lax.cond(jnp.any(here > 0), train, lambda first=first: (first, jnp.float32(jnp.nan)))
      new.append(with_variables(weights[g], after))
      lost.append(loss)
    info['server_distill_loss'] = jnp.nanmean(jnp.stack(lost))
    return {**state, 'weights': tuple(new)}, info

  def send(key, t, groups, state, ids, data):
    return server.send(key, t, groups, state['weights'], ids, data)

  return Server(init, receive, send)


def _noise(example):
  """Images of noise like `example`, the same in every round."""
  key, shape = jax.random.key(0), (NOISE, *example.shape[1:])
  if example.dtype == jnp.uint8:
    return jax.random.randint(key, shape, 0, 256).astype(jnp.uint8)
  return jax.random.normal(key, shape).astype(example.dtype)


def _variables(upload) -> dict:
  return {kind: upload[kind] for kind in ('params', 'batch_stats')}


def _accuracy(net, variables, data):
  """Accuracy on the public rows, whose labels the server has."""
  rows, pool = examples.public(data[0]), data[0].pool
  correct = jnp.argmax(inference.infer(net, variables, pool.example, rows.index), -1) == pool.label[rows.index]
  return jnp.sum(correct & examples.owned(rows)) / jnp.maximum(rows.size, 1)


def _kept(accuracy, present, classes) -> tuple:
  """Which models are averaged, and which teach, per group float[m], 0 or 1; of none that would remain, all."""
  some = lambda keep, all: jnp.where(jnp.any(keep > 0), keep, all)
  able = [here * (a >= CHANCE / classes) for a, here in zip(accuracy, present, strict=True)]
  averaged = [some(keep, here) for keep, here in zip(able, present, strict=True)]
  a, here = jnp.concatenate(accuracy), jnp.concatenate(present)
  kept = jnp.concatenate(able)
  others = here.at[jnp.argmax(jnp.where(here > 0, a, -1))].set(0)
  count = jnp.maximum(jnp.sum(others), 1)
  mean = jnp.sum(a * others) / count
  spread = jnp.sqrt(jnp.sum(jnp.square(a - mean) * others) / count)
  inside = here * (a >= mean - OUTLIER * spread - 1e-6)  # equal accuracies are no outliers, whatever their rounding
  teaching = some(jnp.where(jnp.all(kept == here), inside, kept), here)
  return averaged, jnp.split(teaching, np.cumsum([p.shape[0] for p in present])[:-1])


def _ensemble(nets, uploads, weights, image, targets):
  """Probabilities [N, C] of the teachers together: of their mean logits, or their mean probabilities."""
  total = jnp.zeros((image.shape[0], nets[0].classes))
  of = (lambda logits: logits) if targets == 'avg_logits' else jax.nn.softmax
  for net, up, weight in zip(nets, uploads, weights, strict=True):

    def add_teacher(total, slot, net=net):
      variables, w = slot
      logits = lambda: inference.infer(net, variables, image, jnp.arange(image.shape[0]))
      predict = lambda: of(logits().astype(total.dtype))  # of a net that computes in half precision, too
      return total + w * jax.lax.cond(w > 0, predict, lambda: jnp.zeros_like(total)), None

    total = jax.lax.scan(add_teacher, total, (_variables(up), weight))[0]
  mean = total / jnp.maximum(sum(map(jnp.sum, weights)), 1)
  return jax.nn.softmax(mean) if targets == 'avg_logits' else mean


def _student(key, t, net, variables, taught, data, tx, work, patience):
  """(variables, mean loss) after distillation; the best on validation where there is one. `taught`: (images, targets,
  how many of them)."""
  image, target, size = taught
  distance = lambda logits, target: losses.kl_divergence(target, logits)
  loss_fn = distillation.towards(net, Pool(image, ()), distance)
  taught = (jnp.arange(image.shape[0]), target), size

  def fit(key, learner, steps):
    return local.fit(key, learner, tx, loss_fn, taught, work._replace(steps=steps), t, before=t * work.steps)

  loss_of = lambda sums: jnp.float32(local.report(sums)['distill_loss'])  # also of weights in 64 bits
  first = local.start(variables, tx)
  if patience is None:
    learner, sums = fit(key, first, work.steps)
    return local.variables(learner), loss_of(sums)

  def chunk(carry):
    done, learner, best, accuracy, at, loss = carry
    steps = jnp.minimum(CHECK, work.steps - done)
    learner, sums = fit(jax.random.fold_in(key, done), learner, steps)
    done, now = done + steps, _accuracy(net, local.variables(learner), data)
    best = jax.tree.map(lambda a, b: jnp.where(now > accuracy, a, b), local.variables(learner), best)
    better = jnp.where(now > accuracy, done, at)
    return done, learner, best, jnp.maximum(now, accuracy), better, loss + steps * loss_of(sums)

  going = lambda carry: (carry[0] < work.steps) & (carry[0] - carry[4] < patience)
  start = jnp.int32(0), first, variables, jnp.float32(-1), jnp.int32(0), jnp.float32(0)
  done, _, best, _, _, loss = jax.lax.while_loop(going, chunk, start)
  return best, loss / done
