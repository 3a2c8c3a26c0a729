"""An exported model against the run it comes from; bad input in one sentence; predictions for files."""

import json
import pathlib
import re
import shutil

import jax
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

import fedkd
from fedkd import analysis, cli, experiment, models
from fedkd.analysis import results
from fedkd.errors import ConfigError
from fedkd.experiment.export import card
from fedkd.experiment.export.trained import trained
from fedkd.experiment.predict import predict
from fedkd.experiment.storage import loading
from fedkd.watch import states, view

STORED = pathlib.Path(__file__).parents[2] / 'fixtures' / 'run_88492e2'
SUMMARY = json.loads((STORED / 'run' / 'summary.json').read_text())


@pytest.fixture(scope='module')
def test_set():
  with np.load(STORED / 'images.npz') as arrays:
    return arrays['x_test'], arrays['y_test']


@pytest.fixture
def run(monkeypatch):
  monkeypatch.setenv('FEDKD_IMAGES', str(STORED))
  return STORED / 'run'


@pytest.fixture
def exported(run, tmp_path):
  return fedkd.export(run, 1, tmp_path / 'exported', seed=1, licence='cc0-1.0')


def test_logits_are_those_of_the_run_without_its_data(run, exported, test_set, monkeypatch):
  model, variables = experiment.load(run, 1, 1)
  monkeypatch.setenv('FEDKD_IMAGES', str(exported))  # where nothing is
  again, restored = fedkd.load_exported(exported)
  jax.tree.map(np.testing.assert_array_equal, dict(variables), restored)
  np.testing.assert_array_equal(
    *(m.apply(v, test_set[0], False)[0] for m, v in ((model, variables), (again, restored)))
  )


def test_the_card_says_what_was_measured(exported, test_set):
  text = (exported / 'README.md').read_text()
  _, front, body = text.split('---\n', 2)
  fields = {name: json.loads(value) for name, value in (line.split(': ', 1) for line in front.splitlines())}
  assert fields['license'] == 'cc0-1.0'
  model, variables = fedkd.load_exported(exported)
  accuracy = np.mean(np.argmax(model.apply(variables, test_set[0], False)[0], -1) == test_set[1])
  assert fields['model-index'][0]['results'][0]['metrics'][0]['value'] == pytest.approx(accuracy)
  assert f'| test accuracy | {accuracy:.4f} |' in body
  assert '| method | fedhe |' in body
  with np.load(STORED / 'run' / 'split.npz') as split:
    sizes = split['seed1_private_sizes'] + split['seed1_shared_sizes']
  assert f'| training examples | {sizes[1]} of its own, {sizes[0] + sizes[1]} of all clients |' in body
  assert str(STORED) not in text  # folders of this machine


def test_the_card_has_no_accuracy_of_more_than_the_model(run, monkeypatch):
  """As where clients predict with an ensemble, or by prototypes."""
  whole = loading.loaded
  other = lambda *given: (*(found := whole(*given))[:3], found[3]._replace(predict=lambda *_: None))
  monkeypatch.setattr('fedkd.experiment.export.trained.loaded', other)
  text = card.card(trained(run, 1, 1), 'cc0-1.0', 'flax')
  assert 'model-index' not in text
  assert '| test accuracy | not measured: in the run the client predicted with more than this network |' in text


def test_the_card_has_the_accuracy_on_own_test_rows_and_says_whose_the_others_are(run, monkeypatch):
  said = card.card(trained(run, 1, 1), 'cc0-1.0', 'flax')
  assert 'The test accuracies are on the shared test set, after the last round.' in said
  assert 'own test rows' not in said
  own = {'final_local': [0.5, 0.25], 'final_local_per_client': [[0.5, 0.5], [0.125, 0.375]]}
  monkeypatch.setattr('fedkd.experiment.export.trained.results.summary', lambda path: SUMMARY | own)
  said = card.card(trained(run, 1, 1), 'cc0-1.0', 'flax')
  assert 'The test accuracies are on the test rows of all clients together, after the last round.' in said
  assert '| accuracy on its own test rows | 0.3750 |' in said


