"""Server aggregation: rules over stacked uploads, and the servers made of them.

A rule is `rule(rows, weight) -> tree`: `rows` has leaves [m, ...], one row per upload, `weight` is
float[m] >= 0, and a row of weight 0 is no upload at all (an empty seat, an absent class) and must not matter.
With all weights 0 the result is unused.
"""

import jax
import jax.numpy as jnp

from fedkd.types import Down, Peers, Sent, Server


def _broadcast(weight, like):
  return weight.reshape(weight.shape + (1,) * (like.ndim - weight.ndim))


def _total(term, *rows):
  """The sum of `term(*row)` over the rows, one after the other.

  `jnp.sum` adds in an order that depends on the number of rows, so that an empty seat, or another grouping of
  the same clients, would change the last bits.
  """
  one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), rows)
  zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(term, *one))
  return jax.lax.scan(lambda total, row: (jax.tree.map(jnp.add, total, term(*row)), None), zero, rows)[0]


def mean(rows, weight):
  """Weighted mean (McMahan et al., 2017, Algorithm 1, with the weight n_k)."""
  share = weight / jnp.maximum(_total(lambda w: w, weight), jnp.finfo(weight.dtype).tiny)
  return _total(lambda row, s: jax.tree.map(lambda a: jnp.where(s > 0, a, 0) * s, row), rows, share)


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
    return _total(lambda row, k: jnp.where(k, row, 0), a, kept) / jnp.maximum(count - 2 * cut, 1)

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


def class_message(value, valid):
  """Knowledge per class, as it is sent either way: {'knowledge': Sent [C, width], 'label': Sent int32[C]}."""
  return {'knowledge': Sent(value, valid), 'label': Sent(jnp.arange(valid.shape[0], dtype=jnp.int32), valid)}


def _clients(groups) -> int:
  return max(int(g.ids.max(initial=-1)) for g in groups) + 1


