"""What `launch/bench.py` trains: a case's images, models and method."""

import jax.numpy as jnp
import numpy as np
import optax

from fedkd import methods
from fedkd.models.base import Preprocessed
from fedkd.types import Data, ExampleIndices, Pool

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


def data_of(case):
  """The `Data` of all clients of a case."""
  images, labels, rows = examples(case)
  size, ids = jnp.full(len(rows), rows.shape[1], jnp.int32), jnp.arange(len(rows))
  everyone = ExampleIndices(jnp.arange(rows.size), jnp.int32(rows.size), jnp.int32(-1))
  return Data(Pool(jnp.asarray(images), jnp.asarray(labels)), ExampleIndices(jnp.asarray(rows), size, ids), everyone)


def one_model(case):
  """A case with one client, whose batch is as large as those of all clients together, but at most MOST."""
  return case._replace(clients=1, chunk=1, batch=min(MOST, case.clients * case.batch))
