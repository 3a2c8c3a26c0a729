"""Server aggregation: rules over stacked uploads, and the servers of weights made of them.

A rule is `rule(rows, weight) -> tree`: `rows` has leaves [m, ...], one row per upload, `weight` is
float[m] >= 0, and a row of weight 0 is no upload at all (an empty seat, an absent class) and must not matter.
With all weights 0 the result is unused.
"""

import jax
import jax.numpy as jnp

from fedkd.types import Down, Sent, Server, is_sent


def _broadcast(weight, like):
  return weight.reshape(weight.shape + (1,) * (like.ndim - weight.ndim))


def total(term, *rows):
  """The sum of `term(*row)` over the rows, one after the other.

  `jnp.sum` adds in an order that depends on the number of rows, so that an empty seat, or another grouping of
  the same clients, would change the last bits.
  """
  one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), rows)
  zero = jax.tree.map(jnp.zeros_like, jax.eval_shape(term, *one))
  return jax.lax.scan(lambda sums, row: (jax.tree.map(jnp.add, sums, term(*row)), None), zero, rows)[0]


def mean(rows, weight):
  """Weighted mean (McMahan et al., 2017, Algorithm 1, with the weight n_k)."""
  share = weight / jnp.maximum(total(lambda w: w, weight), jnp.finfo(weight.dtype).tiny)
  return total(lambda row, s: jax.tree.map(lambda a: jnp.where(s > 0, a, 0) * s, row), rows, share)


def _sorted(rows, weight):
  """Each number's values in ascending order, those of absent rows (+inf) last; and how many are present."""
  order = jax.tree.map(lambda a: jnp.sort(jnp.where(_broadcast(weight > 0, a), a, jnp.inf), axis=0), rows)
  return order, jnp.sum(weight > 0)


def median(rows, weight):
  """Coordinate-wise median of the present rows, each counted once (Yin et al., 2018)."""
  order, count = _sorted(rows, weight)
  low, high = jnp.maximum(count - 1, 0) // 2, count // 2
  return jax.tree.map(lambda a: (a[low] + a[high]) / 2, order)


def trimmed_mean(rows, weight, share=0.1):
  """Coordinate-wise mean without the floor(share * m) smallest and largest of the m present rows (Yin et al., 2018)."""
  order, count = _sorted(rows, weight)
  cut = jnp.minimum((share * count).astype(jnp.int32), (count - 1) // 2)

  def reduce(a):
    place = jnp.arange(a.shape[0])
    kept = (place >= cut) & (place < count - cut)
    return total(lambda row, k: jnp.where(k, row, 0), a, kept) / jnp.maximum(count - 2 * cut, 1)

  return jax.tree.map(reduce, order)


def _reduce(rule, old, ups, ids):
  """The rule over uploads {..., 'count': [m]}, weighted by count; `old` where nobody uploaded."""
  weight = jnp.where(ids >= 0, ups['count'], 0).astype(jnp.float32)
  if not weight.shape[0]:  # a group without seats; a rule need not know about no rows at all
    return old
  new = rule({key: value for key, value in ups.items() if key != 'count'}, weight)
  return jax.tree.map(lambda n, o: jnp.where(jnp.any(weight > 0), n, o).astype(o.dtype), new, old)


def per_group(rule) -> Server:
  """One set of variables per architecture: the rule over a group's uploads {'params', 'batch_stats', 'count'}."""

  def receive(key, t, state, ups, ids):
    del key, t
    return tuple(_reduce(rule, *group) for group in zip(state, ups, ids, strict=True)), {}

  def send(key, t, state, ids):
    del key, t, ids
    return tuple(Down(shared=variables) for variables in state)

  return Server(lambda key, groups, variables, data: tuple(variables), receive, send)


def server(rule) -> Server:
  """Holds one set of variables for all: the rule over all uploads {'params', 'batch_stats', 'count'}.

  Raises:
    ValueError: at init, if the groups' variables differ in structure or shape.
  """

  def init(key, groups, variables, data):
    del key, data
    shapes = [jax.tree.map(jnp.shape, v) for v in variables]
    if any(s != shapes[0] for s in shapes):
      names = ', '.join(g.name for g in groups)
      raise ValueError(
        f'groups have different architectures ({names}), so their weights cannot be averaged; '
        'set method.per_group=True to average inside each architecture, or use zoo=homo'
      )
    return variables[0]

  def receive(key, t, state, ups, ids):
    del key, t
    return _reduce(rule, state, jax.tree.map(lambda *a: jnp.concatenate(a), *ups), jnp.concatenate(ids)), {}

  def send(key, t, state, ids):
    del key, t
    return tuple(Down(shared=state) for _ in ids)

  return Server(init, receive, send)


def as_rows(variables):
  """One set of variables as `Method.variables` wants it: leaves [1, ...], one model for the whole group."""
  return jax.tree.map(lambda a: a[None], variables)


def silent() -> Server:
  """A server that neither sends nor keeps anything."""
  return Server(
    lambda key, groups, variables, data: (),
    lambda key, t, state, ups, ids: ((), {}),
    lambda key, t, state, ids: tuple(Down() for _ in ids),
  )


def join(**servers) -> Server:
  """Gives each top-level key of a message its own server: join(logits=class_mean_store(), weights=per_group(mean))."""

  def init(key, groups, variables, data):
    keys = jax.random.split(key, len(servers))
    return {n: s.init(k, groups, variables, data) for k, (n, s) in zip(keys, servers.items(), strict=True)}

  def receive(key, t, state, ups, ids):
    keys = jax.random.split(key, len(servers))
    out = {
      name: part.receive(k, t, state[name], tuple(up[name] for up in ups), ids)
      for k, (name, part) in zip(keys, servers.items(), strict=True)
    }
    return {name: new for name, (new, _) in out.items()}, {k: v for _, info in out.values() for k, v in info.items()}

  def send(key, t, state, ids):
    keys = jax.random.split(key, len(servers))
    downs = {n: s.send(k, t, state[n], ids) for k, (n, s) in zip(keys, servers.items(), strict=True)}
    return tuple(
      Down({name: down[g].shared for name, down in downs.items()}, {name: down[g].own for name, down in downs.items()})
      for g in range(len(ids))
    )

  return Server(init, receive, send)


def after(start, server) -> Server:
  """`server`, silent in the rounds before `start`: every leaf it sends becomes a `Sent`, not valid until then."""

  def send(key, t, state, ids):
    def late(leaf):
      return Sent(leaf.value, leaf.valid & (t >= start)) if is_sent(leaf) else Sent(leaf, jnp.asarray(t >= start))

    return jax.tree.map(late, server.send(key, t, state, ids), is_leaf=is_sent)

  return server._replace(send=send)
