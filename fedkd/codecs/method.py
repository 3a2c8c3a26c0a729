"""A method with coded messages."""

import jax

from fedkd import keys
from fedkd.checks.kinds import check_is
from fedkd.codecs.codec import IDENTITY, Codec, check_codec
from fedkd.codecs.messages import bases_of, decoded, encoded, is_shorter, with_arrays
from fedkd.types import Download, Method, is_partial


def coded(method: Method, up: Codec | None = None, down: Codec | None = None) -> Method:
  """A method whose uploads and downloads are coded; everything else, including state and random numbers, is as before.

  Args:
    method: any `Method`.
    up: codec of the uploads; None: they are sent as they are.
    down: codec of the downloads.

  Raises:
    ValueError: for what is no method or codec, and for changes down; by `fedkd.simulation` for changes up where nothing
      in an upload corresponds to a download, for weights of which a codec leaves numbers out that their receiver does
      not have, for messages that are coded already, and for a codec that raises or returns something else than `Codec`
      says.
  """
  check_is('method', method, Method, 'a method such as fedkd.methods.fedhe(optax.adam(1e-3))')
  for field, codec in (('up', up), ('down', down)):
    check_codec(field, codec)
  up, down = up or IDENTITY, down or IDENTITY
  if down.changes:
    raise ValueError(
      'changes=True for downloads would need what each client had before; set it to False, or code only uploads'
    )

  def step(key, t, model, state, download, data):
    received = decoded(down, download)
    state, upload, info = method.client.step(key, t, model, state, received, data)
    upload, bases = with_arrays(upload), bases_of(received) if up.changes else None
    _check_whole(up, upload, received if up.changes else None)
    return state, encoded(up, jax.random.fold_in(key, keys.UP), upload, bases), info

  def receive(key, t, groups, state, uploads, ids, data):
    decode = tuple(decoded(up, upload, True) for upload in uploads)
    return method.server.receive(key, t, groups, state, decode, ids, data)

  def send(key, t, groups, state, ids, data):
    downs = with_arrays(method.server.send(key, t, groups, state, ids, data))
    key = jax.random.fold_in(key, keys.DOWN)
    _check_whole(down, downs)
    to_each = jax.vmap(lambda id, own: encoded(down, jax.random.fold_in(key, id), own))
    return tuple(Download(encoded(down, key, d.shared), to_each(i, d.own)) for d, i in zip(downs, ids, strict=True))

  server = method.server._replace(receive=receive, send=send)
  return method._replace(client=method.client._replace(step=step), server=server)


def _check_whole(codec, message, received=None):
  """Checks that a codec leaves out no weights, unless an upload is coded as changes of weights that were `received`.

  Raises:
    ValueError: if it does; a network without most of its weights is useless.
  """
  leaves = lambda tree: jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_partial)
  had = {jax.tree_util.keystr(path) for part in received or () for path, leaf in leaves(part) if not is_partial(leaf)}
  for path, leaf in leaves(message) if codec.drops else ():
    name = jax.tree_util.keystr(path)
    if "['params']" in name and name not in had and is_shorter(codec, leaf):
      why = (
        'and a network without them is useless; code changes (changes=True, for uploads alone), or choose'
        if received is None
        else 'and clients of this method lack the weights in some rounds, of which they would send changes; choose'
      )
      raise ValueError(f'the codec leaves weights out, {why} another one, such as quantised or float16')
