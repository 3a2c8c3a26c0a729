"""Codecs: what is received, what is counted, and a coded round of FedAvg by a NumPy twin."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedkd
from fedkd import codecs, ledger, methods
from fedkd.errors import ConfigError
from fedkd.types import Download, Known, Masked, PeerMessages

KEY = jax.random.key(0)
VALID = jnp.array([True, False, True, True])
RNG = np.random.default_rng(0)
MESSAGE = {
  'params': {'kernel': jnp.asarray(RNG.normal(size=(7, 5)), jnp.float32), 'bias': jnp.float32(0.3)},
  'knowledge': Masked(jnp.asarray(RNG.normal(size=(4, 21)), jnp.float32), VALID),
  'label': Masked(jnp.arange(4, dtype=jnp.int32), VALID),
  'count': jnp.int32(77),
}
ints = lambda counts: {kind: (int(numbers), int(size)) for kind, (numbers, size) in counts.items()}


def assert_same(a, b):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  assert all(np.array_equal(x, y) and x.dtype == y.dtype for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


@functools.partial(jax.jit, static_argnums=0)
def encoded(codec, key, message):
  return codecs.encoded(codec, key, message)


@functools.partial(jax.jit, static_argnums=0)
def through(codec, message=MESSAGE, key=KEY):
  return codecs.decoded(codec, codecs.encoded(codec, key, message))


@pytest.mark.parametrize('codec', [codecs.identity(), codecs.top_k(1.0)], ids=['identity', 'top_k of all'])
def test_what_leaves_nothing_out_is_the_identity(codec):
  assert_same(through(codec), MESSAGE)
  row = MESSAGE['knowledge'].value[0]
  assert_same(codec.decode(codec.encode(KEY, row), 21), row)


@pytest.mark.parametrize('codec', [codecs.float16(), codecs.bfloat16(), codecs.quantised(4), codecs.top_k(0.2)])
def test_masks_integers_shapes_and_dtypes_stay(codec):
  received = through(codec)
  assert jax.tree.structure(received) == jax.tree.structure(MESSAGE)
  assert [a.dtype for a in jax.tree.leaves(received)] == [a.dtype for a in jax.tree.leaves(MESSAGE)]
  assert [a.shape for a in jax.tree.leaves(received)] == [a.shape for a in jax.tree.leaves(MESSAGE)]
  assert_same({k: received[k] for k in ('label', 'count')}, {k: MESSAGE[k] for k in ('label', 'count')})
  assert_same(received['knowledge'].valid, VALID)


@pytest.mark.parametrize(('codec', 'relative'), [(codecs.float16(), 2.0**-11), (codecs.bfloat16(), 2.0**-8)])
def test_halves_are_off_by_half_a_unit_in_the_last_place(codec, relative):
  x = jnp.asarray(np.exp(RNG.uniform(-9, 9, 1000)) * RNG.choice([-1, 1], 1000), jnp.float32)
  error = np.abs(through(codec, x) - x) / np.abs(x)
  assert relative / 2 < error.max() <= relative
  assert float(through(codecs.float16(), jnp.float32(1e6))) == 65504.0
  assert np.isnan(through(codec, jnp.array([np.nan, 1.0])))[0]


@pytest.mark.parametrize('codec', [codecs.float16(), codecs.bfloat16(), codecs.top_k(0.5)])
def test_classes_that_a_model_masks_stay_masked(codec):
  """Their logits are minus infinity, and no distance may be drawn from a large number in its place."""
  row = jnp.array([-jnp.inf, 1.0, -2.0, 0.5, 0.25, 0.125, 0.0, 0.0])
  assert float(through(codec, row)[0]) == -np.inf


@pytest.mark.parametrize('dtype', [jnp.float16, jnp.bfloat16])
def test_rounding_without_a_conversion_is_the_conversion(dtype):
  every = np.arange(2**16, dtype=np.uint16).view(dtype).astype(np.float32)
  every = np.unique(every[np.isfinite(every)])
  between = (every[1:].astype(np.float64) + every[:-1]) / 2
  x = np.concatenate([every, between, np.nextafter(between.astype(np.float32), np.float32(np.inf)), [np.nan]])
  x = x.astype(np.float32)
  x = x[~(np.abs(x) < np.finfo(np.float32).smallest_normal) | (x == 0)]  # of which XLA makes zeros
  rounded = jax.jit(codecs.kinds.round_to, static_argnums=0)(dtype, x)
  np.testing.assert_array_equal(rounded, x.astype(dtype).astype(np.float32))


@pytest.mark.parametrize('dtype', [jnp.float16, jnp.bfloat16])
def test_rounding_is_no_conversion_that_a_compiler_may_take_out(dtype):
  text = jax.jit(lambda x: codecs.kinds.round_to(dtype, x)).lower(jnp.ones(3)).as_text()
  assert 'reduce_precision' in text
  assert 'convert' not in text


@pytest.mark.parametrize('bits', [1, 3, 8, 16])
def test_quantisation_is_unbiased_and_off_by_less_than_a_level(bits):
  x = jnp.asarray(RNG.normal(size=64), jnp.float32)
  step = float(x.max() - x.min()) / (2**bits - 1)
  draws = jax.jit(jax.vmap(lambda key: through(codecs.quantised(bits), x, key)))(jax.random.split(KEY, 4000))
  assert np.abs(draws - x).max() < step * 1.001 + 1e-6
  assert np.abs(draws.mean(0) - x).max() < 4.5 * step / 2 / np.sqrt(4000) + 1e-6  # a level's deviation is half of it
  np.testing.assert_allclose(draws[:, jnp.argmin(x)], x.min(), atol=1e-6)


def test_equal_numbers_and_empty_slots_are_received_as_they_are():
  np.testing.assert_array_equal(through(codecs.quantised(4), jnp.full(50, 0.7)), np.full(50, 0.7, np.float32))
  for codec in (codecs.quantised(4), codecs.top_k(0.1), codecs.float16()):
    nobody = jax.tree.map(
      lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(functools.partial(encoded, codec), KEY, MESSAGE)
    )
    received = jax.jit(lambda message, codec=codec: codecs.decoded(codec, message))(nobody)
    assert not any(map(np.any, jax.tree.leaves(received)))
    no_slot = jax.tree.map(lambda a: jax.ShapeDtypeStruct((0, *a.shape), a.dtype), nobody)
    received = jax.eval_shape(lambda message, codec=codec: codecs.decoded(codec, message, stacked=True), no_slot)
    assert received['params']['kernel'].shape == (0, 7, 5)


def test_the_largest_are_kept_and_the_others_are_zero():
  x = jnp.array([3.0, -5.0, 0.1, 0.0, 4.0, -1.0, 2.0, 0.2, 0.3, 0.4])
  np.testing.assert_array_equal(through(codecs.top_k(0.3), x), [3, -5, 0, 0, 4, 0, 0, 0, 0, 0])


def expected(bits=None, share=None):
  """Bytes by kind: 35 weights and a bias, three valid rows of 21 numbers, three labels and a count."""
  if bits:
    row = lambda width: -(-width * bits // 8) + 8
    out = {'weights': row(35) + 4, 'knowledge': 3 * row(21)}
  else:
    kept = lambda width: round(share * width)
    out = {'weights': 4 * kept(35) + 4, 'knowledge': 3 * 4 * kept(21), 'indices': kept(35) + 3 * kept(21)}
  return {**out, 'labels': 4 * 3 + 4}


@pytest.mark.parametrize(('width', 'each'), [(256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_positions_take_as_few_bytes_as_the_last_one_fits_into(width, each):
  sent = jax.eval_shape(functools.partial(encoded, codecs.top_k(0.1)), KEY, jax.ShapeDtypeStruct((width,), jnp.float32))
  assert ledger.capacity(sent)['indices'] == (round(0.1 * width), each * round(0.1 * width))


@pytest.mark.parametrize('bits', [1, 4, 5, 8, 16])
def test_bytes_of_quantised_messages(bits):
  found = ledger.count(encoded(codecs.quantised(bits), KEY, MESSAGE))
  assert {kind: size for kind, (_, size) in ints(found).items()} == expected(bits=bits)


@pytest.mark.parametrize('share', [0.1, 0.4])
def test_bytes_of_the_largest(share):
  found = ledger.count(encoded(codecs.top_k(share), KEY, MESSAGE))
  assert {kind: size for kind, (_, size) in ints(found).items()} == expected(share=share)


def test_bytes_of_halves_of_long_rows_and_of_peers():
  assert ints(ledger.count(encoded(codecs.float16(), KEY, MESSAGE)))['weights'] == (36, 72)
  long = encoded(codecs.top_k(0.1), KEY, jnp.zeros(70_000))
  assert ints(ledger.count(long)) == {'knowledge': (7000, 28_000), 'indices': (7000, 28_000)}
  peers = encoded(codecs.quantised(4), KEY, PeerMessages(jnp.zeros((4, 21)), VALID))
  assert ints(ledger.count(peers, 0))['knowledge'][1] == 2 * (11 + 8)  # without the receiver's own row


@pytest.mark.parametrize(('codec', 'width'), [(codecs.quantised(8), 2), (codecs.top_k(0.9), 10), (codecs.float16(), 0)])
def test_no_message_grows(codec, width):
  message = Masked(jnp.ones((3, width)), jnp.ones(3, bool))
  assert_same(codecs.encoded(codec, KEY, message), message)


def test_what_the_receiver_has_is_not_counted():
  assert ints(ledger.count({'a': Known(jnp.zeros(9)), 'b': jnp.zeros(2)})) == {'knowledge': (2, 8)}
  assert ledger.capacity({'a': Known(jnp.zeros(9)), 'b': jnp.zeros(2)}) == {'knowledge': (2, 8)}


def test_changes_are_added_to_what_was_received():
  """Class 1 has been received and class 0 has not; the largest change of each row of two is kept."""
  codec = codecs.top_k(0.5, changes=True)
  received = Masked(jnp.array([[9.0, 9, 9, 9], [1, 2, 3, 4]]), jnp.array([False, True]))
  own = Masked(jnp.array([[5.0, -7, 1, 0], [1, 9, 3, 1]]), jnp.array([True, True]))
  bases = codecs.messages.bases_of(Download(shared={'knowledge': received}))
  sent = codecs.encoded(codec, KEY, {'knowledge': own}, bases)
  np.testing.assert_array_equal(codecs.decoded(codec, sent)['knowledge'].value, [[5, -7, 0, 0], [1, 9, 3, 1]])
  assert ints(ledger.count(sent)) == {'knowledge': (4, 16), 'indices': (4, 4)}


SHAPE, ROWS, RATE = (6, 3), np.array_split(np.arange(30), 3), 0.3
X = RNG.normal(size=(30, SHAPE[0])).astype(np.float32)
Y = np.arange(30) % SHAPE[1]


def simulated(rounds, **how):
  federation = fedkd.federation(X, Y, ROWS, [fedkd.models.MLP((), classes=SHAPE[1])] * 3)
  method = codecs.coded(methods.fedavg(optax.sgd(RATE), steps=1, batch=10), **how)
  simulation = fedkd.simulation(method, federation)
  start = simulation.init(KEY)
  return start, *simulation.run(start, rounds)


def kept(x, share):
  flat = x.ravel()
  out, places = np.zeros_like(flat), np.argsort(-np.abs(flat), kind='stable')[: round(share * flat.size)]
  out[places] = flat[places]
  return out.reshape(x.shape)


def test_two_coded_rounds_of_fedavg_are_those_of_a_numpy_twin():
  """Halves down, the largest third of the changes up; a bias of three is too short for neither."""
  start, state, report = simulated(2, up=codecs.top_k(1 / 3, changes=True), down=codecs.float16())
  weights = [np.asarray(leaf) for leaf in jax.tree.leaves(start.server['params'])]  # bias, kernel
  for _ in range(2):
    received = [w.astype(np.float16).astype(np.float32) for w in weights]
    models = []
    for rows in ROWS:
      logits = X[rows] @ received[1] + received[0]
      p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
      away = (p - np.eye(SHAPE[1])[Y[rows]]) / len(rows)
      changes = [-RATE * away.sum(0), -RATE * X[rows].T @ away]
      models.append([old + kept(change, 1 / 3) for old, change in zip(received, changes, strict=True)])
    weights = [np.mean(arrays, 0) for arrays in zip(*models, strict=True)]
  for ours, twin in zip(jax.tree.leaves(state.server['params']), weights, strict=True):
    np.testing.assert_allclose(ours, twin, atol=1e-6)
  assert ledger.total(report.up) == {'weights': (6 * 7, 6 * 28), 'indices': (6 * 7, 6 * 7), 'labels': (6, 24)}
  assert ledger.total(report.down) == {'weights': (6 * 21, 6 * 42)}


def simulated_method(method, rounds, **how):
  federation = fedkd.federation(
    X, Y, ROWS, [fedkd.models.MLP((8,), classes=SHAPE[1])] * 3, shared=[r[:4] for r in ROWS]
  )
  simulation = fedkd.simulation(codecs.coded(method, **how), federation)
  return simulation.run(simulation.init(KEY), rounds)[0]


def test_what_is_a_change_already_is_no_difference_from_what_was_received():
  """SCAFFOLD's uploads of control variates: entries that top_k leaves out are no change at all."""
  scaffold = methods.scaffold(optax.sgd(0.1), steps=2, batch=10)
  norm = lambda state: float(optax.global_norm(state.server['control']))
  plain = norm(simulated_method(scaffold, 12))
  assert norm(simulated_method(scaffold, 12, up=codecs.top_k(0.1, changes=True))) < 2 * plain


