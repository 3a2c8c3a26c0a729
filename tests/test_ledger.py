import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import ledger, methods, models, totals
from fedkd.codecs.messages import Coded
from fedkd.round import Report
from fedkd.servers import class_message
from fedkd.types import Data, Download, ExampleIndices, Masked, PeerMessages, Pool
from helpers import preprocessed

ints = lambda counts: {kind: (int(numbers), int(size)) for kind, (numbers, size) in counts.items()}


def total(counts):
  return sum(int(numbers) for numbers, _ in counts.values())


def test_counts_by_kind():
  message = {
    'params': {'dense': {'kernel': jnp.zeros((3, 2)), 'bias': jnp.zeros(2)}},
    'batch_stats': {'mean': jnp.zeros(2)},
    'count': jnp.int32(5),
    'label': jnp.zeros(4, jnp.int32),
    'index': jnp.zeros(6, jnp.int16),
    'image': jnp.zeros((2, 3, 3, 1), jnp.uint8),
    'knowledge': jnp.zeros((4, 5), jnp.float16),
    'anything': (jnp.zeros(1), jnp.zeros(2)),
  }
  expected = {
    'weights': (8, 32),
    'statistics': (2, 8),
    'labels': (5, 20),
    'indices': (6, 12),
    'images': (18, 18),
    'knowledge': (23, 52),
  }
  assert ints(ledger.count(message)) == expected
  assert ints(ledger.capacity(message)) == expected


def test_the_last_name_on_the_path_decides_and_named_tuples_count():
  message = Download({'image': {'label': jnp.zeros(2)}}, {'knowledge': {'index': jnp.zeros(3, jnp.int32)}})
  assert ints(ledger.count(message)) == {'labels': (2, 8), 'indices': (3, 12)}


@pytest.mark.parametrize(
  ('name', 'kind'), [('params', 'weights'), ('control', 'weights'), ('batch_stats', 'statistics')]
)
def test_layers_of_any_name_are_of_the_kind_of_their_model(name, kind):
  layers = {layer: {'kernel': jnp.zeros(2)} for layer in (*ledger.KINDS, 'dense')}
  counts = {kind: (2 * len(layers), 8 * len(layers))}
  for message in (Download({name: layers}), {'image': {name: layers}}):
    assert ints(ledger.count(message)) == ints(ledger.capacity(message)) == counts


def test_what_a_codec_sends_in_the_place_of_weights_has_kinds_of_its_own():
  message = {'params': {'label': Coded({'value': jnp.zeros(3), 'index': jnp.zeros(3, jnp.int16)}, {})}}
  assert ints(ledger.count(message)) == {'weights': (3, 12), 'indices': (3, 6)}


def test_nothing_is_nothing():
  assert ledger.count(Download()) == {}
  assert ledger.capacity({}) == {}


def test_sent_counts_valid_entries_only():
  valid = jnp.array([[True, False], [True, True], [False, False]])
  message = {'knowledge': Masked(jnp.zeros((3, 2, 5)), valid), 'label': Masked(jnp.zeros((3, 2), jnp.int8), valid)}
  assert ints(ledger.count(message)) == {'knowledge': (15, 60), 'labels': (3, 3)}
  assert ledger.capacity(message) == {'knowledge': (30, 120), 'labels': (6, 6)}


@pytest.mark.parametrize(('id', 'rows'), [(0, 3), (3, 3), (-1, 4), (4, 4)])
def test_peers_leave_out_the_own_echo(id, rows):
  message = {
    'knowledge': PeerMessages(jnp.zeros((4, 2, 5)), jnp.ones(4, bool)),
    'index': PeerMessages(jnp.zeros((4, 2), jnp.int32), jnp.ones(4, bool)),
  }
  counts = jax.jit(ledger.count)(message, id)
  assert ints(counts) == {'knowledge': (rows * 10, rows * 40), 'indices': (rows * 2, rows * 8)}


def test_peers_who_said_nothing_cost_nothing():
  valid = jnp.array([True, False, True, False])
  message = {'posterior': PeerMessages(jnp.zeros((4, 2, 5)), valid), 'accuracy': PeerMessages(jnp.zeros(4), valid)}
  assert ints(ledger.count(message, 0)) == {'knowledge': (11, 44)}
  assert ints(ledger.count(message, 1)) == {'knowledge': (22, 88)}
  silence = {name: PeerMessages(leaf.value, jnp.zeros(4, bool)) for name, leaf in message.items()}
  assert ints(ledger.count(silence, 0)) == {'knowledge': (0, 0)}
  assert ledger.capacity(silence) == {'knowledge': (33, 132)}


def test_peers_capacity_is_everyone_else():
  assert ledger.capacity({'knowledge': PeerMessages(jnp.zeros((4, 2, 5)), jnp.ones(4, bool))}) == {
    'knowledge': (30, 120)
  }