def test_the_card_of_a_classifier_of_tokens_does_not_speak_of_images(run):
  one = trained(run, 1)
  one = one._replace(shape=(7,), dtype='int32', module=models.EmbeddingBag(classes=3))
  said = card.card(one, 'unknown', 'flax')
  assert 'image-' not in said
  assert 'An image' not in said
  assert '`images`' not in said
  assert 'int32[B, 7].\nThey are used as they are.' in said


def save_image(path, image):
  Image.fromarray(image.squeeze(-1)).save(path)
  return path


def test_predictions_are_those_of_the_logits(run, exported, test_set, tmp_path, capsys):
  paths = [save_image(tmp_path / f'{i}.png', image) for i, image in enumerate(test_set[0][:3])]
  model, variables = experiment.load(run, 1, 1)
  shares = jax.nn.softmax(model.apply(variables, test_set[0][:3], False)[0])
  for found in (predict(run, paths, 1, 1), predict(exported, paths)):
    assert [one.label for one in found] == list(map(str, np.argmax(shares, -1)))
    np.testing.assert_allclose([one.probability for one in found], np.max(shares, -1), rtol=1e-6)
  cli.main(['predict', str(exported), *map(str, paths)])
  assert capsys.readouterr().out.splitlines()[2] == f'{paths[2]}\t{found[2].label}\t{found[2].probability:.4f}'


def test_files_are_no_images_of_other_numbers(exported, run, tmp_path, monkeypatch):
  described = json.loads((exported / 'config.json').read_text())
  assert described['input_dtype'] == 'uint8'
  (exported / 'config.json').write_text(json.dumps({**described, 'input_dtype': 'float32'}))
  path = save_image(tmp_path / 'a.png', np.zeros((6, 6, 1), np.uint8))
  with pytest.raises(ConfigError, match=r'the model takes images of float32, .*; train on uint8, or ask it by'):
    predict(exported, [path])
  one = trained(run, 1, 1)._replace(dtype=np.dtype('float32'))
  assert 'numbers of 0 to 255' not in card.card(one, 'torch', 'mit')
  assert 'numbers of 0 to 255' in card.card(trained(run, 1, 1), 'torch', 'mit')


def test_an_image_is_seen_upright(exported, tmp_path):
  """As a camera writes it that was turned."""
  pixels, exif = np.arange(36, dtype=np.uint8).reshape(6, 6) * 7, Image.Exif()
  exif[0x0112] = 6
  Image.fromarray(np.ascontiguousarray(np.rot90(pixels))).save(tmp_path / 'lying.png', exif=exif)
  lying, upright = predict(exported, [tmp_path / 'lying.png', save_image(tmp_path / 'a.png', pixels[..., None])])
  assert lying[1:] == upright[1:]
  Image.new('L', (5, 8)).save(tmp_path / 'large.png', exif=exif)
  with pytest.raises(ConfigError, match=r'large\.png is 8x5 pixels and the model takes 6x6'):
    predict(exported, [tmp_path / 'large.png'])


def test_images_are_resized_where_that_is_asked_for(exported, tmp_path):
  large = save_image(tmp_path / 'large.png', np.kron(np.eye(6), np.ones((2, 2)))[..., None].astype(np.uint8) * 200)
  small = save_image(tmp_path / 'small.png', np.eye(6)[..., None].astype(np.uint8) * 200)
  assert predict(exported, [large], resize=True)[0].probability == predict(exported, [small])[0].probability


def _unfinished(run, folder):
  shutil.copytree(run, folder / 'unfinished')
  (folder / 'unfinished' / 'summary.json').unlink()
  return folder / 'unfinished'


def _text(folder):
  (folder / 'text.png').write_text('no image')
  return folder / 'text.png'


