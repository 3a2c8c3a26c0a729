"""Arrays at the door: of any dtype, byte order and layout they give the same federation, nobody else's writing changes
it, and numbers that a device does not hold are refused with their row."""

import inspect
import re
import time
import warnings

import flax.linen as nn
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import HealthCheck, given, settings

import fedkd
from fedkd import methods, models, plan
from fedkd.data.splits import partition, personal_splits, skews
from fedkd.errors import ConfigError
from helpers import assert_same_bits

ROWS, KEY = 60, jax.random.key(0)
Y = np.arange(ROWS) % 3
X = np.eye(3)[Y] * 4 + np.arange(ROWS * 3).reshape(ROWS, 3) % 5
OWNER = np.where(np.arange(ROWS) < 40, np.arange(ROWS) // 20, -1)
PARTS = [np.arange(20), np.arange(20, 40)]
NET = models.MLP((4,), classes=3)
SGD = optax.sgd(0.1)
QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def federation(x=X, y=Y, parts=PARTS, **how):
  return fedkd.federation(x, y, parts, how.pop('models', NET), **how)


def numbers(fed):
  """All arrays of a federation."""
  return [np.array(a) for a in jax.tree.leaves(fed[1:])]


def aligned(values, dtype):
  """A copy at a multiple of 64 bytes, which JAX would take as its own on a CPU."""
  values = np.asarray(values, dtype)
  raw = np.zeros(values.nbytes + 64, np.uint8)
  out = raw[-raw.ctypes.data % 64 :][: values.nbytes].view(dtype).reshape(values.shape)
  out[...] = values
  return out


LAYOUTS = {
  'as it is': lambda a: a,
  'aligned': lambda a: aligned(a, a.dtype),
  'fortran': np.asfortranarray,
  'strided': lambda a: np.repeat(a, 2, 0)[::2],
  'reversed': lambda a: a[::-1].copy()[::-1],
  'read-only': lambda a: (b := a.copy(), b.setflags(write=False))[0],
  'list': lambda a: a.tolist(),
  'unmasked': lambda a: np.ma.masked_array(a),
  'jax': lambda a: jnp.asarray(a.astype(f'{a.dtype.kind}{min(a.dtype.itemsize, 4)}')),
}
INTEGERS = [np.dtype(order + kind) for kind in ('i1', 'u1', 'i2', 'u2', 'i4', 'u4', 'i8', 'u8') for order in '<>']
SIGNED = [dtype for dtype in INTEGERS if dtype.kind == 'i']
FLOATS = [np.dtype(order + kind) for kind in ('f2', 'f4', 'f8') for order in '<>'] + [np.dtype(np.longdouble)]
layouts = st.sampled_from(sorted(LAYOUTS))


@QUICK
@given(st.sampled_from(FLOATS), st.sampled_from(INTEGERS), st.sampled_from(SIGNED), layouts, layouts, layouts)
def test_dtype_byte_order_and_layout_change_no_number(of_x, of_y, of_owner, x_layout, y_layout, owner_layout):
  x = LAYOUTS[x_layout](X.astype(of_x))
  y = LAYOUTS[y_layout](Y.astype(of_y))
  parts = OWNER.astype(of_owner)
  parts = PARTS if owner_layout == 'list' else np.asarray(LAYOUTS[owner_layout](parts))
  domains = LAYOUTS[y_layout]((np.arange(ROWS) % 2).astype(of_y))
  made = numbers(federation(x, y, parts, validation=np.arange(40, 60), domains=domains))
  want = numbers(federation(X.astype(np.float32), validation=np.arange(40, 60), domains=np.arange(ROWS) % 2))
  assert all((a.astype(np.float64) == b).all() for a, b in zip(made, want, strict=True))


@QUICK
@given(st.sampled_from(INTEGERS), layouts)
def test_tokens_are_the_same_in_every_integer_dtype(dtype, layout):
  with warnings.catch_warnings():
    warnings.simplefilter('ignore', UserWarning)  # of uint8, that they are tokens
    made = federation(LAYOUTS[layout](X.astype(dtype)))
  assert (np.asarray(made.pool.example).astype(int) == X).all()
  assert made.groups[0].model.mean is None  # nor normalised


@pytest.mark.parametrize('dtype', [np.uint8, np.float32, np.float64, np.int32])
def test_what_is_written_later_changes_no_federation(dtype):
  x, y = aligned(X, dtype), aligned(Y, np.int32)
  parts = [aligned(part, np.int64) for part in PARTS]
  rows = {'validation': aligned(np.arange(40, 50), np.int32), 'domains': aligned(np.arange(ROWS) % 2, np.int32)}
  shared = [aligned(part[:3], np.int32) for part in PARTS]
  normalise = aligned(X[0], np.float32), aligned(X[1], np.float32)
  made = federation(x, y, parts, shared=shared, normalise=normalise, **rows)
  before = numbers(made), numbers(((), made.groups[0].model.mean, made.groups[0].model.scale))
  for array in (x, y, *parts, *rows.values(), *shared, *normalise):
    array[...] = 0
  after = numbers(made), numbers(((), made.groups[0].model.mean, made.groups[0].model.scale))
  assert_same_bits(after, before)


@pytest.mark.parametrize('dtype', [np.int32, np.int64])
def test_owners_and_public_rows_written_later_change_no_federation(dtype):
  owner, public = aligned(OWNER, dtype), aligned(np.arange(40, 50), dtype)
  made = federation(parts=owner, public=public)
  before = numbers(made)
  owner[...], public[...] = 0, 0
  assert_same_bits(numbers(made), before)


@pytest.mark.parametrize('kept', [{'public': np.arange(40, 45)}, {'validation': np.arange(40, 45)}, {}])
def test_what_nobody_has_is_in_no_mean(kept):
  """As test examples that lie in the same arrays."""
  images = np.random.default_rng(0).integers(0, 256, (ROWS, 2, 2, 1)).astype(np.uint8)
  others = images.copy()
  others[45 if kept else 40 :] //= 2
  seen, mean_of = [], lambda x: (seen.append(np.array(x)), fedkd.models.base.mean_image(x))[1]
  models_of = [federation(x, **kept, **how).groups[0].model
               for x in (images, others) for how in ({}, {'normalise': mean_of})]  # fmt: skip
  for model in models_of:
    np.testing.assert_array_equal(model.mean, images[: 45 if kept else 40].mean(0, dtype=np.float64).astype(np.float32))
  assert_same_bits(*seen)


@pytest.fixture(scope='module')
def simulated():
  tables = (aligned([[0], [1]], np.int32),)
  sim = fedkd.simulation(
    methods.private(SGD, steps=1, batch=4), federation(X.astype(np.float32)), plan.Plan(tables, False)
  )
  tables[0][...] = 0
  return sim, sim.init(KEY)


def test_plan_tables_written_later_change_no_plan(simulated):
  sim, state = simulated
  _, report = sim.run(state, 2)
  assert [int(np.asarray(ids).max()) for ids in report.ids[0]] == [0, 1]


def test_variables_written_later_change_no_state(simulated):
  sim, state = simulated
  variables = {'params': state.client[0].params, 'batch_stats': {}}
  given = jax.tree.map(lambda a: aligned(a, np.float32), (variables,))
  made = sim.init(KEY, given)
  for array in jax.tree.leaves(given):
    array[...] = 0
  assert_same_bits(made.client[0].params, variables['params'])


def refused(match, call, *args, **values):
  """Refused in one line, within two seconds."""
  start = time.perf_counter()
  with pytest.raises(ValueError, match=match) as told:
    call(*args, **values)
  assert '\n' not in str(told.value)
  assert time.perf_counter() - start < 2


def with_entry(row, value, dtype, of=X):
  out = of.astype(dtype)
  out[row] = value
  return out


BEYOND = {
  'int64': (2**31, np.int64),
  'int64 below': (-(2**31) - 1, np.int64),
  'hash': (2**62 + 1, np.int64),
  'uint64': (2**32, np.uint64),
  'big-endian': (2**40, '>i8'),
  'float64': (1e300, np.float64),
  'float64 below': (-1e39, np.float64),
  'longdouble': (1e39, np.longdouble),
  'NaN': (np.nan, np.float32),
  'float16 NaN': (np.nan, np.float16),
  'bfloat16 NaN': (np.nan, jnp.bfloat16),
  'inf': (np.inf, np.float32),
  '-inf': (-np.inf, '>f8'),
}


@pytest.mark.parametrize(('value', 'dtype'), BEYOND.values(), ids=BEYOND)
@pytest.mark.parametrize('row', [0, 17, ROWS - 1])
def test_numbers_that_no_device_holds_are_refused_with_row_and_value(row, value, dtype, simulated):
  said = re.escape(f'x[{row}] has {value:.6g}, which ') + r'\w+ cannot hold; '
  x = with_entry(row, value, dtype)
  refused(said, federation, x)
  if jnp.issubdtype(x.dtype, jnp.floating):
    sim, state = simulated
    refused(said, sim.accuracy, state, x, Y)


def test_columns_whose_differences_are_rounded_away_are_refused_and_others_are_not(simulated):
  """Of training rows: two test rows may be as alike as they like."""
  x = np.random.default_rng(0).normal(size=X.shape)
  x[..., -1] += 1e9
  refused(re.escape(f'x[..., {x.shape[-1] - 1}] varies by '), federation, x)
  sim, state = simulated
  assert len(sim.accuracy(state, x, Y))
  x[..., -1] = 1e9 + 0.1  # no differences, nothing to lose
  x[0, ..., -1] = 1.0  # nor where they are as large
  federation(x)


@pytest.mark.parametrize('make', [np.int64, np.uint32, np.int32, jnp.int32, jnp.uint32])
def test_whole_numbers_that_float32_cannot_tell_apart_are_refused_and_tokens_are_not(make):
  x = np.random.default_rng(0).integers(0, 2**24, X.shape)
  federation(make(x))
  x[..., -1] = 1_700_000_000 + np.arange(len(x))
  refused(re.escape(f'x[..., {x.shape[-1] - 1}] varies by '), federation, make(x))


@pytest.mark.parametrize(
  ('value', 'dtype'), [(2**31 - 1, np.int64), (-(2**31), '>i8'), (2**32 - 1, np.uint64), (3e38, 'f8')]
)
def test_the_last_number_that_fits_is_kept(value, dtype):
  assert float(federation(with_entry(5, value, dtype)).pool.example[5, 0]) == np.float32(value)


OWNERS = {
  'beyond int32': ([2**32 + 1], r'parts has the owner 4294967297 but no row of client 2,'),
  'largest': ([2**31 - 1], r'parts has the owner 2147483647 but no row of client 2,'),
  'sparse': ([2 * 10**8, 10**8, 7], r'parts has the owner 200000000 but no row of client 2,'),
  'negative': ([-2], r'parts has the owner -2; number'),
  'far below': ([-(2**40)], r'parts has the owner -1099511627776; number'),
}


@pytest.mark.parametrize(('ids', 'match'), OWNERS.values(), ids=OWNERS)
def test_owners_without_a_place_are_refused_at_once(ids, match):
  refused(match, federation, parts=with_entry(slice(40, 40 + len(ids)), ids, np.int64, OWNER))


@pytest.mark.parametrize('domain', [ROWS, 2**31 - 1, 2 * 10**8, 2**32 + 1, -1])
def test_domains_without_a_place_are_refused_at_once(domain):
  domains = with_entry(3, domain, np.int64, np.zeros(ROWS))
  refused(rf'domains has the domain {domain}', federation, domains=domains, validation=[50])


class NeedsGradient:
  """As a tensor that requires a gradient."""

  def __array__(self, dtype=None, copy=None):
    raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")


MASKED = np.ma.masked_array(X, mask=X == 4)


@pytest.mark.parametrize('field', ['x', 'y', 'parts', 'validation', 'public', 'domains', 'parts[0]'])
def test_what_hides_its_numbers_is_refused(field):
  masked = np.ma.masked_array(np.arange(ROWS), mask=np.arange(ROWS) == 45)
  for value, said in ((NeedsGradient(), 'that NumPy cannot read .*requires grad'), (masked, 'has masked entries')):
    if field == 'parts' and isinstance(value, NeedsGradient):
      said = 'parts is a NeedsGradient; give a list'
    if field == 'parts[0]':
      refused(said, federation, parts=[value])
    else:
      refused(said, federation, **{field: value})


@pytest.mark.parametrize(('x', 'y'), [(MASKED, Y), (X, np.ma.masked_array(Y, mask=Y == 1)), (NeedsGradient(), Y)])
def test_what_hides_its_numbers_is_no_test_set(x, y, simulated):
  refused('has masked entries|that NumPy cannot read', simulated[0].accuracy, simulated[1], x, y)


def test_labels_that_are_objects_are_told_what_to_become():
  refused(
    r'^y holds numbers as objects; give y.astype\(int\)$', federation, np.zeros((ROWS, 3)), np.zeros(ROWS, object)
  )


def test_images_of_another_dtype_than_uint8_are_named():
  x, y = np.arange(4 * 5 * 5 * 3).reshape(4, 5, 5, 3) % 256, np.arange(4) % 2
  with pytest.warns(UserWarning, match=r'^x has examples \[5, 5, 3\] of whole numbers from 0 to 255, .*as uint8'):
    fedkd.federation(x, y, [[0, 1], [2, 3]], NET)
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    for tokens in (x.reshape(4, -1), x * 2):
      fedkd.federation(tokens, y, [[0, 1], [2, 3]], NET)


@pytest.mark.parametrize(
  'key', [0, None, jax.random.split(KEY), jnp.zeros(2, int), jnp.zeros(3, jnp.uint32), jnp.uint32(7)]
)
def test_a_key_of_another_shape_is_refused(key, simulated):
  refused('key is .*give one key', simulated[0].init, key)


@pytest.mark.parametrize('shape', [(3, 8, 8), (1, 6, 7)])
def test_images_with_their_channels_first_are_named(shape):
  with pytest.warns(UserWarning, match='channels first.*moveaxis'):
    federation(np.zeros((ROWS, *shape), np.float32))


@pytest.mark.parametrize('shape', [(8, 8, 3), (3, 3, 3), (1, 1, 1), (2, 8, 8), (3, 8), (6, 7, 1)])
@pytest.mark.filterwarnings('error')
def test_other_images_are_not(shape):
  federation(np.zeros((ROWS, *shape), np.float32))


@pytest.mark.parametrize(('shape', 'mean'), [((5,), None), ((4, 5), 7.0), ((4, 5, 3), 7.0)])
def test_uint8_of_one_axis_are_tokens_and_of_more_images(shape, mean):
  with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter('always')
    model = federation(np.full((ROWS, *shape), 7, np.uint8)).groups[0].model
  assert (model.mean is None and 'as tokens do' in str(told[0].message)) if mean is None else not told
  assert mean is None or (np.asarray(model.mean) == mean).all()


class Words(nn.Module):
  """An embedding of eight tokens, which gives NaN for others."""

  @nn.compact
  def __call__(self, tokens):
    return nn.Dense(3)(nn.Embed(8, 4)(tokens).mean(1))


def test_accuracy_of_undefined_logits_is_undefined():
  """Their argmax would be class 0."""
  tokens = np.zeros((ROWS, 2), np.int32)
  made = federation(tokens, np.zeros(ROWS, int) + (np.arange(ROWS) == 1) * 2, validation=[41, 42], models=Words())
  sim = fedkd.simulation(methods.private(SGD, steps=1, batch=4), made)
  state = sim.init(KEY)
  assert np.isfinite(sim.accuracy(state, tokens, made.pool.label)).all()
  assert np.isnan(sim.accuracy(state, with_entry(3, 8, np.int32, tokens), made.pool.label)).all()
  undefined = jax.tree.map(lambda a: a.at[0].set(jnp.nan), state.client[0].params)
  broken = state._replace(client=(state.client[0]._replace(params=undefined),))
  assert np.isnan(sim.accuracy(broken, tokens, made.pool.label)).tolist() == [True, False]
  assert np.isnan(sim.validation_accuracy(broken)).tolist() == [True, False]


def test_a_domain_without_held_out_rows_has_no_accuracy():
  made = federation(X.astype(np.float32), domains=[0] * 20 + [1] * 20 + [3] * 20, validation=np.arange(40, 60))
  sim = fedkd.simulation(methods.private(SGD, steps=1, batch=4), made)
  state = sim.init(KEY)
  found = np.asarray(sim.validation_accuracy(state))
  assert np.isnan(found).tolist() == [[True, True, True, False]] * 2
  np.testing.assert_allclose(found[:, 3], sim.accuracy(state, X[40:].astype(np.float32), Y[40:]), rtol=1e-6)


GAPS = np.array([0, 2, 5, 7, 9, 11])
OWNED, TESTED, ORIGIN = np.arange(600) % 6, np.arange(300) % 6, (np.arange(600) // 7) % 4
PARTITIONS = {name: getattr(module, name) for module in (partition, personal_splits, skews) for name in module.__all__}
NARROW = [dtype for dtype in INTEGERS if dtype != np.int64]


def divided(function, labels, dtype):
  """The parts as lists, or the words of a refusal."""
  given = {'origin': ORIGIN, 'test_labels': labels[TESTED]}
  given = {k: value.astype(dtype) for k, value in given.items() if k in inspect.signature(function).parameters}
  try:
    out = function(labels[OWNED].astype(dtype), 4, 0, **given)
  except ConfigError as error:
    return str(error)
  return [a.tolist() for a in (out if isinstance(out, list) else [*out[0], *out[1]])]


@pytest.mark.parametrize('labels', [np.arange(6), GAPS], ids=['labels', 'labels with gaps'])
@pytest.mark.parametrize('name', PARTITIONS)
def test_partitions_do_not_depend_on_the_dtype_of_labels(name, labels):
  want = divided(PARTITIONS[name], labels, np.int64)
  for dtype in NARROW:
    assert divided(PARTITIONS[name], labels, dtype) == want, dtype


SEVERAL = [np.ones(3), jnp.ones(3), np.ones(1), np.ones((1, 1)), jnp.zeros((0,)), jax.random.key(0)]
SINGLE = [np.float32(0.5), np.array(0.5), jnp.array(0.5), jnp.bfloat16(0.5)]
FACTORIES = [(methods.fedprox, 'mu'), (methods.fedhe, 'alpha'), (methods.fedhe, 'batch'), (methods.fedhe, 'steps')]


@pytest.mark.parametrize(('factory', 'name'), FACTORIES)
@pytest.mark.parametrize('value', SEVERAL)
def test_several_numbers_are_no_hyperparameter(factory, name, value):
  refused(rf'{name} is .*; it must be a (whole )?number of at least [01](, or None)?$', factory, SGD, **{name: value})


@pytest.mark.parametrize('value', SINGLE)
def test_an_array_without_axes_is_its_number(value):
  refused(r'ratio=-0.5 must be a number above 0 and at most 1', plan.sampled, ratio=-value)
  assert plan.sampled(ratio=value).args == plan.sampled(ratio=0.5).args


def test_a_plan_that_raises_is_named():
  def broken(sizes, rounds):
    raise KeyError('clients')

  refused(r"plan .*broken.*raised KeyError: 'clients'", fedkd.simulation, methods.private(SGD), federation(), broken)
