"""Images in folders: divided into train and test, or into domains (PACS, Office-Home)."""

import pathlib

import numpy as np

from fedkd.data.cache import cached, fingerprint
from fedkd.data.limits import LIMIT, MOST_SIDE, check_size
from fedkd.errors import ConfigError, in_a_sentence

SPLITS = ('train', 'test')
# Of Pillow, with 8 bits per channel or fewer.
MODES = {'1', 'L', 'LA', 'La', 'P', 'PA', 'RGB', 'RGBA', 'RGBa', 'RGBX', 'CMYK', 'YCbCr', 'LAB', 'HSV'}
DEEP = 'more than 8 bits per channel; save it with 8 bits, since the file does not say which value is white'
IMAGE_SUFFIXES = {'.png', '.jpg', '.jpeg', '.bmp', '.gif', '.webp', '.tif', '.tiff', '.pgm', '.ppm'}


def split(root, size=0, limit=LIMIT) -> tuple:
  """(arrays, class names) of root/{train,test}/class/image; other folders, such as CINIC-10's valid/, are ignored.

  `size`: side in pixels to which images of different sizes are resized (Pillow's box filter); 0 raises an error.
  `limit`: bytes that all images may take, decoded.
  """
  name = f'folder:{root}'
  layout = 'train/CLASS/IMAGE and test/CLASS/IMAGE'
  classes = {part: _subfolders(name, root / part, 'class', layout) for part in SPLITS}
  names = [folder.name for folder in classes['train']]
  if extra := [folder for folder in classes['test'] if folder.name not in names]:
    raise ConfigError(f'data.name={name}: {extra[0]} has no counterpart in train/; remove it or add training images')
  listed = {part: _images(classes[part], names) for part in SPLITS}
  _check_not_empty(name, classes['train'], listed['train'], layout)
  return _cached(name, listed, size, limit), names


def domains(root, size=0, limit=LIMIT) -> tuple:
  """(arrays with origin, class names, domain names) of root/domain/class/image, domains in alphabetical order.

  `size`, `limit`: as in `split`.
  """
  name = f'domains:{root}'
  layout = 'DOMAIN/CLASS/IMAGE'
  folders = _subfolders(name, root, 'domain', layout)
  classes = [_subfolders(name, folder, 'class', layout) for folder in folders]
  names = sorted({folder.name for own in classes for folder in own})
  rows = []
  for folder, own in zip(folders, classes, strict=True):
    if missing := sorted(set(names) - {path.name for path in own}):
      raise ConfigError(
        f'data.name={name}: {folder} has no class {missing[0]}, unlike another domain; add or remove it'
      )
    rows.append(_images(own, names))
    _check_not_empty(name, own, rows[-1], layout)
  arrays = _cached(name, {'train': [row for own in rows for row in own]}, size, limit)
  origin = np.repeat(np.arange(len(rows)), [len(own) for own in rows])
  return {**arrays, 'origin': origin}, names, [folder.name for folder in folders]


def _cached(name, listed, size, limit) -> dict:
  version = fingerprint([path for rows in listed.values() for path, _ in rows]) + ' upright'  # which they once were not
  return cached(name, f'{version} {size}' if size else version, lambda: _read(name, listed, size, limit))


def folders_in(root: pathlib.Path) -> list[pathlib.Path]:
  """The folders in a folder, in order, except hidden ones; none if it does not exist."""
  return [path for path in _entries(root) if path.is_dir() and not path.name.startswith('.')]


def _entries(folder) -> list:
  try:
    return sorted(folder.iterdir()) if folder.is_dir() else []
  except OSError as error:
    raise ConfigError(f'{folder} cannot be listed ({error.strerror}); make it readable, or remove it') from error


def _subfolders(name, folder, kind, layout) -> list:
  found = folders_in(folder)
  if not found:
    others = [path.name for path in _entries(folder)]
    only = f', only {", ".join(others[:3])}{", ..." if len(others) > 3 else ""}' if others else ''
    raise ConfigError(f'data.name={name}: {folder} has no {kind} folders{only}; give a folder of {layout}')
  return found