MISTAKES = {
  'client': (lambda run, to: fedkd.export(run, 2, to / 'new'), 'client=2 is unknown; the run has clients 0 to 1'),
  'seed': (lambda run, to: fedkd.export(run, 0, to / 'new', seed=5), 'seed=5 is unknown; the run has seeds 0, 1'),
  'to': (lambda run, to: fedkd.export(run, 0, to / 'new', to='onnx'), "to='onnx' is unknown; choose"),
  'out': (lambda run, to: fedkd.export(run, 0, STORED), 'is not an empty directory; give a new one'),
  'run': (lambda run, to: fedkd.export(_unfinished(run, to), 0, to / 'new'), 'holds no finished run'),
  'licence': (lambda run, to: fedkd.export(run, 0, to / 'new', licence='a\nb'), 'must be one line of text'),
  'workdir': (
    lambda run, to: experiment.run(experiment.read_config(run), fedkd.export(run, 0, to / 'model')),
    'model holds an exported model; choose another workdir',
  ),
  'watch': (
    lambda run, to: view.watch(fedkd.export(run, 0, to / 'model'), once=True),
    'holds no run (it is an exported model, which fedkd.load_exported loads',
  ),
  'no model': (lambda run, to: fedkd.load_exported(to), 'holds no exported model'),
  'size': (
    lambda run, to: predict(run, [save_image(to / 'a.png', np.zeros((5, 8, 1), np.uint8))]),
    'a.png is 8x5 pixels and the model takes 6x6; give images of that size',
  ),
  'no image': (lambda run, to: predict(run, [_text(to)]), 'text.png is not an image that can be read'),
  'no file': (lambda run, to: predict(run, [to / 'none.png']), 'none.png is not an image that can be read'),
}


@pytest.mark.parametrize(('made', 'sentence'), MISTAKES.values(), ids=MISTAKES)
def test_bad_input_is_refused_in_one_sentence(run, tmp_path, made, sentence):
  with pytest.raises(ConfigError, match=sentence.replace('(', r'\(')) as refused:
    made(run, tmp_path)
  assert '\n' not in str(refused.value)
  assert not (tmp_path / 'new').exists()


def _changed(path, change):
  """An export whose config.json, as data, or weights, by name, `change` has changed."""
  config, weights = json.loads((path / 'config.json').read_text()), load_file(path / 'model.safetensors')
  change(config, weights)
  (path / 'config.json').write_text(json.dumps(config))
  save_file(weights, path / 'model.safetensors')


KERNEL = 'params.net.layers_0.kernel'
DAMAGES = {
  'no shape': (lambda config, weights: config.pop('input_shape'), 'config.json is damaged (it has no input_shape)'),
  'no labels': (lambda config, weights: config.pop('num_labels'), 'config.json is damaged (it has no num_labels)'),
  'no names': (lambda config, weights: config.pop('id2label'), 'config.json is damaged (it has no id2label)'),
  'a name too few': (lambda config, weights: config['id2label'].pop('2'), "config.json is damaged ('2')"),
  'a class too few': (lambda config, weights: config.update(num_labels=2), 'do not fit (3 logits, and names of 2'),
  'no kernel': (lambda config, weights: weights.pop(KERNEL), 'model.safetensors and config.json do not fit ('),
  'another width': (
    lambda config, weights: weights.update({KERNEL: np.zeros((36, 9), np.float32)}),
    'model.safetensors and config.json do not fit (',
  ),
  'another shape': (lambda config, weights: config.update(input_shape=[5, 6, 1]), 'do not fit ('),
  'no dtype': (lambda config, weights: config.update(input_dtype='bytes?'), 'config.json is damaged ('),
}


@pytest.mark.parametrize(('change', 'sentence'), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_export_is_refused_in_one_sentence(exported, tmp_path, change, sentence):
  _changed(exported, change)
  image = save_image(tmp_path / 'a.png', np.zeros((6, 6, 1), np.uint8))
  for use in (fedkd.load_exported, lambda path: predict(path, [image])):
    with pytest.raises(ConfigError, match=re.escape(sentence)) as refused:
      use(exported)
    assert '\n' not in str(refused.value)
    assert str(refused.value).endswith('; export it again')


def test_an_export_is_taken_for_no_run(run, exported):
  """Though it has a config.json, as a run has."""
  shutil.copytree(run, exported.parent / 'run')
  assert [state.run for state in states.below(exported.parent)] == ['run']
  what = r'exported holds no run \(it is an exported model, which fedkd\.load_exported loads\); give '
  for read in (experiment.load, analysis.runs, fedkd.report, results.summary):
    with pytest.raises(ConfigError, match=what):
      read(exported)


def test_code_of_others_is_named_and_not_imported(exported):
  config = json.loads((exported / 'config.json').read_text())
  config['module']['fields']['net']['module'] = 'this:Zen'
  (exported / 'config.json').write_text(json.dumps(config))
  with pytest.raises(ConfigError, match=r"the model is 'this:Zen', code outside fedkd.*, on the command line --trust"):
    fedkd.load_exported(exported)
