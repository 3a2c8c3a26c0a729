"""Servers made of servers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkd import servers
from fedkd.types import Download, Masked
from helpers import assert_same_bits, bound
from lone_servers import KEY, ONE, groups_of, received, uploads_of, weights


def test_join_gives_each_key_its_own_server():
  store, mean = servers.class_means(), servers.weights(per_group=True)
  server = servers.join(classes=store, weights=mean)
  groups, old = groups_of(1, 1), (weights([1.0]), weights([2.0]))
  state = server.init(KEY, groups, old, ())
  ids = (jnp.array([0]), jnp.array([1]))
  knowledge = (uploads_of(np.ones((1, 2, 2))), uploads_of(np.full((1, 2, 2), 3.0)))
  models = tuple({**weights([[v]]), 'count': jnp.array([2])} for v in (5.0, 6.0))
  uploads = tuple({'classes': k, 'weights': w} for k, w in zip(knowledge, models, strict=True))
  state, info = bound(server).receive(KEY, 0, state, uploads, ids)
  assert_same_bits(state['classes'], received(store, store.init(KEY, groups, old, ()), knowledge, ids))
  assert_same_bits(state['weights'], received(mean, old, models, ids))
  assert int(info['known_classes']) == 2
  downs = bound(server).send(KEY, 0, state, ids)
  for g, down in enumerate(downs):
    assert isinstance(down.shared['classes']['knowledge'], Masked)
    assert_same_bits(down.shared['weights'], state['weights'][g])


def test_silent_sends_nothing():
  server = servers.silent()
  assert server.init(KEY, groups_of(1, 1), (), ()) == ()
  assert bound(server).receive(KEY, 0, (), ({}, {}), ONE * 2) == ((), {})
  assert bound(server).send(KEY, 0, (), ONE * 2) == (Download(), Download())


@pytest.mark.parametrize('start', [0, 2])
def test_after_is_silence_before_the_start(start):
  store = servers.class_means()
  mean = servers.weights(per_group=True)
  plain = servers.join(classes=store, weights=mean)
  late = servers.after(start, plain)
  old = (weights([1.0]),)
  state = late.init(KEY, groups_of(1), old, ())
  assert_same_bits(state, plain.init(KEY, groups_of(1), old, ()))
  knowledge = uploads_of([[[1.0, 2], [0, 0]]], [[True, False]])
  uploads = ({'classes': knowledge, 'weights': {**weights([[5.0]]), 'count': jnp.ones(1)}},)
  state = received(late, state, uploads)
  assert_same_bits(
    state, received(plain, plain.init(KEY, groups_of(1), old, ()), uploads)
  )  # it hears from the first round
  for t in range(4):
    on = np.array(t >= start)
    expected = bound(plain).send(KEY, t, state, ONE)[0].shared
    (down,) = bound(late).send(KEY, jnp.int32(t), state, ONE)
    assert down.own == {'classes': (), 'weights': ()}
    for name in ('knowledge', 'label'):  # was a `Masked` and stays one
      got, full = down.shared['classes'][name], expected['classes'][name]
      assert_same_bits(got, Masked(full.value, full.valid & on))
    late_weights = jax.tree.map(lambda a, on=on: Masked(a, jnp.asarray(on)), expected['weights'])
    assert_same_bits(down.shared['weights'], late_weights)
