"""The parameter counts of the papers' tables, through `eval_shape`."""

import jax
import jax.numpy as jnp
import pytest

from fedkd import models
from fedkd.models.cvae import CVAE
from fedkd.models.gkt import GKTServer

MNIST, CIFAR = (28, 28, 1), (32, 32, 3)

# FedMD's Table 1 = FedHe's Table II: filters, and all numbers (weights and BatchNorm statistics) for ten classes on
# MNIST and CIFAR-10, sixteen on MNIST and CIFAR-10.
TABLE_1 = [
  ((128, 256), 730_624, 876_288, 990_208, 1_221_888),
  ((128, 384), 1_095_040, 1_312_384, 1_484_416, 1_830_784),
  ((128, 512), 1_459_456, 1_748_480, 1_978_624, 2_439_680),
  ((256, 256), 1_027_328, 1_175_296, 1_286_912, 1_520_896),
  ((256, 512), 2_051_072, 2_342_400, 2_570_240, 3_033_600),
  ((64, 128, 256), 353_536, 354_688, 367_360, 368_512),
  ((64, 128, 192), 273_728, 274_880, 284_096, 285_248),
  ((128, 192, 256), 567_744, 570_048, 581_568, 583_872),
  ((128, 128, 128), 227_584, 229_888, 234_496, 236_800),
  ((128, 128, 192), 307_392, 309_696, 317_760, 320_064),
]

# FedMD's Table 2: CIFAR, sixteen classes.
TABLE_2 = [
  ((128, 256), 1_221_888),
  ((128, 128, 192), 320_064),
  ((64, 64, 64), 65_152),
  ((128, 64, 64), 83_584),
  ((64, 64, 128), 111_552),
  ((64, 128, 256), 368_512),
  ((64, 128, 192), 285_248),
  ((128, 192, 256), 583_872),
  ((128, 128, 128), 236_800),
  ((64, 64, 64, 64), 102_336),
]

NETS = {2: models.TwoConv, 3: models.ThreeConv, 4: models.FourConv}


def counts(net, shape):
  """(trained numbers, BatchNorm statistics)."""
  init = lambda image: net.init(jax.random.key(0), image, False)
  variables = jax.eval_shape(init, jax.ShapeDtypeStruct((1, *shape), jnp.float32))
  count = lambda tree: sum(leaf.size for leaf in jax.tree.leaves(tree))
  return count(variables['params']), count(variables.get('batch_stats', {}))


@pytest.mark.parametrize(('filters', 'totals'), [(filters, totals) for filters, *totals in TABLE_1])
def test_table_1(filters, totals):
  columns = [(MNIST, 10), (CIFAR, 10), (MNIST, 16), (CIFAR, 16)]
  for (shape, classes), total in zip(columns, totals, strict=True):
    trained, statistics = counts(NETS[len(filters)](filters, classes=classes), shape)
    assert trained + statistics == total
    assert statistics == 2 * sum(filters)


@pytest.mark.parametrize(('filters', 'total'), TABLE_2)
def test_table_2(filters, total):
  assert sum(counts(NETS[len(filters)](filters, classes=16), CIFAR)) == total


def test_model_9_as_trained_and_as_printed():
  net = lambda classes: models.ThreeConv((128, 128, 192), classes=classes)
  assert counts(net(10), MNIST)[0] == 306_496
  assert counts(net(10), CIFAR)[0] == 308_800
  assert sum(counts(net(20), MNIST)) == 324_672
  assert sum(counts(net(20), CIFAR)) == 326_976


@pytest.mark.parametrize('shape', [MNIST, (32, 32, 1)])
def test_lenet(shape):
  assert counts(models.LeNet(), shape) == (61_706, 0)


@pytest.mark.parametrize(('second', 'weights'), [(18, 260 + 4_518 + 14_450 + 510), (20, 21_840), (22, 23_942)])
def test_the_cnn_of_fedproto(second, weights):
  assert counts(models.MnistCNN((10, second)), MNIST) == (weights, 0)


def test_the_cnn_of_fedgen():
  assert counts(models.FedGenCNN(), MNIST) == (26_434, 44)
  assert counts(models.FedGenCNN(classes=26), MNIST) == (26_962, 44)


def test_mlp():
  assert counts(models.MLP((64, 32), classes=10), MNIST) == (784 * 64 + 64 + 64 * 32 + 32 + 32 * 10 + 10, 0)


def of_sequences(net, example):
  variables = jax.eval_shape(lambda: net.init(jax.random.key(0), example, False))
  assert set(variables) == {'params'}
  return sum(leaf.size for leaf in jax.tree.leaves(variables))


def test_networks_for_sequences():
  tokens, signal = jnp.zeros((1, 12), jnp.int32), jnp.zeros((1, 12, 3))
  assert of_sequences(models.EmbeddingBag(8, vocabulary=50, classes=4), tokens) == 50 * 8 + 8 * 4 + 4
  assert of_sequences(models.EmbeddingBag(8, (6,), 50, classes=4), tokens) == 50 * 8 + 8 * 6 + 6 + 6 * 4 + 4
  convs = lambda inside: 5 * inside * 6 + 6 + 5 * 6 * 7 + 7 + 7 * 4 + 4
  assert of_sequences(models.SequenceCNN((6, 7), classes=4), signal) == convs(3)
  assert of_sequences(models.SequenceCNN((6, 7), classes=4), signal[..., 0]) == convs(1)
  assert of_sequences(models.SequenceCNN((6, 7), width=8, vocabulary=50, classes=4), tokens) == 50 * 8 + convs(8)
  block = 4 * (8 * 8 + 8) + 8 * 32 + 32 + 32 * 8 + 8 + 2 * 2 * 8  # attention, feed-forward, two LayerNorms
  encoder = 12 * 8 + 3 * block + 2 * 8 + 8 * 4 + 4
  net = models.Transformer(8, 3, 2, classes=4)
  assert of_sequences(net, signal) == 3 * 8 + 8 + encoder
  assert of_sequences(net.clone(vocabulary=50), tokens) == 50 * 8 + encoder


