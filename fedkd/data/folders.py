"""Images in folders: divided into train and test, or into domains (PACS, Office-Home)."""

import numpy as np

from fedkd.data.cache import cached, fingerprint
from fedkd.errors import ConfigError

SPLITS = ('train', 'test')
IMAGE_SUFFIXES = {'.png', '.jpg', '.jpeg', '.bmp', '.gif', '.webp', '.tif', '.tiff', '.pgm', '.ppm'}


def split(root, size=0) -> tuple:
  """(arrays, class names) of root/{train,test}/class/image; other folders, such as CINIC-10's valid/, are ignored.

  `size`: side in pixels to which images of different sizes are resized (Pillow's box filter); 0 raises an error.
  """
  name = f'folder:{root}'
  layout = 'train/CLASS/IMAGE and test/CLASS/IMAGE'
  classes = {part: _subfolders(name, root / part, 'class', layout) for part in SPLITS}
  names = [folder.name for folder in classes['train']]
  if extra := [folder for folder in classes['test'] if folder.name not in names]:
    raise ConfigError(f'data.name={name}: {extra[0]} has no counterpart in train/; remove it or add training images')
  listed = {part: _images(classes[part], names) for part in SPLITS}
  _check_not_empty(name, classes['train'], listed['train'], layout)
  return _cached(name, listed, size), names


def domains(root, size=0) -> tuple:
  """(arrays with origin, class names, domain names) of root/domain/class/image, domains in alphabetical order.

  `size`: as in `split`.
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
  arrays = _cached(name, {'train': [row for own in rows for row in own]}, size)
  origin = np.repeat(np.arange(len(rows)), [len(own) for own in rows])
  return {**arrays, 'origin': origin}, names, [folder.name for folder in folders]


def _cached(name, listed, size) -> dict:
  version = fingerprint([path for rows in listed.values() for path, _ in rows])
  return cached(name, f'{version} {size}' if size else version, lambda: _read(name, listed, size))


def _listed(root) -> list:
  """The folders in a folder, except hidden ones; none if it does not exist."""
  return sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith('.')) if root.is_dir() else []


def _subfolders(name, folder, kind, layout) -> list:
  found = _listed(folder)
  if not found:
    others = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
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
  return [(path, names.index(f.name)) for f in folders for path in sorted(f.iterdir()) if is_image(path)]


def _read(name, listed, size) -> dict:
  """Arrays of {'train': [(path, label), ...], 'test': ...}, which may lack the latter."""
  from PIL import Image

  size, mode = _common_form(name, [path for rows in listed.values() for path, _ in rows], size)
  pixels_of = lambda opened: np.asarray(opened.convert(mode).resize(size, Image.Resampling.BOX))
  arrays = {}
  for part, rows in listed.items():
    image = np.empty((len(rows), size[1], size[0], {'L': 1, 'RGB': 3}[mode]), np.uint8)
    for pixels, (path, _) in zip(image, rows, strict=True):
      pixels[:] = _open(name, path, pixels_of).reshape(pixels.shape)
    arrays[f'x_{part}'] = image
    arrays[f'y_{part}'] = np.array([label for _, label in rows], np.int32)
  return arrays


def _common_form(name, paths, wanted) -> tuple:
  """The one size (width, height) of all images, or else the `wanted` one, and 'L' if all are grey, else 'RGB'; reads
  headers only."""
  forms = [_open(name, path, lambda opened: (opened.size, opened.mode)) for path in paths]
  size = forms[0][0]
  for path, (other, _) in zip(paths, forms, strict=True):
    if other != size and not wanted:
      raise ConfigError(
        f'data.name={name}: {path} is {other[0]}x{other[1]} pixels but {paths[0]} is {size[0]}x{size[1]}; '
        'resize all images to one size, or set data.size to have it done here'
      )
  if any(other != size for other, _ in forms):
    size = (wanted, wanted)
  return size, 'L' if all(mode in ('1', 'L') for _, mode in forms) else 'RGB'


def _open(name, path, use):
  """The result of `use` on an opened image."""
  from PIL import Image

  try:
    with Image.open(path) as opened:
      return use(opened)
  except (OSError, SyntaxError, ValueError) as error:
    raise ConfigError(f'data.name={name}: {path} cannot be read ({error}); repair or remove it') from error
