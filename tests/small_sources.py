"""Images of tiny data sets, in arrays and in folders."""

import numpy as np
from PIL import Image


def random_images(count, *shape, seed=0):
  return np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)


def equal(a, b):
  return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def write_folder(root, splits=('train', 'test', 'valid'), classes=('cat', 'dog'), count=2, mode='RGB'):
  """Image i of class c in split s is filled with the grey 100 s + 10 c + i, but for its first pixel, which is white."""
  for s, split in enumerate(splits):
    for c, label in enumerate(classes):
      (root / split / label).mkdir(parents=True)
      for i in range(count):
        pixels = np.full((4, 6), 100 * s + 10 * c + i, np.uint8)
        pixels[0, 0] = 255
        Image.fromarray(pixels).convert(mode).save(root / split / label / f'{i}.png')
  return f'folder:{root}'
