import functools

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from jax.flatten_util import ravel_pytree

from fedkd import examples, inference, local, models
from fedkd.checks import ranges
from fedkd.types import Data, ExampleIndices
from helpers import EMITTERS, assert_close, assert_same_bits, pool, preprocessed

KEY = jax.random.key(3)
WIDTH = 24  # n_max of most tests: one shape, one compilation
draw = jax.jit(local.draw, static_argnums=(1, 3))
shuffle = jax.jit(local.shuffle, static_argnums=1)
sizes = st.integers(1, WIDTH)
seeds = st.integers(0, 2**31 - 1)


@given(seeds, sizes, st.sampled_from([1, 5, 24, 40]))
def test_draw_is_without_replacement_and_below_size(seed, size, batch):
  chosen = np.asarray(draw(jax.random.key(seed), WIDTH, size, batch))
  assert chosen.shape == (batch,)
  assert ((chosen >= 0) & (chosen < size)).all()
  distinct = min(batch, size)
  assert len(set(chosen[:distinct])) == distinct
  np.testing.assert_array_equal(chosen, chosen[np.arange(batch) % distinct])  # repeats in turn


@given(seeds, sizes, st.sampled_from([(1, 1), (5, 30), (24, 25), (40, 64), (5, 200)]))
def test_draw_does_not_see_padding(seed, size, shape):
  batch, wider = shape
  key = jax.random.key(seed)
  wider = max(wider, WIDTH)
  assert_same_bits(draw(key, wider, size, batch), draw(key, WIDTH, size, batch))
  assert_same_bits(draw(key, int(size), size, batch), draw(key, WIDTH, size, batch))


def test_draw_is_uniform():
  chosen = jax.vmap(lambda key: local.draw(key, 10, 8, 3))(jax.random.split(KEY, 4000))
  counts = np.bincount(np.ravel(chosen), minlength=10)
  np.testing.assert_allclose(counts[:8], 1500, atol=4 * np.sqrt(1500))
  assert counts[8:].sum() == 0


@given(seeds, st.integers(0, WIDTH))
def test_shuffle_is_a_permutation_and_does_not_see_padding(seed, size):
  order = np.asarray(shuffle(jax.random.key(seed), WIDTH, size))
  np.testing.assert_array_equal(np.sort(order[:size]), np.arange(size))
  for wider in (25, 64, 200):
    np.testing.assert_array_equal(shuffle(jax.random.key(seed), wider, size)[:size], order[:size])


# The loop.


def recorder(params, batch_stats, key, rows):
  """A loss whose sums count how often each row was seen; its gradient is the mean row."""
  seen = jnp.sum(jax.nn.one_hot(rows, WIDTH, dtype=jnp.int32), 0)
  loss = jnp.mean(params['w'] * rows)
  return loss, (batch_stats, {'seen': seen, 'steps': jnp.int32(1), 'batch': jnp.int32(rows.shape[0])})


TX = optax.sgd(0.5, momentum=0.9)
LEARNER = local.start({'params': {'w': jnp.float32(1)}, 'batch_stats': {'mean': jnp.float32(2)}}, TX)


@functools.cache
def recording(batch, last_pass=(), **how):
  work = local.Work(batch, **how)
  return jax.jit(
    lambda size: local.fit(KEY, LEARNER, TX, recorder, (jnp.arange(WIDTH), size), work, last_pass=last_pass)
  )


def record(size, batch, **how):
  learner, sums = recording(batch, **how)(size)
  return learner, np.asarray(sums['seen']), int(sums['steps'])


