"""Files of data and weights that are damaged or made to hurt: one sentence that names the file, at once."""

import io
import json
import os
import zipfile

import numpy as np
import pytest
from PIL import Image

from fedkd.data import sources
from fedkd.errors import ConfigError
from fedkd.models import pretrained
from launch.tools.fuzz import directories

GREY = np.arange(6 * 16, dtype=np.uint8).reshape(6, 4, 4)


def npz(path, **changes):
  label = np.arange(6) % 3
  np.savez(path, **{'x_train': GREY, 'y_train': label, 'x_test': GREY, 'y_test': label, **changes})
  return f'npz:{path}'


def with_member(path, name, content):
  """An .npz with one entry replaced by raw bytes."""
  npz(path)
  with zipfile.ZipFile(path) as old:
    entries = {one: old.read(one) for one in old.namelist() if one != name}
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as new:
    for one, held in {**entries, name: content}.items():
      new.writestr(one, held)
  return f'npz:{path}'


def header(shape, dtype='|u1') -> bytes:
  file = io.BytesIO()
  np.lib.format.write_array_header_1_0(file, {'descr': dtype, 'fortran_order': False, 'shape': shape})
  return file.getvalue()


FILES = {
  'huge label': (lambda p: npz(p, y_train=np.array([2**63, 1, 2, 0, 1, 2], np.uint64)), r'y_train has the label 92233'),
  'unknown label': (lambda p: npz(p, y_test=np.array([-1] * 6)), r'test label -1 has no training example'),
  'no array': (lambda p: with_member(p, 'x_train', b'text'), r'cannot be read \(.*\); give a file of x_train'),
  'object array': (lambda p: npz(p, x_train=np.array([{}], object)), r'says object\[1\], which its'),
  'terabyte': (lambda p: with_member(p, 'x_train.npy', header((10**6, 1000, 1000))), r'which its \d+ bytes do not'),
  'negative shape': (
    lambda p: with_member(p, 'x_train.npy', header((-1, 4, 4)) + bytes(16)),
    r'says uint8\[-1, 4,',
  ),
  'too many': (lambda p: npz(p, **{f'a{i}': np.zeros(1) for i in range(70)}), r'it has 74 entries, more than 64'),
}


@pytest.mark.parametrize(('make', 'match'), FILES.values(), ids=FILES)
def test_files_of_arrays_are_refused_in_one_sentence_with_their_name(tmp_path, make, match):
  name = make(tmp_path / 'a.npz')
  with pytest.raises(ConfigError, match=match) as refused:
    sources.load(name)
  assert name.partition(':')[2] in str(refused.value)
  assert '\n' not in str(refused.value)


def test_a_name_of_two_lines_is_told_in_one(tmp_path):
  (tmp_path / 'a.npz').write_bytes(b'')
  with zipfile.ZipFile(tmp_path / 'a.npz', 'w') as archive:
    archive.writestr('y\n_test.npy', b'')
  with pytest.raises(ConfigError, match=r'has no x_train, y_train, x_test, y_test, only y _test; give a file of'):
    sources.load(f'npz:{tmp_path / "a.npz"}')


