"""Which data sets are available, and how to get the others."""

import difflib
import importlib.util
import json
import os
import pathlib
from typing import NamedTuple

from fedkd.data import folders, sources
from fedkd.data.tfds import tfds_folder
from fedkd.errors import ConfigError, in_a_sentence, reason_of

EMBEDDED = {
  'mnist_5k': '5 000 real MNIST images that come with a dependency',
  'rotated_mnist_5k': '1 000 of them at 0, 20, 40 and 60 degrees',
}
# What the shipped configs and tables name.
FROM_TFDS = ('mnist', 'cifar10', 'cifar100', 'emnist/letters')
FOLDERS = {
  'domains:pacs': 'PACS: pacs/{art_painting,cartoon,photo,sketch}/CLASS/IMAGE',
  'domains:officehome': 'Office-Home: officehome/{Art,Clipart,Product,Real World}/CLASS/IMAGE',
  'folder:cinic10': 'CINIC-10 as distributed: cinic10/{train,test}/CLASS/IMAGE',
}
YOURS = {
  'npz:FILE': 'x_train, y_train, x_test, y_test (and origin), written by numpy.savez',
  'table:FILE': 'a column to learn, others to learn from (and one of owners), CSV or Parquet',
  'hf:PATH': 'what the library datasets has saved or finds on the Hugging Face hub',
}
READABLE = ('array_record', 'parquet')  # without TensorFlow


class Entry(NamedTuple):
  """A data set, named as in `data.name`."""

  name: str
  there: bool
  note: str  # what it is and where, or how to get it


def entries(directory: str | None = None) -> list[Entry]:
  """What is embedded, what is in the folders of prepared sets and of images, and what the shipped configs need.

  Args:
    directory: as `data.dir`; None is $TFDS_DATA_DIR or TFDS's own default.
  """
  prepared, found = _prepared(tfds_folder(directory)), _stored(directory)
  mnist = 'the same 1 000 digits at four angles, made of mnist'
  there = [
    *(Entry(name, True, note) for name, note in EMBEDDED.items()),
    *(Entry(name, *found_there) for name, found_there in prepared.items()),
    *([Entry('rotated_mnist', True, mnist)] if prepared.get('mnist', (False,))[0] else []),
    *(Entry(name, True, str(path)) for name, path in found.items()),
  ]
  missing = [Entry(name, False, f'fedkd data prepare {name}') for name in FROM_TFDS if name not in prepared]
  if not prepared.get('mnist', (False,))[0]:
    missing.append(Entry('rotated_mnist', False, f'{mnist}: fedkd data prepare mnist'))
  missing += [
    Entry(name, False, f'{note}, from its authors, in $FEDKD_IMAGES')
    for name, note in FOLDERS.items()
    if name not in found
  ]
  return sorted(there, key=lambda entry: not entry.there) + missing


def table(listed: list[Entry]) -> str:
  """Entries as lines of text."""
  width = max(len(entry.name) for entry in listed)
  line = lambda entry: f'{entry.name:{width}}  {"there  " if entry.there else "missing"}  {entry.note}'
  others = [f'{name:{width}}  yours    {note}' for name, note in YOURS.items()]
  return '\n'.join([*map(line, listed), *others])


def prepare(name: str, directory: str | None = None) -> str:
  """Prepares a set: decodes it into the cache if it is available, else lets TensorFlow Datasets prepare it.

  Returns:
    A sentence with the counts of the set.

  Raises:
    ConfigError: with the command to run, if TensorFlow is not installed or TensorFlow Datasets does not have the set;
      and for a set that cannot be read.
  """
  listed = {entry.name: entry for entry in entries(directory)}
  entry = listed.get(name)
  if entry and not entry.there and name in FOLDERS:
    raise ConfigError(f'data.name={name} cannot be fetched for you: put {entry.note}')
  if ':' not in name and not (entry and entry.there):
    _build('mnist' if name == 'rotated_mnist' else name, tfds_folder(directory))
  counts = sources.counts(sources.load(name, directory))
  return f'{name}: {", ".join(f"{count:,} {what}" for what, count in counts.items())}'


def _prepared(folder) -> dict:
  """{name: (readable, note)} of the sets in a TFDS folder, NAME[/CONFIG]/VERSION/dataset_info.json."""
  found = {}
  for path in sorted([*folder.glob('*/*/dataset_info.json'), *folder.glob('*/*/*/dataset_info.json')]):
    name = path.parent.parent.relative_to(folder).as_posix()
    try:
      form = json.loads(path.read_text()).get('fileFormat', 'tfrecord')
    except ValueError:
      found[name] = False, f'{path} is damaged: prepare the set again'
      continue
    remedy = f'{path.parent} is {form}, which needs TensorFlow to be read: tfds convert_format, or prepare it again'
    found[name] = (True, str(path.parent)) if form in READABLE else (False, remedy)
  return found


def _stored(directory) -> dict:
  """{data.name: path} of the image folders and .npz files in `directory` and $FEDKD_IMAGES."""
  found: dict = {}
  roots = [root for root in (directory, os.environ.get('FEDKD_IMAGES')) if root]
  for root in dict.fromkeys(pathlib.Path(root).expanduser() for root in roots):
    for path in sorted(root.iterdir()) if root.is_dir() else ():
      if kind := _kind(path):
        found.setdefault(f'{kind}:{path.name}', path)
  return found


def _kind(path) -> str | None:
  """The `data.name` of a file or folder; None if it is not a data set. Judged by the names of folders, not by
  images."""
  if path.suffix == '.npz' and path.is_file():
    return 'npz'
  below = {sub.name: {inner.name for inner in sub.iterdir() if inner.is_dir()} for sub in folders.folders_in(path)}
  if below.keys() >= set(sources.SPLITS):
    return 'folder' if below['train'] else None
  classes = list(below.values())
  return 'domains' if len(classes) > 1 and classes[0] and all(each == classes[0] for each in classes) else None


def _build(name, folder):
  """Downloads a set and writes it as array_record.

  Raises:
    ConfigError: without TensorFlow, or if the preparation fails.
  """
  if importlib.util.find_spec('tensorflow') is None:
    known = [*EMBEDDED, 'rotated_mnist', *FROM_TFDS, *FOLDERS]
    near = difflib.get_close_matches(name[:60], known, 3)
    guess = f'is it {" or ".join(near)}?' if near else f'it knows {", ".join(known)}'
    advice = (
      ('', 'Run once') if name in known else (f', and fedkd does not know it ({guess})', 'If that has it, run once')
    )
    tools = 'python3 -m venv tf && tf/bin/pip install tensorflow tensorflow-datasets array-record'
    raise ConfigError(
      f'data.name={name} is not in {folder} as array_record or parquet{advice[0]}, and preparing it needs '
      f'TensorFlow, which is not installed here (reading it does not). {advice[1]}, in an environment of its own: '
      f'{tools} && tf/bin/tfds build {name} --file_format=array_record --data_dir={folder}'
    )
  import tensorflow_datasets as tfds

  failed = f'data.name={name} could not be prepared in {folder}'
  with in_a_sentence(lambda error: f'{failed} ({reason_of(error)}); check the name, or try again'):
    tfds.builder(name, data_dir=folder, file_format='array_record').download_and_prepare()
