"""What one client sends in one round, read off the methods' own messages, beside what the papers print."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

import fedkd
from fedkd import analysis, ledger, methods, models
from fedkd.models.initial import initial_variables
from fedkd.round import of_client
from fedkd.states import initial_state
from fedkd.types import Download

CLIENTS = 2
TX = optax.sgd(0.1)


def sent(method, net, shape, classes, **given) -> dict:
  """{kind: numbers} that a client sends up in a round; nothing is trained.

  Args:
    net: the module of every client.
    shape: of an image.
    given: rows for `fedkd.federation`.
  """
  x, y = np.zeros((4 * classes, *shape), np.uint8), np.arange(4 * classes) % classes
  parts = np.array_split(np.arange(2 * classes), CLIENTS)
  made = fedkd.federation(x, y, parts, [net], **given)
  group, data, example = made.groups[0], made.data()[0], made.pool.example[0]

  def start(key):
    variables = initial_variables(key, group.model, example)
    return initial_state(key, method, made, (jax.tree.map(lambda a: a[None], variables),))

  state = jax.eval_shape(start, jax.random.key(0))

  def up(client, server):
    everybody = (jnp.arange(CLIENTS),)
    (down,) = method.server.send(jax.random.key(0), jnp.int32(1), made.groups, server, everybody, made.data())
    own = jax.tree.map(lambda a: a[0], (client, down.own))
    seen = Download(down.shared, own[1])
    return method.client.step(jax.random.key(0), jnp.int32(1), group.model, own[0], seen, of_client(data, 0))[1]

  counts = ledger.capacity(jax.eval_shape(up, state.client[0], state.server))
  return {kind: numbers for kind, (numbers, _) in counts.items()}


def model_9(classes):
  """FedHe's homogeneous net."""
  return models.ThreeConv((128, 128, 192), 0.3, classes=classes)


def fedhe_tables() -> pd.DataFrame:
  """FedHe's Tables III and IV."""
  lines = []
  turn = {'steps': 1, 'batch': 2}
  for data, shape, printed in (
    ('MNIST', (28, 28, 1), (324_672, 110, 7940)),
    ('CIFAR-10', (32, 32, 3), (326_976, 110, 30_820)),
  ):
    images, count = int(np.prod(shape)), 10
    weights = {}
    for classes in (20, 10):
      kinds = sent(methods.fedavg(TX, **turn), model_9(classes), shape, classes)
      weights[classes] = kinds['weights'] + kinds['statistics']
    small = models.MLP((2,), classes=10)  # what is sent about classes and rows depends on these alone
    knowledge = sum(sent(methods.fedhe(TX, **turn), small, shape, 10).values())
    fedmd = methods.fedmd(TX, subset=count, digest_batch=5, epochs=None, **turn)
    # Its public images are sent once, to everybody; the table counts them with every round.
    digest = sent(fedmd, small, shape, 10, public=np.arange(30, 30 + count))['knowledge'] + count * images
    note = f'{weights[10]:,} with the ten outputs that are trained'
    ours = ('FedAvg', weights[20], note), ('FedHe', knowledge, ''), (f'FedMD, {count} images', digest, '')
    for (name, numbers, note), of_paper in zip(ours, printed, strict=True):
      cut = f'{100 * (1 - numbers / weights[20]):.2f} %'
      line = {'data': data, 'method': name, 'printed': f'{of_paper:,}', 'ours': f'{numbers:,}', 'reduced by': cut}
      lines.append({**line, 'note': note})
  return pd.DataFrame(lines)


def fedh2l_bandwidth() -> pd.DataFrame:
  """Numbers up per node and exchange, and how many times that FedAvg sends."""
  lines = []
  settings = (
    ('Rotated MNIST, LeNet', models.LeNet(), (28, 28, 1), 10),
    ('PACS, VGG11', models.VGG11(classes=7), (224, 224, 3), 7),
    ('Office-Home, ResNet50', models.ResNet50(classes=65), (224, 224, 3), 65),
  )
  for name, net, shape, classes in settings:
    image = jax.ShapeDtypeStruct((1, *shape), 'float32')
    variables = jax.eval_shape(lambda x, net=net: net.init(jax.random.key(0), x, False), image)
    weights = optax.tree.size(variables['params'])
    # What is sent depends on the classes alone, so a small net will do.
    small, given = models.MLP((2,), classes=classes), [np.arange(classes - 2), np.arange(classes, 2 * classes - 2)]
    up = sent(methods.fedh2l(TX, batch=32), small, (2, 2, 1), classes, shared=given)['knowledge']
    lines.append({'setting': name, 'FedH2L': f'{up:,}', 'weights': f'{weights:,}', 'ratio': f'{weights / up:,.0f}'})
  return pd.DataFrame(lines)


def felo_share() -> str:
  """What Felo sends beside the weights of a ResNet18."""
  width, classes = 512, 10
  kinds = sent(methods.felo(TX, epochs=1), models.MLP((width,), classes=classes), (2, 2, 1), classes)
  more = kinds['knowledge'] + kinds['labels'] - 1  # n_k is FedAvg's too
  image = jax.ShapeDtypeStruct((1, 32, 32, 3), 'float32')
  weights = optax.tree.size(
    jax.eval_shape(lambda x: models.ResNet18().init(jax.random.key(0), x, False), image)['params']
  )
  return (
    f'Felo: {more:,} numbers of knowledge beside the {weights:,} weights of a ResNet18, {100 * more / weights:.4f} %.'
  )


@functools.cache
def section() -> list:
  """The lines of the report."""
  return [
    '## Communication',
    '',
    'FedHe, Tables III and IV: numbers of one client in one round, one direction.',
    '',
    analysis.markdown(fedhe_tables()),
    '',
    'FedH2L: numbers up per node and exchange, and how many times that FedAvg sends. As in the paper without the',
    'numbers of the 32 rows, which the ledger above counts: 353 for Rotated MNIST.',
    '',
    analysis.markdown(fedh2l_bandwidth()),
    '',
    'The paper says "over 1000 times" and, in its limitations, "10e6 times".',
    '',
    felo_share(),
    '',
  ]