SGD = optax.sgd(0.1)


@pytest.mark.parametrize(
  ('method', 'how', 'match'),
  [
    (methods.fedavg(SGD), {'up': codecs.top_k()}, 'useless; code changes .changes=True, for uploads alone'),
    (methods.fedavg(SGD), {'down': codecs.top_k()}, 'the codec leaves weights out'),
    (methods.felo(SGD), {'up': codecs.top_k(changes=True)}, 'clients of this method lack the weights in some rounds'),
    (methods.felo(SGD), {'down': codecs.top_k()}, 'the codec leaves weights out'),
    *(
      (
        methods.fedh2l(SGD, batch=4, pairs=pairs),
        {'up': codecs.top_k(changes=True)},
        'nothing in an upload has a count',
      )
      for pairs in (False, True)
    ),
  ],
)
def test_codecs_that_would_leave_out_weights_are_refused(method, how, match):
  with pytest.raises(ValueError, match=match):
    simulated_method(method, 1, **how)


def test_a_method_coded_by_the_identity_is_the_method_bit_for_bit():
  _, plain, _ = simulated(2)
  federation = fedkd.federation(X, Y, ROWS, [fedkd.models.MLP((), classes=SHAPE[1])] * 3)
  simulation = fedkd.simulation(methods.fedavg(optax.sgd(RATE), steps=1, batch=10), federation)
  assert_same(plain.server, simulation.run(simulation.init(KEY), 2)[0].server)