def test_fedhe_sends_110_numbers_for_ten_classes():
  message = class_message(jnp.zeros((10, 10)), jnp.ones(10, bool))
  assert ints(ledger.count(message)) == {'knowledge': (100, 400), 'labels': (10, 40)}
  assert total(ledger.capacity(message)) == 110


@pytest.mark.parametrize('seen', [0, 1, 4, 10])
def test_fedhe_under_label_skew_sends_eleven_numbers_per_class_seen(seen):
  assert total(ledger.count(class_message(jnp.zeros((10, 10)), jnp.arange(10) < seen))) == 11 * seen


def upload(shape, classes=20):
  """The shapes of what a client with model 9 of FedHe's Table II uploads in FedAvg."""
  model = preprocessed(models.ThreeConv((128, 128, 192), dropout=0.3, classes=classes))
  tx = optax.adam(1e-3)
  client = methods.fedavg(tx, batch=2).client

  def turn(image):
    data = Data(Pool(image, jnp.zeros(4, jnp.int32)), ExampleIndices(jnp.arange(4), jnp.int32(4), jnp.int32(0)), None)
    key = jax.random.key(0)
    variables = model.init(key, image, False)
    state = client.init(key, model, data, variables)
    return client.step(key, 0, model, state, Download(shared=dict(variables)), data)[1]

  return jax.eval_shape(turn, jax.ShapeDtypeStruct((4, *shape), jnp.uint8))


@pytest.mark.parametrize(
  ('shape', 'classes', 'numbers'),
  [
    ((28, 28, 1), 20, 324_672),
    ((32, 32, 3), 20, 326_976),
    ((28, 28, 1), 10, 307_392),
    ((32, 32, 3), 10, 309_696),
  ],
)
def test_model_9_costs_fedavg_what_tables_3_and_4_print(shape, classes, numbers):
  counts = ledger.capacity(upload(shape, classes))
  assert counts['weights'][0] + counts['statistics'][0] == numbers
  assert counts['statistics'][0] == 2 * (128 + 128 + 192)
  assert counts['labels'] == (1, 4)  # n_k, which the papers do not count


@pytest.mark.parametrize(
  ('shape', 'weights', 'fedmd', 'percent'),
  [((28, 28, 1), 324_672, 7_940, 97.55), ((32, 32, 3), 326_976, 30_820, 90.57)],
)
def test_tables_3_and_4(shape, weights, fedmd, percent):
  reduced = lambda numbers: 100 * (1 - numbers / weights)
  public = 10
  message = jax.eval_shape(
    lambda: {'knowledge': jnp.zeros((public, 10)), 'image': jnp.zeros((public, *shape), jnp.uint8)}
  )
  assert total(ledger.capacity(message)) == fedmd == public * (10 + np.prod(shape))
  assert reduced(fedmd) == pytest.approx(percent, abs=0.005)
  fedhe = jax.eval_shape(lambda: class_message(jnp.zeros((10, 10)), jnp.ones(10, bool)))
  assert reduced(total(ledger.capacity(fedhe))) == pytest.approx(99.966, abs=0.0005)


def test_a_message_beyond_int32_is_refused():
  """FedGKT's maps of 64 channels from 9 000 images: 9 000 * 65 536 * 4 bytes."""
  message = {'map': jax.ShapeDtypeStruct((9000, 32, 32, 64), jnp.float32)}
  with pytest.raises(ValueError, match=r'2,359,296,000 bytes of knowledge'):
    jax.eval_shape(ledger.count, message)


def test_the_total_of_mapped_seeds_is_that_of_each():
  """Inside `vmap` a total has no exact integers, and the same numbers."""
  counts = lambda scale: ({'logits': (jnp.arange(6).reshape(2, 3) * scale, jnp.full((2, 3), 4) * scale)},) * 2
  mapped = jax.vmap(lambda scale: ledger.total(counts(scale)))(jnp.arange(3))
  for seed in range(3):
    assert ledger.total(counts(seed)) == {'logits': tuple(int(sums[seed]) for sums in mapped['logits'])}
  assert ledger.total(counts(1)) == {'logits': (30, 48)}


def test_what_an_earlier_phase_sent_stays_in_the_totals():
  """Though the next one sends messages of other kinds."""
  so_far = totals.start(1)
  for kinds in ({'weights': (8, 32)}, {'knowledge': (3, 12)}):
    sent = ({kind: tuple(np.full((1, 1, 1), n) for n in pair) for kind, pair in kinds.items()},)
    report = Report((np.zeros((1, 1, 1), int),), ({},), sent, ({},), {})
    so_far = totals.add(so_far, report, 1, 0.0)
  assert so_far['up'] == {'weights': [[8], [32]], 'knowledge': [[3], [12]]}
  assert totals.total(so_far, 'up').tolist() == [[11], [44]]
