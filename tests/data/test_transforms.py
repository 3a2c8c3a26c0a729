import tracemalloc

import numpy as np
import pytest

from fedkd.data import transforms
from fedkd.errors import ConfigError


@pytest.fixture
def images():
  return np.random.default_rng(0).integers(0, 256, (50, 4, 5, 3), np.uint8)


def test_mean_image_is_per_pixel_and_in_raw_units(images):
  mean, scale = transforms.mean_image(images, 'any')
  assert mean.shape == (4, 5, 3)
  np.testing.assert_allclose(mean, images.astype(float).mean(0), rtol=1e-6)
  np.testing.assert_allclose(scale, 1 / 255)


def test_mean_image_agrees_with_division_first(images):
  mean, scale = transforms.mean_image(images, 'any')
  as_published = images / 255 - (images / 255).mean(0)
  np.testing.assert_allclose((images - mean) * scale, as_published, atol=1e-6)


def test_mean_image_makes_no_float_copy():
  images = np.zeros((4000, 28, 28, 1), np.uint8)
  tracemalloc.start()
  transforms.mean_image(images, 'any')
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert peak < images.nbytes


def test_mean_of_white_does_not_overflow():
  mean, _ = transforms.mean_image(np.full((70000, 1, 1, 1), 255, np.uint8), 'any')
  assert mean.item() == 255


@pytest.mark.parametrize('block', [7, 4096])
def test_standard_whitens_each_channel(images, monkeypatch, block):
  monkeypatch.setattr(transforms, 'BLOCK', block)
  mean, scale = transforms.standard(images, 'mine')
  white = (images - mean) * scale
  assert mean.shape == scale.shape == (3,)
  np.testing.assert_allclose(white.mean((0, 1, 2)), 0, atol=1e-6)
  np.testing.assert_allclose(white.std((0, 1, 2)), 1, rtol=1e-6)


@pytest.mark.parametrize('name', ['cifar10', 'cifar10:3.0.2', 'npz:sets/CIFAR-10.npz'])
def test_standard_uses_published_cifar10(images, name):
  mean, scale = transforms.standard(images, name)
  np.testing.assert_allclose(mean / 255, [0.4914, 0.4822, 0.4465], rtol=1e-6)
  np.testing.assert_allclose(1 / scale / 255, [0.2023, 0.1994, 0.2010], rtol=1e-6)


def test_standard_uses_published_cinic10(images):
  mean, scale = transforms.standard(images, 'folder:sets/CINIC-10')
  np.testing.assert_allclose(mean / 255, [0.47889522, 0.47227842, 0.43047404], rtol=1e-6)
  np.testing.assert_allclose(1 / scale / 255, [0.24205776, 0.23828046, 0.25874835], rtol=1e-6)


@pytest.mark.parametrize('name', ['cifar100', 'cifar10_1', 'npz:cifar10/other.npz'])
def test_standard_computes_for_other_names(images, name):
  np.testing.assert_allclose(transforms.standard(images, name)[0], images.mean((0, 1, 2)), rtol=1e-6)


def test_standard_computes_for_grey_images_of_a_published_name(images):
  mean, _ = transforms.standard(images[..., :1], 'cifar10')
  np.testing.assert_allclose(mean, [images[..., 0].mean()], rtol=1e-6)


def test_standard_of_a_constant_channel_is_zero():
  images = np.full((3, 2, 2, 1), 9, np.uint8)
  mean, scale = transforms.standard(images, 'mine')
  np.testing.assert_array_equal((images - mean) * scale, 0)
  assert np.isfinite(scale).all()


def test_unit_maps_white_to_one(images):
  mean, scale = transforms.unit(images, 'any')
  np.testing.assert_array_equal(mean, 0)
  np.testing.assert_allclose((255 - mean) * scale, [1, 1, 1], rtol=1e-6)


def test_symmetric_maps_black_and_white_to_minus_one_and_one(images):
  mean, scale = transforms.symmetric(images, 'any')
  np.testing.assert_allclose((np.array([0, 255])[:, None] - mean) * scale, [[-1] * 3, [1] * 3], rtol=1e-6)


@pytest.mark.parametrize(
  'make', [getattr(transforms, name) for name in transforms.__all__ if name not in ('imagenet', 'none')]
)
def test_constants_are_float32_and_broadcast(images, make):
  mean, scale = make(images, 'any')
  assert mean.dtype == scale.dtype == np.float32
  assert ((images[0] - mean) * scale).shape == images[0].shape


def test_standard_whitens_each_column_of_numbers_and_each_channel_of_sequences(monkeypatch):
  monkeypatch.setattr(transforms, 'BLOCK', 7)
  random = np.random.default_rng(0)
  for x in (random.normal(3, 2, (50, 4)), random.normal(-1e4, 5, (50, 6, 4))):
    x[..., 2] = 0.1  # does not vary
    x = x.astype(np.float32)
    mean, scale = transforms.standard(x, 'mine')
    white = (x - mean) * scale
    assert mean.shape == scale.shape == (4,)
    axes = tuple(range(x.ndim - 1))
    np.testing.assert_allclose(white.mean(axes), 0, atol=1e-3)
    np.testing.assert_allclose(white.std(axes), [1, 1, 0, 1], atol=1e-3)


def test_auto_is_what_fits():
  images, numbers = np.zeros((3, 4, 4, 1), np.uint8), np.arange(12.0, dtype=np.float32).reshape(3, 4)
  for x, of in ((images, transforms.mean_image), (numbers, transforms.standard)):
    for one, other in zip(transforms.auto(x, 'mine'), of(x, 'mine'), strict=True):
      np.testing.assert_array_equal(one, other)
  assert transforms.auto(np.zeros((3, 4), np.int32), 'mine') == (None, None) == transforms.none(images, 'mine')


@pytest.mark.parametrize('choice', ['mean_image', 'unit', 'symmetric', 'imagenet'])
def test_what_knows_the_range_of_bytes_is_for_images(choice):
  with pytest.raises(ConfigError, match=rf"^data.normalise='{choice}' is for images, .* has int32\[3, 4\]; set it to"):
    getattr(transforms, choice)(np.zeros((3, 4), np.int32), 'mine')


def test_tokens_have_no_mean():
  with pytest.raises(ConfigError, match=r"^data.normalise='standard' .* has tokens, int32\[3, 4\]; set it to 'none'"):
    transforms.standard(np.zeros((3, 4), np.int32), 'mine')