@pytest.mark.parametrize('size', [1, 4, 7, 8, 15, 16, 24])
@pytest.mark.parametrize('epochs', [1, 3])
def test_an_epoch_visits_every_row_once_and_fills_the_last_batch(size, epochs):
  _, seen, steps = record(size, 8, epochs=epochs)
  per_epoch = -(-size // 8)
  assert steps == epochs * per_epoch
  assert seen.sum() == steps * 8
  assert (seen[size:] == 0).all()
  # Each pass visits every row once and fills up from its own beginning.
  least, wrapped = divmod(per_epoch * 8, size)
  assert (seen[:size] >= epochs * least).all()
  assert (seen[:size] <= epochs * (least + (wrapped > 0))).all()


@pytest.mark.parametrize(('size', 'batch'), [(24, 8), (5, 8), (1, 3)])
def test_steps_draw_batches_of_distinct_rows(size, batch):
  _, seen, steps = record(size, batch, steps=5)
  assert steps == 5
  assert seen.sum() == 5 * batch
  assert (seen[size:] == 0).all()
  assert seen.max() <= 5 * -(-batch // min(size, batch))


@pytest.mark.parametrize('how', [{'steps': 3}, {'epochs': 2}])
def test_nothing_to_train_on_is_no_training_exactly(how):
  learner, seen, steps = record(0, 8, **how)
  assert_same_bits(learner, LEARNER)
  assert seen.sum() == steps == 0


@pytest.mark.parametrize(
  ('batch', 'how', 'match'),
  [
    (8, {}, 'needs steps or epochs, not both: steps=None, epochs=None; set one to 0 and the other above 0'),
    (8, {'steps': 1, 'epochs': 1}, 'needs steps or epochs, not both: steps=1, epochs=1'),
    (8, {'steps': 0, 'epochs': None}, 'needs steps or epochs, not both: steps=0, epochs=None'),
    (8, {'steps': -1}, 'steps=-1 must be at least 0'),
    (8, {'steps': 1, 'epochs': -2}, 'epochs=-2 must be at least 0'),
    (0, {'steps': 1}, 'batch=0 must be at least 1'),
  ],
)
def test_training_that_would_be_none_is_refused(batch, how, match):
  with pytest.raises(ValueError, match=match):
    record(5, batch, **how)


@ranges.checked
def in_passes(epochs: ranges.Count | None = 10, steps: ranges.Count | None = None):
  return epochs, steps


@pytest.mark.parametrize(
  ('how', 'expected'),
  [
    ({}, (10, None)),
    ({'steps': 2}, (None, 2)),
    ({'steps': 2, 'epochs': 0}, (0, 2)),
    ({'steps': 2, 'epochs': 3}, (3, 2)),  # refused by `fit`
    ({'steps': 0}, (10, 0)),
    ({'steps': None}, (10, None)),
    ({'epochs': 0}, (0, None)),
    ({'epochs': 3}, (3, None)),
    ({'steps': jnp.int32(2)}, (None, 2)),
  ],
)
def test_steps_alone_are_instead_of_the_passes_by_default(how, expected):
  assert in_passes(**how) == expected


def test_both_are_refused_without_the_insides_of_a_trace():
  with pytest.raises(
    ValueError, match=r'^local training needs .*, not both: steps=2, epochs=traced; set one to 0'
  ) as no:
    jax.jit(lambda epochs: local.fit(KEY, LEARNER, TX, recorder, (jnp.arange(WIDTH), 5), local.Work(8, 2, epochs)))(3)
  assert 'Tracer' not in str(no.value)


@pytest.mark.parametrize('how', [{'steps': 3}, {'epochs': 2}])
def test_zero_is_not_given_like_none(how):
  def traced(**how):
    fit = lambda size: local.fit(KEY, LEARNER, TX, recorder, (jnp.arange(WIDTH), size), local.Work(8, **how))
    return str(jax.make_jaxpr(fit)(5))

  other = {'steps', 'epochs'}.difference(how).pop()
  assert traced(**how, **{other: 0}) == traced(**how)


def test_steps_are_those_of_optax_on_the_rows_of_draw():
  params, opt = LEARNER.params, LEARNER.opt
  for i in range(4):
    key_batch, _ = jax.random.split(jax.random.fold_in(KEY, i))
    rows = local.draw(key_batch, WIDTH, 20, 6)
    updates, opt = TX.update({'w': jnp.mean(rows.astype(jnp.float32))}, opt, params)
    params = optax.apply_updates(params, updates)
  learner, _, _ = record(20, 6, steps=4)
  assert_close(learner, local.Learner(params, LEARNER.batch_stats, opt))


MODEL = preprocessed(models.TwoConv((4, 4), classes=3))
POOL = pool(12)
VARIABLES = jax.jit(lambda: MODEL.init(KEY, POOL.example[:1], False))()
ADAM = optax.adam(1e-2)


def train(rows, size, tx=TX, exact=False, **how):
  fit = lambda rows, size: local.fit(
    KEY, local.start(VARIABLES, tx), tx, local.supervised(MODEL, POOL), (rows, size), local.Work(8, **how)
  )
  options = EMITTERS if exact else {}
  return jax.jit(fit, compiler_options=options)(jnp.asarray(rows, jnp.int32), size)


@pytest.mark.slow  # whole rounds do not either: test_round.py
@pytest.mark.parametrize('how', [{'steps': 3}, {'epochs': 2}])
def test_training_does_not_see_padding(how):
  rows = np.arange(10)
  # Another shape is another program; with the emitters that runs have, its bits are the same.
  expected = train(rows, 10, exact=True, **how)
  assert_same_bits(train(np.concatenate([rows, np.full(30, 99)]), 10, exact=True, **how), expected)


def test_training_learns_and_reports_the_mean_loss():
  first, second = (local.report(train(np.arange(40), 40, ADAM, steps=steps)[1]) for steps in (1, 150))
  assert set(first) == {'loss', 'examples'}
  assert float(first['examples']) == 8
  assert float(second['examples']) == 1200
  assert float(first['loss']) == pytest.approx(np.log(3), abs=1)
  assert float(second['loss']) < float(first['loss']) / 2


def test_report_divides_by_the_examples_and_survives_none():
  tally = [local.tally(jnp.zeros(4), loss=jnp.float32(2), distill_loss=jnp.float32(1))] * 3
  info = local.report(jax.tree.map(lambda *a: sum(a), *tally))
  assert {k: float(v) for k, v in info.items()} == {'examples': 12, 'loss': 2, 'distill_loss': 1}
  nothing = local.report(jax.tree.map(jnp.zeros_like, tally[0]))
  np.testing.assert_equal(
    {k: float(v) for k, v in nothing.items()}, {'examples': 0, 'loss': np.nan, 'distill_loss': np.nan}
  )


def test_forward_trains_batch_norm_and_gives_features():
  forward = jax.jit(lambda v: local.forward(MODEL, v['params'], v['batch_stats'], KEY, POOL.example[:8]))
  logits, out, stats = forward(VARIABLES)
  assert logits.shape == (8, 3)
  assert out['features'].shape == (8, 100)
  assert jax.tree.structure(stats) == jax.tree.structure(VARIABLES['batch_stats'])
  assert (ravel_pytree(stats)[0] != ravel_pytree(VARIABLES['batch_stats'])[0]).all()


def test_learner_and_variables_are_inverse():
  learner = local.start(VARIABLES, ADAM)
  assert_same_bits(local.variables(learner), dict(VARIABLES))
  assert_same_bits(learner.opt, ADAM.init(VARIABLES['params']))


# Whose rows.


def rows(*index, padding=0, id=-1):
  return ExampleIndices(jnp.array([*index, *[99] * padding], jnp.int32), jnp.int32(len(index)), jnp.int32(id))


def held(mine):
  return np.asarray(mine.index)[: int(mine.size)].tolist()


def data_of(private, shared=None, public=None):
  return Data(POOL, private, rows(), shared, public)


def test_unshared_is_what_a_client_keeps_to_itself():
  private = rows(3, 4, 5, 6, 7, padding=2, id=1)
  mine = examples.unshared(data_of(private, rows(6, 7, padding=1, id=1)))
  assert (held(mine), int(mine.id)) == ([3, 4, 5], 1)
  assert examples.unshared(data_of(private)) is private


def test_public_rows_or_a_way_out():
  assert held(examples.public(data_of(rows(1), public=rows(8, 9)))) == [8, 9]
  with pytest.raises(
    ValueError, match=r'no public rows; give fedkd.federation public=.*or shared=.*data.public or data.public_share'
  ):
    examples.public(data_of(rows(1)))


@given(st.lists(st.integers(0, 50), max_size=4), st.lists(st.integers(0, 50), max_size=4))
def test_union_is_both_without_the_padding(a, b):
  both = examples.union(rows(*a, padding=5 - len(a), id=3), rows(*b, padding=5 - len(b), id=7))
  assert (held(both), int(both.id)) == (a + b, 3)
  assert both.index.shape == (10,)


def test_union_of_traced_sizes():
  full = rows(1, 2, 3, id=0)
  both = jax.jit(lambda size: examples.union(full._replace(size=size), rows(8, 9)))(2)
  assert held(both) == [1, 2, 8, 9]


@pytest.mark.parametrize('batch', [3, 4, 7, 500])
def test_infer_is_the_model_in_inference_mode(batch, monkeypatch):
  monkeypatch.setattr(inference, 'inference_batch', lambda: batch)
  index = jnp.array([5, 0, 99, 5, 7, 1, 30])
  expected = jax.jit(lambda index: MODEL.apply(VARIABLES, POOL.example[index], False)[0])(index)
  found = jax.jit(lambda index: inference.infer(MODEL, VARIABLES, POOL.example, index))(index)
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