PHOTO = (224, 224, 3)

# Trained numbers for ten classes on 32 pixels: stems 'imagenet' and 'cifar'.
RESNETS = [
  (models.ResNet10, 4_910_922, 4_903_242),
  (models.ResNet14, 10_812_234, 10_804_554),
  (models.ResNet18, 11_181_642, 11_173_962),
  (models.ResNet22, 17_082_954, 17_075_274),
  (models.ResNet26, 17_452_362, 17_444_682),
  (models.ResNet34, 21_289_802, 21_282_122),
  (models.ResNet50, 23_528_522, 23_520_842),
]


@pytest.mark.parametrize(('net', 'imagenet', 'cifar'), RESNETS)
def test_resnets(net, imagenet, cifar):
  assert counts(net(lowering='native'), CIFAR)[0] == imagenet  # quicker to trace
  assert counts(net(lowering='native', stem='cifar'), CIFAR)[0] == cifar


def test_a_projection_replaces_the_wide_head():
  wide = counts(models.ResNet50(lowering='native', projection=512), CIFAR)[0]
  assert wide == 23_528_522 + 2048 * 512 - (2048 - 512) * 10


def test_norm_and_dtype_leave_the_weights():
  assert counts(models.ResNet18(lowering='native', norm='group'), CIFAR) == (11_181_642, 0)
  assert counts(models.ResNet18(lowering='native', dtype='bfloat16'), CIFAR) == (11_181_642, 2 * 4_800)


# HeteroFL's five rates.
@pytest.mark.parametrize(
  ('rate', 'weights'), [(1, 17_442_890), (1 / 2, 4_365_354), (1 / 4, 1_093_658), (1 / 8, 274_578), (1 / 16, 69_230)]
)
def test_heterofl(rate, weights):
  assert counts(models.PreActResNet(rate=rate, lowering='native'), CIFAR)[0] == weights


@pytest.mark.parametrize('net', [models.GKTClient, models.PreActResNet])
def test_stems(net):
  first = 16 if net is models.GKTClient else 64
  maps = {'cifar': 32, 'imagenet': 8}
  shape = lambda stem: (
    jax.eval_shape(
      lambda: net(lowering='native', stem=stem).init_with_output(
        jax.random.key(0), jnp.zeros((1, *CIFAR)), False, method='features'
      )
    )[0].shape
  )
  weights = [counts(net(lowering='native', stem=stem), CIFAR)[0] for stem in maps]
  assert weights[1] - weights[0] == (7 * 7 - 3 * 3) * 3 * first
  if net is models.GKTClient:
    assert [shape(stem) for stem in maps] == [(1, side, side, 16) for side in maps.values()]


def test_fedgkt():
  # Of k x k from a channels to b, with BatchNorm; then the blocks of resnet8_56, the first with a shortcut.
  conv = lambda k, a, b: k * k * a * b + 2 * b
  bottleneck = lambda a: conv(1, a, 16) + conv(3, 16, 16) + conv(1, 16, 64)
  client = conv(3, 3, 16) + bottleneck(16) + conv(1, 16, 64) + bottleneck(64) + 65 * 10
  assert counts(models.GKTClient(lowering='native'), CIFAR)[0] == client == 10_586
  assert counts(GKTServer(lowering='native'), (32, 32, 16))[0] == 590_858
  stem = 3 * 3 * 3 * 64 + 2 * 64  # the client's part of a ResNet50
  assert counts(GKTServer('resnet50', lowering='native'), (32, 32, 64))[0] == 23_520_842 - stem


def test_cvae():
  s, label = jnp.zeros((2, 512)), jnp.zeros(2, jnp.int32)
  init = lambda: CVAE(512, 10).init(jax.random.key(0), s, label, jax.random.key(1), False)
  params = jax.eval_shape(init)['params']
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 1_579_008


# Classes, trained numbers, BatchNorm statistics: two per normalised channel.
@pytest.mark.parametrize(
  ('net', 'classes', 'weights', 'statistics'),
  [
    (models.AlexNet, 7, 57_032_519, 0),
    (models.AlexNet, 65, 57_270_145, 0),
    (models.VGG11, 7, 128_795_015, 0),
    (models.VGG11, 65, 129_032_641, 0),
    (models.MobileNetV2, 7, 2_232_839, 2 * 17_056),
    (models.MobileNetV2, 65, 2_307_137, 2 * 17_056),
    (models.ResNet18, 7, 11_180_103, 2 * 4_800),
    (models.ResNet18, 65, 11_209_857, 2 * 4_800),
    (models.ResNet34, 7, 21_288_263, 2 * 8_512),
    (models.ResNet34, 65, 21_318_017, 2 * 8_512),
    (models.ResNet50, 65, 23_641_217, 2 * 26_560),
  ],
)
def test_photo_networks(net, classes, weights, statistics):
  assert counts(net(classes=classes, lowering='native'), PHOTO) == (weights, statistics)


# HeFlwr's four widths, on MNIST at 32 pixels.
@pytest.mark.parametrize(('rate', 'weights'), [(1 / 4, 4_157), (1 / 2, 15_964), (3 / 4, 35_431), (1, 62_558)])
def test_lenets_parts(rate, weights):
  assert counts(models.LeNet((8, 16), rate), (32, 32, 1)) == (weights, 0)
