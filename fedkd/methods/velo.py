"""Velo: Chan and Ngai, "Exploiting Features and Logits in Heterogeneous Federated Learning", 2022, Algorithm 2.

Felo with a server that does not average the features: a conditional variational autoencoder learns them and samples new
ones.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, servers
from fedkd.checks.ranges import Count, Positive, Range, Weight, checked
from fedkd.losses import Direction
from fedkd.methods.felo import Reduction, Upload, exchanging
from fedkd.models.cvae import CVAE
from fedkd.servers.features_and_logits import Alignment
from fedkd.types import Download, Method, Server


@checked
def velo(
  tx: optax.GradientTransformation,
  epochs: Count | None = 5,
  steps: Count | None = None,
  batch: Positive = 10,
  alpha: Weight = 0.5,
  initial: Count = 5,
  load_in_initial: bool = False,
  upload: Upload = 'class_mean',
  limits: tuple[Positive, Positive] = (5000, 50000),
  feature_align: Alignment = 'none',
  equal_weights: bool = False,
  kl_reduction: Reduction = 'batchmean',
  kl_direction: Direction = 'server',
  interval: Positive = 1,
  cvae_lag: Annotated[int, Range(least=0, most=1)] = 0,
  cvae_epochs: Positive = 10,
  cvae_batch: Positive = 50,
  cvae_rate: Weight = 1e-3,
  latent: Count = 0,
  vae_loss: Literal['elbo', 'code'] = 'elbo',
  vae_variance: Weight = 1.0,
  relu: bool = False,
  rule: aggregate.AnyRule = aggregate.mean,
  knowledge_rule: aggregate.AnyRule | None = None,
  keep_optimizer: bool = False,
) -> Method:
  """Generated features and class-mean logits for all clients, weights within each architecture.

  Learned: one set of weights per architecture and the autoencoder, on the server. Sent: up as in Felo; down one
  generated feature per class in place of the mean. Averaged: weights within each architecture, logits over all.

  Args (all others as in `felo`):
    limits: features and logits kept per class, first in, first out (logits only with upload='per_sample').
    interval: rounds between two trainings of the autoencoder, the first before round `initial`, or as soon as any
      features are stored.
    cvae_lag: 0, trained on all uploads so far; 1, on those up to the round before, as if the server trained while
      clients do.
    cvae_epochs, cvae_batch, cvae_rate: passes over the stored features, examples per mini-batch, Adam's learning rate.
    latent: numbers of the latent vector; 0 is the width of the features.
    vae_loss: 'elbo', half the squared error plus KL, each summed over a vector and averaged over the batch (Eq. 2); or
      'code', the squared error averaged over all numbers, KL summed over all.
    vae_variance: of the noise that 'elbo' assumes around a decoded number. Eq. 2 has 1, compared with which class means
      hardly differ: the posterior then collapses to the prior (`cvae_kl` near 0, no `cvae_active`), and what is
      generated is the mean, as in Felo. 0: the maximum-likelihood value of each batch (sigma-VAE, Rybkin et al., 2021,
      Eq. 5).
    relu: whether the decoder has a ReLU between its layers.
    knowledge_rule: None for the running mean of the logits; an aggregation rule instead reduces the clients' latest
      logits, class by class. Features are generated, so no rule sees them.

  Raises:
    ValueError: for an unknown choice, a number out of range, a variance other than 1 with 'code', or a `knowledge_rule`
      with 'per_sample'.
  """
  if vae_loss == 'code' and vae_variance != 1:
    raise ValueError(f"{vae_variance=} must be 1 with vae_loss='code', which has no variance")
  logits = _logits(upload, limits[1], knowledge_rule)
  rounds: dict[str, Any] = {'first': max(initial, 1 + cvae_lag), 'interval': interval, 'lag': cvae_lag}
  training: dict[str, Any] = {'tx': optax.adam(cvae_rate), 'work': local.Work(cvae_batch, epochs=cvae_epochs)}
  net: dict[str, Any] = {'latent': latent, 'loss': LOSSES[vae_loss], 'variance': vae_variance, 'relu': relu}
  features = functools.partial(generator, limit=limits[0], **rounds, **training, **net)
  start: dict[str, Any] = {'initial': initial, 'load_in_initial': load_in_initial, 'feature_align': feature_align}
  loss: dict[str, Any] = {'alpha': alpha, 'kl_reduction': kl_reduction, 'kl_direction': kl_direction}
  means: dict[str, Any] = {'upload': upload, 'equal_weights': equal_weights, 'rule': rule}
  work = local.Work(batch, steps, epochs)
  return exchanging(tx, logits, features, work, **start, **loss, **means, keep_optimizer=keep_optimizer)


def _logits(upload, limit, rule):
  """() -> the server of the logits."""
  if rule is None:
    return servers.class_means if upload == 'class_mean' else functools.partial(servers.buffered_class_means, limit)
  if upload == 'per_sample':
    raise ValueError("knowledge_rule reduces the latest class means of every client; set upload='class_mean'")
  return functools.partial(servers.latest_class_knowledge, rule)


def elbo(
  feature: jax.Array, rebuilt: jax.Array, mean: jax.Array, log_variance: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Negative evidence lower bound of a batch, up to a constant (Eq. 2): (half the squared error, KL to N(0, I)).

  Args:
    feature, rebuilt: [B, d].
    mean, log_variance: [B, latent], of the approximate posterior.

  Returns:
    Two float[], means over the batch.
  """
  kl = 0.5 * (jnp.exp(log_variance) + mean**2 - 1 - log_variance)
  return 0.5 * jnp.sum(jnp.square(feature - rebuilt), -1).mean(), jnp.sum(kl, -1).mean()