def class_mean_store(width=None, cold_start=0.0, refresh_every=0.0) -> Server:
  """Running mean per class of everything ever uploaded (FedHe, Chan and Ngai, 2021, Eqs. 9 and 10).

  Messages are `class_message`s; only valid classes are absorbed. Time is client turns, so that synchronous and
  asynchronous plans agree.

  Args:
    width: numbers per class; None for the number of classes (logits).
    cold_start: turns per client during which nothing is published.
    refresh_every: turns per client after which the store collapses to its mean (sum <- sum / count,
      count <- 1), as in the authors' code; 0 never.
  """

  def init(key, groups, variables, data):
    del key, variables, data
    classes, clients = groups[0].model.classes, _clients(groups)
    return {
      'sum': jnp.zeros((classes, width or classes)),
      'count': jnp.zeros(classes, jnp.int32),
      'turns': jnp.int32(0),
      'cold_start': jnp.int32(cold_start * clients),
      'refresh_every': jnp.int32(refresh_every * clients),
    }

  def receive(key, t, state, ups, ids):
    del key, t
    # All groups in one sum: sums per group would round differently for another grouping of the same clients.
    value, valid = jax.tree.map(lambda *a: jnp.concatenate(a), *(up['knowledge'] for up in ups))  # valid [m, C]
    total = state['sum'] + _total(lambda v, ok: jnp.where(ok[:, None], v, 0), value, valid)
    count = state['count'] + jnp.sum(valid, 0, dtype=jnp.int32)
    before, every = state['turns'], state['refresh_every']
    after = before + sum(jnp.sum(i >= 0, dtype=jnp.int32) for i in ids)
    due = (every > 0) & (after // jnp.maximum(every, 1) > before // jnp.maximum(every, 1))
    total = jnp.where(due, total / jnp.maximum(count, 1)[:, None], total)
    count = jnp.where(due, jnp.minimum(count, 1), count)
    return {**state, 'sum': total, 'count': count, 'turns': after}, {'known_classes': jnp.sum(count > 0)}

  def send(key, t, state, ids):
    del key, t
    known = (state['count'] > 0) & (state['turns'] >= state['cold_start'])
    means = state['sum'] / jnp.maximum(state['count'], 1)[:, None]
    return tuple(Down(shared=class_message(means, known)) for _ in ids)

  return Server(init, receive, send)


def class_store(rule, width=None, cold_start=0.0) -> Server:
  """The latest upload of every client, reduced by `rule` class by class: a drop-in for `class_mean_store`.

  For each class the rule sees rows [K, width] and weight 1 where that client has ever uploaded the class.
  Arguments as in `class_mean_store`.
  """

  def init(key, groups, variables, data):
    del key, variables, data
    classes, clients = groups[0].model.classes, _clients(groups)
    return {
      'latest': jnp.zeros((clients, classes, width or classes)),
      'valid': jnp.zeros((clients, classes), bool),
      'turns': jnp.int32(0),
      'cold_start': jnp.int32(cold_start * clients),
    }

  def receive(key, t, state, ups, ids):
    del key, t
    latest, valid, turns = state['latest'], state['valid'], state['turns']
    clients, classes = valid.shape
    for up, seat in zip(ups, ids, strict=True):
      # Classes that were not sent, and empty seats, write out of bounds, which is dropped.
      row = jnp.where(up['knowledge'].valid & (seat >= 0)[:, None], seat[:, None], clients)  # [m, C]
      latest = latest.at[row, jnp.arange(classes)].set(up['knowledge'].value, mode='drop')
      valid = valid.at[row, jnp.arange(classes)].set(True, mode='drop')
      turns = turns + jnp.sum(seat >= 0, dtype=jnp.int32)
    info = {'known_classes': jnp.sum(jnp.any(valid, 0))}
    return {**state, 'latest': latest, 'valid': valid, 'turns': turns}, info

  def send(key, t, state, ids):
    del key, t
    known = jnp.any(state['valid'], 0) & (state['turns'] >= state['cold_start'])
    reduced = jax.vmap(rule, in_axes=(1, 1))(state['latest'], state['valid'].astype(jnp.float32))  # [C, width]
    # A rule owes nothing for a class nobody has; +inf there must not reach a client.
    message = class_message(jnp.where(known[:, None], reduced, 0), known)
    return tuple(Down(shared=message) for _ in ids)

  return Server(init, receive, send)


def silent() -> Server:
  """A server that neither sends nor keeps anything."""
  return Server(
    lambda key, groups, variables, data: (),
    lambda key, t, state, ups, ids: ((), {}),
    lambda key, t, state, ids: tuple(Down() for _ in ids),
  )


def _everyones(blank, groups):
  """Nothing heard from anybody: `blank(groups)`, the empty message of one client, in a row per client."""
  return jax.tree.map(lambda a: jnp.broadcast_to(a, (_clients(groups), *a.shape)), blank(groups))


def _collect(key, t, state, ups, ids):
  """The messages of this round, in a row per client; the others said nothing."""
  del key, t
  wrapped = lambda leaf: isinstance(leaf, Sent)
  state = jax.tree.map(lambda s: s._replace(valid=jnp.zeros_like(s.valid)), state, is_leaf=wrapped)
  for up, seat in zip(ups, ids, strict=True):
    put = lambda a, new, seat=seat: a.at[jnp.where(seat >= 0, seat, a.shape[0])].set(new, mode='drop')
    state = jax.tree.map(put, state, up)
  return state, {}


def router(blank) -> Server:
  """Peer to peer: everybody hears what everybody else said last round. `blank(groups)`: a message with nothing in it,
  a pytree of `Sent` with scalar `valid`."""

  def send(key, t, state, ids):
    del key, t
    wrapped = lambda leaf: isinstance(leaf, Sent)
    return tuple(Down(shared=jax.tree.map(lambda s: Peers(*s), state, is_leaf=wrapped)) for _ in ids)

  return Server(lambda key, groups, variables, data: _everyones(blank, groups), _collect, send)


def pairs(blank) -> Server:
  """Peer to peer: everybody hears one partner of a uniformly random matching; with an odd number one hears nobody."""

  def send(key, t, state, ids):
    del t
    count = jax.tree.leaves(state)[0].shape[0]
    order = jax.random.permutation(key, count)
    even = count // 2 * 2
    partner = jnp.arange(count).at[order[:even]].set(order[:even].reshape(-1, 2)[:, ::-1].reshape(-1))
    wrapped = lambda leaf: isinstance(leaf, Sent)

    def of(seat):
      mine, alone = partner[seat], partner[seat] == seat
      pick = lambda s: Sent(s.value[mine], s.valid[mine] & ~alone)
      return Down(own=jax.tree.map(pick, state, is_leaf=wrapped))

    return tuple(of(jnp.maximum(seat, 0)) for seat in ids)

  return Server(lambda key, groups, variables, data: _everyones(blank, groups), _collect, send)


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
