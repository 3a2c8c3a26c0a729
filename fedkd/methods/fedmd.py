"""FedMD: Li and Wang, "FedMD: Heterogenous Federated Learning via Model Distillation", 2019, Algorithm 1.

Clients of any architecture agree on the logits of a public set. Transfer learning comes before: the phases `public` and
`private`. A round here is: distill the consensus on the last subset ("digest"), train on own data ("revisit"), upload
logits on the next subset. Round 0 only uploads, so that R + 1 rounds are the paper's R.
"""

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, examples, inference, local, losses
from fedkd.errors import check_choice
from fedkd.models import base
from fedkd.ranges import Count, Positive, Scale, Weight, checked
from fedkd.types import Client, Download, Masked, Method, Server

LOSSES = {'mae': losses.mae, 'mse': losses.mse, 'kl': losses.kl}


@checked
def fedmd(
  tx: optax.GradientTransformation,
  subset: Count = 5000,
  digest_epochs: Positive = 1,
  digest_batch: Positive = 256,
  digest_loss: str = 'mae',
  temperature: Scale = 1.0,
  epochs: Count | None = 2,
  steps: Count | None = None,
  batch: Positive = 5,
  weights: tuple[Weight, ...] = (),
  keep_optimizer: bool = True,
  rows: str = 'own',
  rule: aggregate.AnyRule = aggregate.mean,
) -> Method:
  """Consensus on the logits of public images.

  Learned: every client's own model, with two persistent optimizer states, one for distillation and one for the revisit
  (which continues from the phase before). Sent: logits on a subset of the public rows up, their mean and the rows of
  the next subset down. Averaged: logits, by `rule`.

  Args:
    tx: optax optimizer.
    subset: public rows per round, new ones each round, every label in proportion; 0 is all rows.
    digest_epochs, digest_batch: of the distillation, passes over the subset and examples per mini-batch.
    digest_loss: 'mae' (the authors' code), 'mse', or 'kl' at `temperature`.
    temperature: of 'kl'; may be traced.
    epochs: passes over the client's own data per round ("revisit"); or
    steps: mini-batches.
    batch: examples per mini-batch of the revisit.
    weights: c_k of every client; () weighs all alike. Normalised over the clients of a round.
    rows: of the revisit, 'own' or 'unshared': whether the examples that the client shares are among them.
    keep_optimizer: whether the two optimizer states persist across rounds; else they are fresh in each.
    rule: aggregation rule of the logits, weighted by c_k; the mean is the paper's.

  Raises:
    ValueError: for an unknown digest_loss, a number out of range, without public rows, with fewer than `subset` of
      them, or with a number of weights that is not the number of clients.
  """
  check_choice('digest_loss', digest_loss, LOSSES)
  check_choice('rows', rows, examples.OWN)

  def init(key, model, data, variables):
    del key, model, data
    fresh = local.start(variables, tx)
    return {'learner': fresh._replace(opt=variables.get('opt', fresh.opt)), 'digest_opt': fresh.opt}

  def step(key, t, model, state, down, data):
    key_distill, key_revisit = jax.random.split(key)
    received, private = down.shared, examples.OWN[rows](data)
    on = received['consensus'].valid

    def distill_fn(params, batch_stats, key, lesson):
      index, target = lesson
      # The consensus is of images without augmentation.
      logits, out, batch_stats = local.forward(
        base.unaugmented(model), params, batch_stats, key, data.pool.example[index]
      )
      distance = lambda logits, target: LOSSES[digest_loss](logits, target, temperature)
      loss = jnp.mean(jax.vmap(distance)(logits, target))
      return loss + local.penalty(out), (batch_stats, local.tally(index, distill_loss=loss))

    learner = local.resume(state['learner'], tx, keep_optimizer)
    distiller = local.resume(learner._replace(opt=state['digest_opt']), tx, keep_optimizer)
    lessons = (received['last']['index'].value, received['consensus'].value)
    size = jnp.where(on, lessons[0].shape[0], 0)
    distilled, sums = local.fit(
      key_distill, distiller, tx, distill_fn, lessons, size, digest_batch, None, digest_epochs, t
    )
    size = jnp.where(on, private.size, 0)
    loss_fn = local.supervised(model, data.pool)
    learner, revisit = local.fit(
      key_revisit, distilled._replace(opt=learner.opt), tx, loss_fn, private.index, size, batch, steps, epochs, t
    )
    up = {'logits': inference.infer(model, local.variables(learner), data.pool.example, received['index'])}
    both = {**local.report(sums), **local.report(revisit)}
    both['examples'] = sums['metrics']['examples'] + revisit['metrics']['examples']
    return {'learner': learner, 'digest_opt': distilled.opt}, up, both

  return Method(
    Client(init, step), _consensus(subset, weights, rule), lambda state, g: local.variables(state.client[g]['learner'])
  )


