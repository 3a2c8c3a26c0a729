"""FedKT: Li, He, Song, "Practical One-Shot Federated Learning for Cross-Silo Setting", 2021, Algorithm 1.

One upload in all: every client distils teachers, each of a part of its rows, into students by their votes on public
rows; the server distils all students into one model by theirs.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedkd import examples, inference, local, servers
from fedkd.checks.ranges import Count, Positive, Weight, checked
from fedkd.types import Client, Download, Masked, Method, Server, values_of


class Voted(NamedTuple):
  """The state of the server: the winners of the vote, int32[M], and the final model of every architecture."""

  label: jax.Array
  voted: jax.Array  # whether there were students
  learners: tuple[local.Learner, ...]


@checked
def fedkt(
  tx: optax.GradientTransformation,
  partitions: Positive = 2,
  teachers: Positive = 5,
  epochs: Count = 100,
  student_epochs: Count = 100,
  final_epochs: Count = 10,
  batch: Positive = 32,
  consistent: bool = True,
  level: Literal['none', 'server', 'parties'] = 'none',
  noise: Weight = 0.1,
) -> Method:
  """Students that were taught by votes on public rows as the only message, once.

  Learned: teachers, on the rows that a client does not share, and students in round 0, the final model on the server in
  all rounds. Sent: the students' weights and statistics in round 0; nothing down. Averaged: nothing: clients vote. A
  client that is absent in round 0 never votes; later rounds give only the server time (`final_epochs` in each): clients
  neither train nor send, and the server goes on even if nobody takes part. Clients predict with the final model of
  their architecture.

  With `consistent` a client counts only for rows on which its students agree, then with all of them, as in the paper;
  in the authors' code that does nothing without noise, and with noise leaves hardly any vote: their runs without noise
  are consistent=False.

  Args:
    tx: optax optimizer, fresh for every teacher and student; the final model's state persists.
    partitions: of a client's rows, each of them all of its rows: the number of its students.
    teachers: of a partition, on disjoint parts of the rows.
    epochs: passes of a teacher over its part.
    student_epochs: passes of a student over the public rows.
    final_epochs: passes of the final model over them in every round (the authors' 100, once).
    batch: examples per mini-batch.
    consistent: whether only clients count whose students agree.
    level: where Laplace noise of scale 1 / `noise` is added to the votes: on the 'server' (privacy of a client), at the
      'parties' (of an example), or nowhere.
    noise: the privacy parameter gamma.

  Raises:
    ValueError: without public rows, or for noise=0 where there is to be noise.
  """
  if level != 'none' and isinstance(noise, int | float) and noise == 0:
    raise ValueError(f"noise=0 is noise of infinite scale at level={level!r}; set it above 0, or level='none'")
  amount = lambda where: noise if level == where else None

  def student(key, t, model, data):
    """(variables of a student, the sums of its teachers)."""
    private, public = examples.unshared(data), examples.public(data)
    key_order, key_teachers, key_student, key_noise = jax.random.split(key, 4)
    places = len(private.index)
    order = local.shuffle(key_order, places, private.size)

    def teacher(j):
      key_first, key_fit = jax.random.split(jax.random.fold_in(key_teachers, j))
      rows, size = part_of(private.index[order], private.size, j, teachers)
      first = local.start(fresh(key_first, model, data), tx)
      loss_fn, work = local.supervised(model, data.pool), local.Work(batch, epochs=epochs)
      learner, sums = local.fit(key_fit, first, tx, loss_fn, (rows, size), work, t)
      return (size > 0) * chosen(model, local.variables(learner), data), sums

    votes, sums = jax.lax.map(teacher, jnp.arange(teachers))
    label = winners(key_noise, jnp.sum(votes, 0), amount('parties'))
    key_first, key_fit = jax.random.split(key_student)
    first, work = local.start(fresh(key_first, model, data), tx), local.Work(batch, epochs=student_epochs)
    lesson = (public.index, label), public.size
    learner, _ = local.fit(key_fit, first, tx, taught(model, data.pool), lesson, work, t)
    return local.variables(learner), jax.tree.map(lambda a: jnp.sum(a, 0), sums)

  def step(key, t, model, state, down, data):
    all_students = lambda: jax.lax.map(lambda k: student(k, t, model, data), jax.random.split(key, partitions))
    shapes = jax.eval_shape(all_students)
    nothing = lambda: jax.tree.map(jnp.zeros_like, shapes)
    variables, sums = jax.lax.cond(t == 0, all_students, nothing)
    up = jax.tree.map(lambda leaf: Masked(leaf, t == 0), variables)
    return state, up, local.report(jax.tree.map(lambda a: jnp.sum(a, 0), sums))

  client = Client(lambda key, model, data, variables: (), step)
  final = lambda state, g: servers.as_rows(local.variables(state.server.learners[g]))
  return Method(client, _voting(tx, local.Work(batch, epochs=final_epochs), consistent, amount('server')), final)


def part_of(rows: jax.Array, size: jax.Array, j: jax.Array | int, parts: int) -> tuple[jax.Array, jax.Array]:
  """Every `parts`-th of the first `size` rows, from the j-th on: (rows [ceil(n / parts)], how many there are)."""
  at = j + parts * jnp.arange(-(-len(rows) // parts))
  return rows[jnp.minimum(at, len(rows) - 1)], jnp.maximum(0, -((j - size) // parts))


def fresh(key, model, data) -> dict:
  """Variables of a model that is drawn anew."""
  return {'batch_stats': {}, **model.init(key, data.pool.example[:1], False)}


def chosen(model, variables: dict, data) -> jax.Array:
  """The vote [M, C] of a model on the public rows, one-hot."""
  logits = inference.infer(model, variables, data.pool.example, examples.public(data).index)
  return jax.nn.one_hot(jnp.argmax(logits, -1), model.classes)


def winners(key: jax.Array, counts: jax.Array, noise: float | None) -> jax.Array:
  """int32[M], the class with most votes [M, C], of equals the lowest; with Laplace noise of scale 1 / `noise`."""
  noisy = counts if noise is None else counts + jax.random.laplace(key, counts.shape) / noise
  return jnp.argmax(noisy, -1).astype(jnp.int32)


def votes_of(choices: jax.Array, present: jax.Array, consistent: bool) -> jax.Array:
  """The votes [M, C] of clients, of whose students `choices` [m, s, M, C] are one-hot, as far as they are `present`."""
  counts = jnp.sum(choices, 1)
  if consistent:
    counts = jnp.where(counts == choices.shape[1], counts, 0)
  return jnp.einsum('mrc,m->rc', counts, present.astype(counts.dtype))


def taught(model, pool) -> local.LossFn:
  """Cross-entropy on (rows of the pool, labels that were voted for), as a `loss_fn` for `fit`."""

  def loss_fn(params, batch_stats, key, lesson):
    index, label = lesson
    logits, out, batch_stats = local.forward(model, params, batch_stats, key, pool.example[index])
    loss = local.cross_entropy(logits, label)
    return loss + local.penalty(out), (batch_stats, local.tally(label, loss=loss))

  return loss_fn


def _voting(tx, work: local.Work, consistent: bool, noise) -> Server:
  """Labels the public rows by the votes of round 0, and trains the final models on them in every round."""

  def init(key, groups, variables, data):
    rows = examples.public(data[0]).index
    return Voted(jnp.zeros(len(rows), jnp.int32), jnp.bool_(False), tuple(local.start(v, tx) for v in variables))

  def vote(key, groups, uploads, ids, data):
    counts = jnp.zeros((len(examples.public(data[0]).index), groups[0].model.classes))
    for group, up, slots, view in zip(groups, uploads, ids, data, strict=True):
      students = values_of(up)
      every = lambda one, group=group, view=view: jax.lax.map(lambda v: chosen(group.model, v, view), one)
      if len(slots):
        counts += votes_of(jax.lax.map(every, students), slots >= 0, consistent)
    return winners(key, counts, noise)

  def receive(key, t, groups, state, uploads, ids, data):
    key_noise, key_fit = jax.random.split(key)
    some = (t == 0) & jnp.any(jnp.concatenate(ids) >= 0)
    label = jax.lax.cond(some, lambda: vote(key_noise, groups, uploads, ids, data), lambda: state.label)
    public, voted = examples.public(data[0]), state.voted | some
    lesson = (public.index, label), jnp.where(voted, public.size, 0)
    learners, losses = [], []
    for group, learner in zip(groups, state.learners, strict=True):  # equal architectures learn alike
      learner, sums = local.fit(key_fit, learner, tx, taught(group.model, data[0].pool), lesson, work, t)
      learners.append(learner)
      losses.append(local.report(sums)['loss'])
    return Voted(label, voted, tuple(learners)), {'server_loss': sum(losses) / len(losses)}

  send = lambda key, t, groups, state, ids, data: tuple(Download() for _ in ids)
  return Server(init, receive, send, fresh=True, alone=True)
