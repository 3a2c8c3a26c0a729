"""FedH2L: Li, Zhou, Wang, Mi, Hospedales, "FedH2L: Federated Learning with Model and Statistical Heterogeneity", 2021.

Nodes teach one another, without a server, through their soft labels on small public seed sets; what a node learns from
its peers must not conflict with its own data. The paper's round (local phase, broadcast, global phase) is split before
its global phase, so that a round here is: learn from the messages received, learn from own data, broadcast. R rounds
hold R - 1 global phases.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax

from fedkd import examples, local, optimizers, servers
from fedkd.checks.ranges import Positive, checked
from fedkd.losses import kl_divergence
from fedkd.methods import projection
from fedkd.models import base
from fedkd.types import Client, Masked, Method, values_of

PROJECTIONS = {'qp': projection.qp, 'none': projection.none, 'pcgrad': projection.pcgrad, 'joint': projection.pcgrad}


@checked
def fedh2l(
  tx: optax.GradientTransformation,
  batch: Positive = 32,
  interval: Positive = 1,
  project: Literal['qp', 'none', 'pcgrad', 'joint'] = 'qp',
  kl: bool = True,
  labels: bool = True,
  local_rows: Literal['all', 'own'] = 'all',
  trust: Literal['accuracy', 'ones'] = 'accuracy',
  pairs: bool = False,
  separate_optimizers: bool = False,
) -> Method:
  """Mutual distillation with projected gradients.

  Learned: every node's own model. Sent: soft labels on a batch of the node's own seed set, their accuracy, and the
  rows of the batch, to all peers. Averaged: the losses towards the teachers.

  Args:
    tx: optax optimizer, for local and global steps.
    batch: examples of the local batch, and of each node's public batch.
    interval: E, rounds per exchange; the gradients of E local steps add up to the reference direction.
    project: 'qp' (Eq. 15), 'none', 'pcgrad' (the sum of both projected gradients is the global gradient), 'joint' (that
      sum is the only step: no local one).
    kl: whether soft labels are learned from (Eqs. 3, 4).
    labels: whether the true labels of the peers' public rows are learned from (Eq. 5).
    local_rows: 'all', the node's private rows and all public ones; 'own', only the node's own examples, private and
      public.
    trust: a teacher's weight in Eq. 4: its 'accuracy' on its batch, or 'ones'.
    pairs: whether each exchange is between random pairs (with an odd number one node is left out), not all to all.
    separate_optimizers: whether global steps have an optimizer state of their own.

  Raises:
    ValueError: for an unknown choice, or if clients share no examples.
  """
  _check(local_rows, kl, labels)
  due = lambda t: (t + 1) % interval == 0

  def init(key, model, data, variables):
    del key, model
    examples.public(data)
    if data.shared is None:
      raise ValueError(
        'clients share no rows; give fedkd.federation shared=..., in a config set data.public_share above 0'
      )
    learner = local.start(variables, tx)
    reference = jax.tree.map(jnp.zeros_like, learner.params)
    state = {'learner': learner, 'reference': reference, 'shown': local.variables(learner)}
    return {**state, 'global_opt': learner.opt} if separate_optimizers else state

  def lesson(model, data, learner, key, teacher):
    """Gradient of one teacher's part of the global loss, at the student's present weights."""
    plain = base.unaugmented(model)  # as the teacher has seen them

    def loss_fn(params, batch_stats):
      image, label = data.pool.example[teacher['index']], data.pool.label[teacher['index']]
      logits, out, batch_stats = local.forward(plain, params, batch_stats, key, image)
      soft = jnp.mean(jax.vmap(kl_divergence)(teacher['posterior'], logits))
      hard = local.cross_entropy(logits, label)
      trusted = teacher['accuracy'] if trust == 'accuracy' else 1.0
      info = {'kl': jnp.float32(soft), 'ce': jnp.float32(hard)}
      return kl * trusted * soft + labels * hard + local.penalty(out), (batch_stats, info)

    return jax.grad(loss_fn, has_aux=True)(learner.params, learner.batch_stats)

  def learn(key, t, model, state, data, teachers, present):
    """The global phase (Algorithm 1): all teachers' lessons, averaged and projected; one step."""
    learner, share = state['learner'], present / jnp.maximum(jnp.sum(present), 1)

    def body(carry, inputs):
      grads, learner, sums = carry
      key, teacher, weight = inputs
      # A pass for each teacher's batch, so that BatchNorm sees one domain at a time.
      grad, (batch_stats, info) = lesson(model, data, learner, key, teacher)
      add = lambda total, new: total + jnp.where(weight > 0, weight * new, 0).astype(total.dtype)
      keep = lambda new, old: jnp.where(weight > 0, new, old)
      learner = learner._replace(batch_stats=jax.tree.map(keep, batch_stats, learner.batch_stats))
      return (jax.tree.map(add, grads, grad), learner, jax.tree.map(add, sums, info)), None

    zero = jax.tree.map(jnp.zeros_like, learner.params)
    sums = {'kl': jnp.float32(0), 'ce': jnp.float32(0)}
    inputs = (jax.random.split(key, present.shape[0]), teachers, share)
    (grads, learner, sums), _ = jax.lax.scan(body, (zero, learner, sums), inputs)
    direction, info = PROJECTIONS[project](grads, state['reference'])
    local_opt = learner.opt
    learner = learner._replace(opt=state['global_opt']) if separate_optimizers else learner
    learner = local.update(learner, tx, direction, learner.batch_stats, t)
    state = {**state, 'reference': zero, 'learner': learner}
    if separate_optimizers:
      state.update(global_opt=learner.opt, learner=learner._replace(opt=local_opt))
    return state, {**sums, **info}

  def step(key, t, model, state, down, data):
    key_global, key_local, key_pass, key_seed = jax.random.split(key, 4)
    teachers, present = _received(down, data.private.id)
    any_teacher = jnp.any(present > 0)
    opt = optimizers.advanced(state['learner'].opt, t)  # by the local step of every round, also while absent
    state = {**state, 'learner': state['learner']._replace(opt=opt)}
    if separate_optimizers:  # by the exchanges before this round
      state['global_opt'] = optimizers.advanced(state['global_opt'], jnp.maximum(t - 1, 0) // interval)
    work = lambda state: learn(key_global, t, model, state, data, teachers, present)
    nan_like = lambda a: jnp.full(a.shape, jnp.nan, a.dtype)  # excludes updates without a global phase from the means
    idle = lambda state: (state, jax.tree.map(nan_like, jax.eval_shape(work, state)[1]))
    state, info = jax.lax.cond(any_teacher, work, idle, state)
    learner = state['learner']
    state = {**state, 'shown': local.variables(learner)}

    trained_on = data.private if local_rows == 'own' else examples.known(data)
    index = trained_on.index[local.draw(key_local, trained_on.index.shape[0], trained_on.size, batch)]
    loss_fn = jax.value_and_grad(local.supervised(model, data.pool), has_aux=True)
    (loss, (batch_stats, _)), grads = loss_fn(learner.params, learner.batch_stats, key_pass, index)
    state['reference'] = jax.tree.map(jnp.add, state['reference'], grads)
    alone = project != 'joint'  # its only step is the global one; BatchNorm has still seen the local batch
    moved = local.update(learner, tx, grads, batch_stats, t) if alone else learner._replace(batch_stats=batch_stats)
    state['learner'] = moved

    up = _teach(key_seed, model, state['learner'], data, batch, due(t))
    count = batch + any_teacher * batch * jnp.sum(present > 0)
    return state, up, {**info, 'global_phases': jnp.float32(any_teacher), 'loss': loss, 'examples': jnp.float32(count)}

  def empty_message(groups):
    empty = lambda shape, dtype=jnp.float32: Masked(jnp.zeros(shape, dtype), jnp.zeros((), bool))
    classes = groups[0].model.classes
    return {'posterior': empty((batch, classes)), 'accuracy': empty(()), 'index': empty(batch, jnp.int32)}

  server = servers.pairs(empty_message) if pairs else servers.router(empty_message)
  return Method(Client(init, step), server, lambda state, g: state.client[g]['shown'])


def _check(local_rows, kl, labels):
  if not (kl or labels):
    raise ValueError('kl=False and labels=False leave nothing to learn from peers; set one of them to True')
  if not labels and local_rows == 'all':
    raise ValueError("labels=False with local_rows='all' would train on the peers' labels; set local_rows='own'")


def _received(down, id):
  """(teachers, present float[T]): the peers' messages, and whose are valid; never the node's own."""
  message = down.own['partner'] if down.own else down.shared
  teachers, valid = jax.lax.stop_gradient(values_of(message)), message['posterior'].valid
  if down.own:
    return jax.tree.map(lambda a: a[None], teachers), valid[None].astype(jnp.float32)
  others = (id + 1 + jnp.arange(valid.shape[0] - 1)) % valid.shape[0]
  return jax.tree.map(lambda a: a[others], teachers), valid[others].astype(jnp.float32)


def _teach(key, model, learner, data, batch, due):
  """The broadcast: soft labels on a batch of the node's own seed set, in inference mode, and their accuracy."""

  def message():
    index = data.shared.index[local.draw(key, data.shared.index.shape[0], data.shared.size, batch)]
    posterior = jax.nn.softmax(model.apply(local.variables(learner), data.pool.example[index], False)[0])
    accuracy = jnp.mean(jnp.argmax(posterior, -1) == data.pool.label[index], dtype=jnp.float32)
    return {'posterior': posterior, 'accuracy': accuracy, 'index': index}

  silent = lambda: jax.tree.map(jnp.zeros_like, jax.eval_shape(message))
  return {name: Masked(value, due) for name, value in jax.lax.cond(due, message, silent).items()}