@pytest.mark.parametrize('bits', [0, 40, 2.5])
def test_bits_that_no_number_has_are_refused(bits):
  with pytest.raises(ConfigError, match=rf'bits={bits} must be a whole number of at least 1 and at most 16'):
    codecs.quantised(bits)


def test_changes_without_a_base_are_refused():
  method = methods.fedavg(optax.sgd(0.1))
  with pytest.raises(ValueError, match='set it to False, or code only uploads'):
    codecs.coded(method, down=codecs.quantised(changes=True))
  with pytest.raises(ValueError, match='nothing in an upload has a counterpart in a download'):
    codecs.encoded(codecs.top_k(changes=True), KEY, MESSAGE, {})


halves = lambda key, row: {'half': row.astype(jnp.float16)}
whole = lambda arrays, width: arrays['half'].astype(jnp.float32)
METHOD = methods.fedavg(optax.sgd(0.1))


def test_a_codec_of_ones_own_is_received_as_it_says():
  row = MESSAGE['knowledge'].value
  received = through(codecs.Codec(halves, whole))['knowledge'].value
  np.testing.assert_array_equal(received, np.asarray(row, np.float16).astype(np.float32))


@pytest.mark.parametrize(
  ('wrong', 'sentence'),
  [
    ({'up': codecs.quantised}, r'^up is the function quantised, not called; give a codec such as'),
    ({'down': 'quantised'}, r"^down is 'quantised', a str; give a codec such as"),
    ({'up': codecs.Codec}, r'^up is the class Codec, not called; give a codec such as'),
    ({'up': (halves, whole)}, r'^up is a tuple; give a codec such as'),
    ({'up': False}, r'^up is False, a bool; give a codec such as'),
    ({'up': codecs.Codec(None, whole)}, r'^up.encode is None; give a function \(key, row\) -> {name: array}$'),
    (
      {'up': codecs.Codec(halves, 'x')},
      r"^up.decode is 'x', a str; give a function \(arrays, width\) -> float32\[width\]$",
    ),
    ({'up': codecs.Codec(halves, whole, 'yes')}, r"^up.changes is 'yes', a str; give True or False$"),
    ({'method': methods.fedavg}, r'^method is the function fedavg, not called; give a method such as'),
  ],
)
def test_what_is_no_codec_is_refused_at_once(wrong, sentence):
  with pytest.raises(ValueError, match=sentence):
    codecs.coded(**{'method': METHOD, **wrong})