def test_what_unpacks_to_more_than_the_limit_is_refused_before_it_is_unpacked(tmp_path):
  path, size = tmp_path / 'a.npz', 3_000_000
  image = np.zeros((size // 16, 4, 4), np.uint8)
  np.savez_compressed(path, x_train=image, y_train=np.zeros(1), x_test=GREY, y_test=np.zeros(1))
  assert path.stat().st_size < 20_000
  with pytest.raises(ConfigError, match='GB unpacked, more than'):
    sources.load(f'npz:{path}', limit=1e6)


def test_five_channels_are_resized_one_by_one(tmp_path):
  image = np.arange(6 * 16 * 5, dtype=np.uint8).reshape(6, 4, 4, 5)
  source = sources.load(npz(tmp_path / 'a.npz', x_train=image, x_test=image))
  small = sources.resize(source, 2)
  assert small.train_image.shape == (6, 2, 2, 5)
  alone = sources.resize(source._replace(train_image=image[..., 3:4], test_image=image[..., 3:4]), 2)
  np.testing.assert_array_equal(small.train_image[..., 3], alone.train_image[..., 0])


def folder(root):
  """root/{train,test}/{a,b}/0.png of grey 4x4 images, and the place of one more."""
  for part in ('train', 'test'):
    for name in 'ab':
      (root / part / name).mkdir(parents=True)
      Image.fromarray(GREY[0]).save(root / part / name / '0.png')
  return root / 'train' / 'a' / '1'


def image(path, array, suffix):
  Image.fromarray(array).save(path.with_suffix(suffix))


def broken_link(path):
  path.with_suffix('.png').symlink_to(path)


def loop(path):
  path.with_suffix('.png').symlink_to(path.with_suffix('.png'))


ODD_IMAGES = {
  '16 bits': (lambda p: image(p, np.full((4, 4), 300, np.uint16), '.png'), r'1.png has pixels of mode I;16, more than'),
  'floats': (lambda p: image(p, np.full((4, 4), 0.5, np.float32), '.tif'), r'1.tif has pixels of mode F, more than 8'),
  '32 bits': (lambda p: image(p, np.full((4, 4), 70000, np.int32), '.tif'), r'1.tif has pixels of mode I, more than'),
  'pipe': (lambda p: os.mkfifo(p.with_suffix('.png')), r'1.png is not a file \(a broken link, a pipe or a folder\)'),
  'broken link': (broken_link, r'1.png is not a file'),
  'loop': (loop, r'1.png is not a file'),
  'folder': (lambda p: p.with_suffix('.png').mkdir(), r'1.png is not a file'),
  'wide': (lambda p: image(p, np.zeros((1, 5000), np.uint8), '.png'), r'1.png is 5000x1 pixels; give sides of 1 to'),
  'bomb': (lambda p: p.with_suffix('.pgm').write_bytes(b'P5 60000 60000 255\n'), r'1.pgm cannot be read \(Image size'),
}


@pytest.mark.parametrize(('add', 'match'), ODD_IMAGES.values(), ids=ODD_IMAGES)
def test_images_that_would_be_read_wrongly_or_never_are_refused(tmp_path, monkeypatch, add, match):
  monkeypatch.setenv('FEDKD_CACHE', str(tmp_path / 'cache'))
  add(folder(tmp_path / 'set'))
  with pytest.raises(ConfigError, match=match) as refused:
    sources.load(f'folder:{tmp_path / "set"}')
  assert '\n' not in str(refused.value)


def test_images_are_counted_before_they_are_decoded(tmp_path, monkeypatch):
  monkeypatch.setenv('FEDKD_CACHE', str(tmp_path / 'cache'))
  folder(tmp_path / 'set')
  with pytest.raises(ConfigError, match=r'has 0.0 GB of examples, more than data.limit=6.3e-08; raise it'):
    sources.load(f'folder:{tmp_path / "set"}', limit=63)
  assert sources.load(f'folder:{tmp_path / "set"}', limit=64).train_image.shape == (2, 4, 4, 1)


@pytest.mark.parametrize('make', [os.mkfifo, lambda p: p.mkdir(), lambda p: None])
def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path, make):
  data = lambda path: sources.load(f'{path.suffix[1:]}:{path}')
  for suffix, read in (('npz', data), ('safetensors', pretrained.read)):
    make(tmp_path / f'a.{suffix}')
    with pytest.raises(ConfigError, match=rf'a\.{suffix} cannot be read'):
      read(tmp_path / f'a.{suffix}')


def safetensors(entries, data=bytes(16)) -> bytes:
  text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
  return len(text).to_bytes(8, 'little') + text + data


def tensor(shape, offsets, dtype='F32'):
  return {'dtype': dtype, 'shape': shape, 'data_offsets': offsets}


WEIGHTS = {
  'negative size': (safetensors({'a': tensor([-1, 4], [0, -16])}), r'invalid value: integer `-1`, expected usize'),
  'negative shape': (safetensors({'a': tensor([-2, -2], [0, 16])}), r'invalid value: integer `-2`, expected usize'),
  'overlap': (safetensors({'a': tensor([4], [0, 16]), 'b': tensor([2], [8, 16])}), r'invalid offset for tensor `b`'),
  'gap': (safetensors({'a': tensor([2], [0, 8])}), r'incomplete metadata, file not fully covered'),
  'nested': (safetensors(b'[' * 200_000), r'cannot be read'),
  'long header': (bytes([255] * 8) + bytes(8), r'header too large'),
  'fraction': (safetensors({'a': tensor([4], [0, 16.0])}), r'invalid type: floating point `16.0`, expected usize'),
  'list': (safetensors([]), r'cannot be read'),
}


@pytest.mark.parametrize(('content', 'match'), WEIGHTS.values(), ids=WEIGHTS)
def test_weights_are_refused(tmp_path, content, match):
  (tmp_path / 'a.safetensors').write_bytes(content)
  with pytest.raises(ConfigError, match=rf'a.safetensors cannot be read .*{match}|{match}'):
    pretrained.read(tmp_path / 'a.safetensors')


def features(path, **changes):
  """features.json of a prepared set, of which its image feature is another."""
  path.mkdir(parents=True)
  prefix = 'tensorflow_datasets.core.features.'
  image = {'pythonClassName': f'{prefix}image_feature.Image', **changes}
  whole = {'pythonClassName': f'{prefix}features_dict.FeaturesDict', 'featuresDict': {'features': {'image': image}}}
  (path / 'features.json').write_text(json.dumps(whole))


@pytest.mark.parametrize('place', ['some/1.0.0', 'some/colour/1.0.0'])
@pytest.mark.parametrize('changes', [
  {'pythonClassName': 'evil.Feature'},
  {'pythonClassName': 'tensorflow_datasetsx.evil.Feature'},
  {'sequence': {'feature': {'python_class_name': 'evil.Feature'}}},
  {'type': 'evil.Feature', 'content': {}},
])  # fmt: skip
def test_a_prepared_set_executes_nothing_that_it_names(tmp_path, monkeypatch, place, changes):
  """TensorFlow Datasets would import the module."""
  (tmp_path / 'evil.py').write_text(f'import pathlib\npathlib.Path({str(tmp_path / "executed")!r}).touch()\n')
  monkeypatch.syspath_prepend(tmp_path)
  features(tmp_path / 'sets' / place, **changes)
  with pytest.raises(ConfigError, match=r"names code outside TensorFlow Datasets \('.*evil.Feature'\), which would be"):
    sources.load('some/colour' if 'colour' in place else 'some', str(tmp_path / 'sets'))
  assert not (tmp_path / 'executed').exists()


@pytest.mark.parametrize('name', ['huggingface:mnist', 'somebody:mnist', 'mnist/key=1', '../mnist'])
def test_names_that_would_fetch_code_are_no_prepared_sets(name, tmp_path):
  with pytest.raises(ConfigError, match=r'a name is NAME, NAME/CONFIG or NAME:VERSION'):
    sources.load(name, str(tmp_path))


def test_features_that_are_no_json_are_one_sentence(tmp_path):
  features(tmp_path / 'some' / '1.0.0')
  (tmp_path / 'some' / '1.0.0' / 'features.json').write_text('[' * 100_000)
  with pytest.raises(ConfigError, match=r'features\.json is damaged \(.*\); copy the set again'):
    sources.load('some', str(tmp_path))


@pytest.fixture
def prepared(tmp_path, own_cache):
  """The folder of a set that TensorFlow Datasets can read."""
  pytest.importorskip('array_record')
  directories.prepare(tmp_path / 'sets')
  return tmp_path / 'sets'


@pytest.mark.slow
def test_a_prepared_set_without_names_for_its_labels_was_a_finding(prepared):
  assert sources.load('tiny', str(prepared)).class_names == ('a', 'b', 'c')
  (prepared / 'tiny' / '1.0.0' / 'label.labels.txt').write_text('a\n')
  with pytest.raises(
    ConfigError, match=r'are damaged or incomplete \(.* is not a label of 1 classes\); copy them again'
  ):
    sources.load('tiny', str(prepared))


def test_a_long_name_of_code_was_a_finding(tmp_path):
  features(tmp_path / 'some' / '1.0.0', pythonClassName='evil.' + '[' * 5000)
  with pytest.raises(ConfigError, match=r'characters\)\), which would be executed') as refused:
    sources.load('some', str(tmp_path))
  assert len(str(refused.value)) < 500 + len(str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize('shape', [('3', '4', '1'), ('4', '8', '1')])
def test_images_of_another_shape_than_the_features_were_a_finding(prepared, shape):
  path = prepared / 'tiny' / '1.0.0' / 'features.json'
  found = json.loads(path.read_text())
  found['featuresDict']['features']['image']['image']['shape']['dimensions'] = shape
  path.write_text(json.dumps(found))
  with pytest.raises(ConfigError, match=r'are damaged or incomplete \(an image is \[4, 4, 1\], not \['):
    sources.load('tiny', str(prepared))