def code(
  feature: jax.Array, rebuilt: jax.Array, mean: jax.Array, log_variance: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """The authors' loss: squared error averaged over all numbers, KL summed over the batch; as `elbo`."""
  return jnp.mean(jnp.square(feature - rebuilt)), elbo(feature, rebuilt, mean, log_variance)[1] * len(feature)


LOSSES = {'elbo': elbo, 'code': code}
ACTIVE = 0.01  # variance of a posterior mean above which its unit counts as used (Burda et al., 2016)


def scaled(squares: jax.Array, width: int, variance: float) -> jax.Array:
  """Half the squared error of vectors of `width` numbers as a negative log-likelihood, up to a constant, with noise of
  `variance`; 0: of the variance that minimises it, the mean squared error itself."""
  return squares / variance if variance else width / 2 * jnp.log(2 * squares / width)


def active_units(mean: jax.Array, row: jax.Array, held: jax.Array) -> jax.Array:
  """How many of the latent numbers depend on the features: their posterior means vary inside a class by more than
  `ACTIVE`. Burda et al. take the variance over all examples; here the encoder knows the class anyway.

  Args:
    mean: [R, latent], posterior means.
    row: [classes, R], 1 where an example belongs to the class and is stored.
    held: float[], the number of examples.

  Returns:
    float[].
  """
  of_class = row @ mean / jnp.maximum(row.sum(1, keepdims=True), 1)
  spread = jnp.square(mean - row.T @ of_class) * row.sum(0)[:, None]
  return jnp.sum(spread.sum(0) / jnp.maximum(held, 1) > ACTIVE).astype(jnp.float32)


def generator(
  *,
  limit: int,
  first: int,
  interval: int,
  lag: int,
  tx: optax.GradientTransformation,
  work: local.Work,
  latent: int,
  loss: Callable[..., tuple[jax.Array, jax.Array]],
  variance: float,
  relu: bool,
  width: int,
) -> Server:
  """Keeps features and sends one per non-empty class, sampled from its autoencoder: new samples each round, the same
  for all clients.

  Args:
    limit: features kept per class.
    first: the first round with stored features.
    tx, work: optimizer of the autoencoder, fresh in every training, its batch and passes over the features.
    loss: `elbo` or `code`.
    width: numbers per feature.
    (others): as in `velo`, without their prefix.
  """
  net = lambda classes: CVAE(width, classes, latent or width, relu)

  def init(key, groups, variables, data):
    del variables, data
    classes = groups[0].model.classes
    blank = jnp.zeros((2, width)), jnp.zeros(2, jnp.int32)
    nothing = dict.fromkeys(('cvae_reconstruction', 'cvae_kl', 'cvae_active'), jnp.float32(0))
    cvae = {'batch_stats': {}, **net(classes).init(key, *blank, key, False)}
    return {
      'store': servers.class_buffer(classes, limit, width),
      'cvae': cvae,
      'known': jnp.zeros(classes, bool),
      'info': nothing,
    }

  def train(key, cvae, buffer):
    """(cvae, info) after passes over the whole buffer, with a fresh optimizer."""
    classes, places = buffer['value'].shape[:2]
    feature, held = buffer['value'].reshape(-1, width), servers.stored(buffer).reshape(-1)
    rows = jnp.argsort(~held, stable=True)  # places of the buffer, `places` per class; filled ones first

    def loss_fn(params, batch_stats, key, row):
      s, label = feature[row], row // places
      at = {'params': params, 'batch_stats': batch_stats}
      out, new = net(classes).apply(at, s, label, key, True, mutable=['batch_stats'])
      rebuilt, kl = loss(s, *out)
      sums = local.tally(row, cvae_reconstruction=rebuilt, cvae_kl=kl)
      return scaled(rebuilt, width, variance) + kl, (new['batch_stats'], sums)

    learner, sums = local.fit(key, local.start(cvae, tx), tx, loss_fn, (rows, jnp.sum(held)), work)
    metrics = local.report(sums)
    info = {name: metrics[name] for name in ('cvae_reconstruction', 'cvae_kl')}
    label = jnp.arange(classes * places) // places
    mean, _ = net(classes).apply(local.variables(learner), feature, label, False, method='encode')
    row = jax.nn.one_hot(label, classes).T * held
    return local.variables(learner), {**info, 'cvae_active': active_units(mean, row, jnp.sum(held))}

  def receive(key, t, groups, state, uploads, ids, data):
    buffer = servers.push(state['store'], t, uploads)
    material = state['store'] if lag else buffer
    # For the next round. A function of the round alone: under vmap over seeds, both branches would run if seeds
    # differed.
    due = (t + 1 >= first) & ((t + 1 - first) % interval == 0)
    before = state['cvae'], state['info']
    learn = lambda: optax.tree.cast_like(train(key, state['cvae'], material), before)
    cvae, info = jax.lax.cond(due, learn, lambda: before)
    known = jnp.where(due, material['count'] > 0, state['known'])  # the classes that it was trained on
    new = {'store': buffer, 'cvae': cvae, 'known': known, 'info': info}
    metrics = {name: jnp.where(jnp.any(known), value, jnp.nan) for name, value in info.items()}  # none before the first
    return new, {**metrics, 'cvae_trained': due & jnp.any(known), 'knowledge_age': servers.buffer_age(t, buffer)}

  def send(key, t, groups, state, ids, data):
    classes = state['store']['value'].shape[0]
    z = jax.random.normal(key, (classes, latent or width))
    drawn = net(classes).apply(state['cvae'], z, jnp.arange(classes), method='decode')
    return tuple(Download(shared=servers.class_message(drawn, state['known'])) for _ in ids)

  return Server(init, receive, send)
