import numpy as np
import pytest

from fedkd.data import rotated, sources


@pytest.fixture(scope='module')
def loaded(tmp_path_factory):
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv('FEDKD_CACHE', str(tmp_path_factory.mktemp('cache')))
    return sources.load('rotated_mnist_5k'), sources.load('mnist_5k')


def bilinear(image, degrees):
  """Clockwise by hand: each pixel looks up where it came from, counterclockwise, among its four neighbours."""
  size = len(image)
  centre, angle = (size - 1) / 2, np.deg2rad(degrees)
  padded = np.pad(image.astype(float), size)
  turned = np.zeros(image.shape)
  for row in range(size):
    for column in range(size):
      # x to the right and y up; turning the frame back by `angle` is a counterclockwise turn of the place.
      x, y = column - centre, centre - row
      source_x = np.cos(angle) * x - np.sin(angle) * y
      source_y = np.sin(angle) * x + np.cos(angle) * y
      r, c = centre - source_y + size, centre + source_x + size
      r0, c0 = int(np.floor(r)), int(np.floor(c))
      a, b = r - r0, c - c0
      top = (1 - b) * padded[r0, c0] + b * padded[r0, c0 + 1]
      bottom = (1 - b) * padded[r0 + 1, c0] + b * padded[r0 + 1, c0 + 1]
      turned[row, column] = (1 - a) * top + a * bottom
  return turned


@pytest.mark.parametrize('degrees', [20, 40, 60])
def test_turning_is_bilinear_interpolation(loaded, degrees):
  digits = loaded[1].train_image[:3]
  noise = np.random.default_rng(0).integers(0, 256, (2, 28, 28, 1), np.uint8)  # which has ink at the edges too
  images = np.concatenate([digits, noise])
  for image, turned in zip(images, rotated.rotate(images, degrees), strict=True):
    # Half a unit of rounding, and float32.
    np.testing.assert_allclose(turned[..., 0], bilinear(image[..., 0], degrees), atol=0.51)


def test_turning_is_clockwise():
  bar = np.zeros((1, 28, 28, 1), np.uint8)
  bar[:, 3:25, 13:15] = 255
  turned = rotated.rotate(bar, 20)[0, ..., 0].astype(float)
  columns = np.arange(28)
  middle_of = lambda row: turned[row] @ columns / turned[row].sum()
  # Nine rows above the centre it lies 9 tan(20 degrees) = 3.3 columns to the right, below it to the left.
  assert middle_of(4) == pytest.approx(13.5 + 9.5 * np.tan(np.deg2rad(20)), abs=0.3)
  assert middle_of(23) == pytest.approx(13.5 - 9.5 * np.tan(np.deg2rad(20)), abs=0.3)


def test_a_quarter_turn_is_exact():
  images = np.random.default_rng(0).integers(0, 256, (3, 5, 5, 2), np.uint8)
  np.testing.assert_array_equal(rotated.rotate(images, 90), np.rot90(images, -1, axes=(1, 2)))


def test_channels_turn_alike():
  image = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 1), np.uint8)
  turned = rotated.rotate(np.repeat(image, 3, axis=-1), 30)
  np.testing.assert_array_equal(turned, np.repeat(rotated.rotate(image, 30), 3, axis=-1))


def test_domains_are_aligned_copies_of_the_source(loaded):
  source, mnist = loaded
  assert source.train_image.shape == (4000, 28, 28, 1)
  assert source.train_image.dtype == np.uint8
  assert source.test_image.shape == (0, 28, 28, 1)
  assert source.test_label.shape == (0,)
  assert source.origins == ('M0', 'M20', 'M40', 'M60')
  np.testing.assert_array_equal(source.origin, np.repeat(np.arange(4), 1000))
  first, *others = np.split(source.train_label, 4)
  assert np.bincount(first).tolist() == [100] * 10
  assert all(np.array_equal(first, other) for other in others)
  image, *turned = np.split(source.train_image, 4)
  for degrees, images in zip((20, 40, 60), turned, strict=True):
    np.testing.assert_array_equal(images, rotated.rotate(image, degrees))
  label_of = {x.tobytes(): y for x, y in zip(mnist.train_image, mnist.train_label, strict=True)}
  assert [label_of[x.tobytes()] for x in image] == first.tolist()
  assert len({x.tobytes() for x in image}) == 1000


def test_the_choice_of_digits_is_fixed_and_random():
  label = np.random.default_rng(1).integers(0, 10, 5000)
  rows = rotated.choose(label)
  np.testing.assert_array_equal(rows, rotated.choose(label))
  assert np.bincount(label[rows]).tolist() == [100] * 10
  assert rows.max() > 4900  # not the first hundred of each class


def test_keep_keeps_domains_aligned(loaded, tmp_path, monkeypatch):
  monkeypatch.setattr(
    sources, '_mnist_5k', lambda: {'x_train': loaded[1].train_image, 'y_train': loaded[1].train_label}
  )
  source = sources.load('rotated_mnist_5k', keep=(3, 8))
  assert source.class_names == ('3', '8')
  assert np.bincount(source.origin).tolist() == [200] * 4
  assert all(np.array_equal(source.train_label[:200], other) for other in np.split(source.train_label, 4))
  inside = np.isin(loaded[0].train_label, (3, 8))
  np.testing.assert_array_equal(source.train_image, loaded[0].train_image[inside])


def test_angles_are_degrees_clockwise_and_name_the_domains():
  source = sources.load('rotated_mnist_5k', angles=(0, -90))
  assert source.origins == ('M0', 'M-90')
  upright, turned = source.train_image[:1000], source.train_image[1000:]
  np.testing.assert_array_equal(turned, np.rot90(upright, 1, axes=(1, 2)))


@pytest.mark.parametrize('angles', [(), 20, (0, 20, 20), (0, float('nan')), ('a',), (True,)])
def test_angles_that_are_none_are_refused(angles):
  with pytest.raises(ValueError, match=r'data.angles=.* must be distinct degrees'):
    sources.load('rotated_mnist_5k', angles=angles)
