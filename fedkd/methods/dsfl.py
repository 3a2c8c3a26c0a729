"""DS-FL, distillation-based semi-supervised federated learning: Itahara, Nishio, Koda, Morikura, Yamamoto,
"Distillation-Based Semi-Supervised Federated Learning for Communication-Efficient Collaborative Training with Non-IID
Private Data", 2020.

Clients predict public images; the server averages the probabilities, sharpens them, and everybody distils them.
"""

from typing import Literal

import jax
import optax

from fedkd import aggregate, distillation, examples, keys, local, losses, servers
from fedkd.checks.ranges import Count, Positive, Scale, Weight, checked
from fedkd.inference import infer
from fedkd.servers.sharpening import Aggregation
from fedkd.types import Client, Method, apply_model

Inference = Literal['server', 'own']


@checked
def dsfl(
  tx: optax.GradientTransformation,
  subset: Count = 1000,
  digest_epochs: Count = 5,
  digest_batch: Positive = 50,
  epochs: Count | None = 5,
  steps: Count | None = None,
  batch: Positive = 50,
  aggregation: Aggregation = 'era',
  temperature: Scale = 0.1,
  exponent: Weight = 2.0,
  inference: Inference = 'server',
  keep_optimizer: bool = True,
  rule: aggregate.AnyRule = aggregate.mean,
) -> Method:
  """Sharpened mean probabilities on unlabelled public images.

  Learned: every client's own model, with one optimizer state for distillation and one for its own rows, and on the
  server a model of each architecture (the paper has one architecture). Sent: probabilities on a subset of the public
  rows up, their sharpened mean and the rows of the next subset down. Averaged: probabilities, by `rule`. Labels of
  public rows are not used: a client does not train on the rows that it shares.

  Args:
    tx: optax optimizer, of the clients and of the server's models.
    subset: public rows per round, new ones each round; 0, or more than there are, is all.
    digest_epochs, digest_batch: of the distillation, passes over the subset and examples per mini-batch; no passes is
      Private, except for the server's models, so that `inference='own'` is then required.
    epochs: passes over the client's own data per round; or
    steps: mini-batches.
    batch: examples per mini-batch of them.
    aggregation: 'era', the softmax of mean probabilities divided by `temperature`; 'mean', as they are (SA in the
      paper); 'power', to the power of `exponent` (SCARLET).
    temperature, exponent: may be traced.
    inference: a client uses the 'server' model of its architecture, `accuracy_own` being that of its own model; or its
      'own', in which case the server has none.
    keep_optimizer: whether the clients' optimizer states persist across rounds; else they are fresh in each.
    rule: aggregation rule of the probabilities, before they are sharpened, every client with weight 1; the mean is the
      paper's. With aggregation='mean' what another returns is sent as it is, also where it does not add up to 1.

  Raises:
    ValueError: for an unknown choice, or without public rows.
  """
  sharpen = servers.sharpening(aggregation, temperature, exponent)
  server = servers.consensus(subset, rule, draw=servers.uniform, sharpen=sharpen)
  work = local.Work(batch, steps, epochs)
  digest = local.Work(digest_batch, epochs=digest_epochs)

  def step(key, t, model, state, down, data):
    received, private = down.shared, examples.unshared(data)
    targets = servers.distillation_targets(received)
    away, loss_fn = distillation.towards(model, data.pool, distance), local.supervised(model, data.pool)
    distill = lambda learner: local.fit(
      jax.random.fold_in(key, keys.DISTILLATION), learner, tx, away, targets, digest, t
    )
    revisit = lambda learner: local.fit(key, learner, tx, loss_fn, private, work, t)
    digests = distill if digest_epochs else None
    state, info = distillation.distill_and_revisit(state, tx, keep_optimizer, digests, revisit)
    logits = infer(model, local.variables(state.learner), data.pool.example, received['index'])
    return state, {'knowledge': jax.nn.softmax(logits)}, info

  own = Method(Client(distillation.starting(tx), step), server, distillation.own_models)
  return evaluated(own, inference, tx, digest)


def evaluated(method: Method, inference: Inference, tx: optax.GradientTransformation, digest: local.Work) -> Method:
  """`method`, whose clients use their own models, or those that its server of a consensus then trains.

  Raises:
    ValueError: for a server that would train for no epochs.
  """
  if inference == 'own':
    return method
  if not digest.epochs:
    raise ValueError("digest_epochs=0 leaves the server's models untrained; set inference='own'")
  server = servers.students(method.server, tx, digest, distance)
  own = lambda model, variables, server_state, x: apply_model(model, variables['own'], server_state, x)
  return method._replace(server=server, deployed=servers.student_of, predictions=(('own', own),))


def distance(logits: jax.Array, target: jax.Array) -> jax.Array:
  """KL(target || softmax(logits)) of one example, with a target of probabilities [C]."""
  return losses.kl_divergence(target, logits)