def stratified(key: jax.Array, label: jax.Array, size: jax.Array, many: int) -> jax.Array:
  """`many` of the positions 0..size-1 at random, every label in proportion to its share, to within one example.

  Args:
    label: int32[n]; entries from `size` on are padding.
    size: int32[], may be traced.
    many: at most `size`, and below 2^16 if below `size`.

  Returns:
    int32[many], in random order.
  """
  key_rank, key_start, key_order = jax.random.split(key, 3)
  label = jnp.where(jnp.arange(label.shape[0]) < size, label, label.max() + 1)
  order = jnp.lexsort((jax.random.uniform(key_rank, label.shape), label))
  # Label after label, every (size / many)-th from a random start: no label can get one more or less than its share.
  size, steps = size.astype(jnp.uint32), jnp.arange(many, dtype=jnp.uint32)
  start = jax.random.randint(key_start, (), 0, size.astype(jnp.int32)).astype(jnp.uint32)
  places = steps * (size // many) + (steps * (size % many) + start) // many
  return jax.random.permutation(key_order, order[places])


def _consensus(subset, weights, rule) -> Server:
  """The clients' logits on a subset of the public rows, which the server draws, reduced by `rule`."""
  checked = aggregate.as_rule(rule)

  def init(key, groups, variables, data):
    del variables
    rows, clients = examples.public(data[0]), sum(len(g.ids) for g in groups)
    available = rows.index.shape[0]
    if not 0 <= subset <= available:
      raise ValueError(
        f'subset={subset} of {available} public rows; set method.subset to at most that, or to 0 for all'
      )
    if len(weights) not in (0, clients):
      raise ValueError(f'weights has {len(weights)} entries for {clients} clients; give one each, or ()')
    many, label = subset or available, data[0].pool.label[rows.index]
    index = rows.index[stratified(key, label, rows.size, many)]
    return {
      'public': {'index': rows.index, 'label': label, 'size': rows.size},
      'consensus': jnp.zeros((many, groups[0].model.classes)),
      'on': jnp.zeros((), bool),  # whether there is a consensus yet
      'heard': jnp.zeros(clients, bool),  # who took part when its rows were sent
      'last': index,  # the rows of the consensus
      'index': index,  # the rows to report on next
      'rule': checked.init(jnp.zeros((many, groups[0].model.classes))),
    }

  def receive(key, t, state, uploads, ids):
    del t
    every, public = jnp.concatenate(ids), state['public']
    if not every.shape[0]:
      return state, {}
    present = every >= 0
    trust = jnp.asarray(weights or (1.0,) * state['heard'].shape[0], jnp.float32)
    weight = jnp.where(present, trust[every], 0.0)
    logits = jnp.concatenate([up['logits'] for up in uploads])
    consensus, memory = checked.update(logits, weight, state['rule'])
    new = {
      'consensus': consensus,
      'on': jnp.ones((), bool),
      'heard': jnp.zeros_like(state['heard']).at[jnp.where(present, every, trust.shape[0])].set(True, mode='drop'),
      'last': state['index'],
      'index': public['index'][stratified(key, public['label'], public['size'], state['index'].shape[0])],
    }
    some = jnp.any(weight > 0)
    new = {name: jnp.where(some, value, state[name]) for name, value in new.items()}
    return {**state, **new, 'rule': memory}, {}

  def send(key, t, state, ids):
    del key, t
    every = jnp.concatenate(ids)
    # Who took part last round knows the rows of the consensus.
    missed = jnp.any((every >= 0) & ~state['heard'][every])
    shared = {
      'consensus': Masked(state['consensus'], state['on']),
      'last': {'index': Masked(state['last'], state['on'] & missed)},
      'index': state['index'],
    }
    return tuple(Download(shared=shared) for _ in ids)

  return Server(init, receive, send)