@pytest.mark.parametrize(
  ('encode', 'decode', 'sentence'),
  [
    (lambda key, row: None, whole, r'^encode of .* returned None; let it return {name: array}$'),
    (lambda key, row: row, whole, r'^encode of .* returned float32\[35\]; let it return'),
    (lambda key, row: {}, whole, r'^encode of .* returned a dict of nothing; let it return'),
    (lambda key, row: {'a': None}, whole, r"^encode of .* returned a dict of 'a': None; let it return"),
    (lambda key, row: {'a': {'b': row}}, whole, r"^encode of .* returned a dict of 'a': a dict; let it return"),
    (
      lambda key, row: {1: row[:1], 'a': row[:1]},
      whole,
      r"returned a dict of 1: float32\[1\], 'a': float32\[1\]; let it",
    ),
    (lambda key, row: 1 / 0, whole, r'^encode of codec .*test_codecs.py, line \d+: .* raised ZeroDivisionError: div'),
    (lambda key: key, whole, r'^encode of codec .* raised TypeError: .* takes 1 positional argument but 2 were given$'),
    (halves, lambda arrays, width: None, r'^decode of .* returned None; let it return float32\[35\]$'),
    (halves, lambda arrays, width: jnp.zeros(width + 1), r'returned float32\[36\]; let it return float32\[35\]$'),
    (halves, lambda arrays, width: jnp.zeros((1, width)), r'returned float32\[1, 35\]; let it return float32\[35\]$'),
    (halves, lambda arrays, width: jnp.zeros(width, int), r'returned int32\[35\]; let it return float32\[35\]$'),
    (halves, lambda arrays, width: arrays['no'], r"^decode of codec .* raised KeyError: 'no'$"),
  ],
)
def test_a_codec_that_returns_something_else_is_refused_in_one_sentence(encode, decode, sentence):
  codec, message = codecs.Codec(encode, decode), {'kernel': MESSAGE['params']['kernel']}
  with pytest.raises(ValueError, match='codec') as refused:
    jax.eval_shape(lambda: codecs.decoded(codec, codecs.encoded(codec, KEY, message)))
  assert re.search(sentence, str(refused.value))  # without the notes that JAX adds
  assert '\n' not in str(refused.value)


