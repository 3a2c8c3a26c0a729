"""What `launch.bench` trains: a case's images, models and method."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedkd import methods
from fedkd.federation import Federation, everybodys, table
from fedkd.models.base import Preprocessed
from fedkd.types import Group, Pool

ROWS = 100  # training rows per client, or a batch if that is more
MOST = 4096  # images of the one model's batch


class Half(Preprocessed):
  """A network whose maps, and with them convolutions, are bfloat16."""

  def prepare(self, x, train):
    return super().prepare(x, train).astype(jnp.bfloat16)


def model_of(net, config):
  """The model that a row trains, on raw images.

  A JAX precision of 'bfloat16' is TF32 on a GPU, so maps are cast; dense layers and parameters stay float32.
  """
  half = config.precision == 'bfloat16'
  fields = {'dtype': 'bfloat16'} if half and hasattr(net, 'dtype') else {}
  net = net.clone(lowering=config.lowering, **fields)
  return (Half if half else Preprocessed)(net, np.float32(0), np.float32(1 / 255))


def method_of(case):
  """The method of a case, with Adam."""
  return getattr(methods, case.method)(optax.adam(1e-3), steps=case.steps, batch=case.batch)


def examples(case):
  """(images uint8 [N, H, W, channels], labels [N], rows [clients, n]) of random numbers."""
  draw, each = np.random.default_rng(0), max(ROWS, case.batch)
  count = case.clients * each
  images = draw.integers(0, 256, (count, *case.shape), np.uint8)
  return images, draw.integers(0, 10, count).astype(np.int32), np.arange(count, dtype=np.int32).reshape(-1, each)


def federation_of(case, config):
  """The `Federation` of a case: `case.clients` clients for each of its networks, which are the groups."""
  images, labels, rows = examples(case._replace(clients=case.clients * len(case.nets)))
  ids = np.split(np.arange(len(rows), dtype=np.int32), len(case.nets))
  groups = tuple(Group(f'{type(net).__name__} {g}', model_of(net, config), ids[g]) for g, net in enumerate(case.nets))
  private = tuple(jax.tree.map(jnp.asarray, table(rows[own], own)) for own in ids)
  everyone = jax.tree.map(jnp.asarray, everybodys(rows.reshape(-1)))
  return Federation(groups, Pool(jnp.asarray(images), jnp.asarray(labels)), private, everyone)


def one_model(case):
  """A case with one client, whose batch is as large as those of all clients together, but at most MOST."""
  return case._replace(clients=1, chunk=1, batch=min(MOST, case.clients * case.batch))