def _check_not_empty(name, folders, rows, layout):
  filled = {path.parent for path, _ in rows}
  if empty := [folder for folder in folders if folder not in filled]:
    raise ConfigError(f'data.name={name}: {empty[0]} has no image; remove it or add some, as {layout}')


def _images(folders, names) -> list:
  """(path, label) of every image file below class folders; hidden files and other types are passed over."""
  is_image = lambda path: path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith('.')
  found = [(path, names.index(f.name)) for f in folders for path in _entries(f) if is_image(path)]
  if odd := [path for path, _ in found if not path.is_file()]:  # a pipe would wait for ever
    raise ConfigError(f'{odd[0]} is not a file (a broken link, a pipe or a folder); remove it')
  return found


def _read(name, listed, size, limit) -> dict:
  """Arrays of {'train': [(path, label), ...], 'test': ...}, which may lack the latter."""
  from PIL import Image

  size, mode = _common_form(name, [path for rows in listed.values() for path, _ in rows], size, limit)
  pixels_of = lambda opened: np.asarray(upright(opened).convert(mode).resize(size, Image.Resampling.BOX))
  arrays = {}
  for part, rows in listed.items():
    image = np.empty((len(rows), size[1], size[0], {'L': 1, 'RGB': 3}[mode]), np.uint8)
    for pixels, (path, _) in zip(image, rows, strict=True):
      pixels[:] = _open(name, path, pixels_of).reshape(pixels.shape)
    arrays[f'x_{part}'] = image
    arrays[f'y_{part}'] = np.array([label for _, label in rows], np.int32)
  return arrays


def _common_form(name, paths, wanted, limit) -> tuple:
  """The one size (width, height) of all images, or else the `wanted` one, and 'L' if all are grey, else 'RGB'; reads
  headers only, and a PNG that is no square, whose orientation may be at its end.

  Raises:
    ConfigError: also for images of more than 8 bits per channel, which have no one brightness, and for too large ones.
  """
  forms = [_open(name, path, lambda opened: (_size(opened), opened.mode)) for path in paths]
  size = forms[0][0]
  for path, (other, mode) in zip(paths, forms, strict=True):
    if mode not in MODES:
      raise ConfigError(f'data.name={name}: {path} has pixels of mode {mode}, {DEEP}')
    if max(other) > MOST_SIDE or min(other) < 1:
      raise ConfigError(f'data.name={name}: {path} is {other[0]}x{other[1]} pixels; give sides of 1 to {MOST_SIDE}')
    if other != size and not wanted:
      raise ConfigError(
        f'data.name={name}: {path} is {other[0]}x{other[1]} pixels but {paths[0]} is {size[0]}x{size[1]}; '
        'resize all images to one size, or set data.size to have it done here'
      )
  if any(other != size for other, _ in forms):
    size = (wanted, wanted)
  form = 'L' if all(mode in ('1', 'L') for _, mode in forms) else 'RGB'
  check_size(name, len(paths) * size[0] * size[1] * len(form), limit)
  return size, form


def upright(image):
  """An image of Pillow as it is to be seen: cameras write an orientation into its EXIF rather than turn its pixels."""
  from PIL import ImageOps

  return ImageOps.exif_transpose(image)


def _size(image) -> tuple:
  """(width, height) of what `upright` makes, which decodes; of images that are too large for us, as they lie."""
  from PIL import ExifTags

  width, height = image.size
  asked = width != height and max(width, height) <= MOST_SIDE
  lies = asked and image.getexif().get(ExifTags.Base.Orientation) in (5, 6, 7, 8)
  return upright(image).size if lies else image.size  # which of a TIFF is right already


def _open(name, path, use):
  """The result of `use` on an opened image."""
  from PIL import Image

  # Every decoder of Pillow has its own exceptions; and there are images that unpack to too many pixels.
  damaged = lambda error: f'data.name={name}: {path} cannot be read ({error}); repair or remove it'
  with in_a_sentence(damaged), Image.open(path) as opened:
    return use(opened)