def test_coded_messages_are_not_coded_again():
  twice = codecs.coded(codecs.coded(METHOD, codecs.float16()), codecs.quantised())
  federation = fedkd.federation(X, Y, ROWS, [fedkd.models.MLP((), classes=SHAPE[1])] * 3)
  with pytest.raises(
    ValueError, match=r'^the messages of this method are coded already; give coded one codec up and one'
  ):
    fedkd.simulation(twice, federation)


def test_plain_numbers_of_python_are_coded_like_arrays():
  message = {'weight': 0.3, 'knowledge': Masked(jnp.ones(3), True), 'count': 2}
  arrays = {'weight': jnp.float32(0.3), 'knowledge': Masked(jnp.ones(3), jnp.bool_(True)), 'count': jnp.int32(2)}
  ends = []
  for sent in (message, arrays):
    client = METHOD.client._replace(step=lambda key, t, model, state, download, data, sent=sent: ((), sent, {}))
    server = METHOD.server._replace(send=lambda *given, sent=sent: (Download(sent, {}),))
    coded = codecs.coded(METHOD._replace(client=client, server=server), codecs.float16(), codecs.float16())
    (download,) = coded.server.send(KEY, 0, (), (), (jnp.arange(2),), ())
    ends.append((coded.client.step(KEY, 0, None, (), download, None)[1], download.shared))
  for one, other in zip(*ends, strict=True):
    assert_same(one, other)
