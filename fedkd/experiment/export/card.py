"""The card of an exported model: README.md with the front matter that the Hugging Face hub reads."""

import json

from fedkd.experiment.export.trained import Trained

FLAX = """import fedkd

model, variables = fedkd.load_exported('.')
logits, _ = model.apply(variables, images, False)
"""
TORCH = """from safetensors.torch import load_file

network.load_state_dict(load_file('model.safetensors'))
constants = load_file('preprocessing.safetensors')
logits = network.eval()((images - constants['mean']) * constants['scale'])
"""
LAYOUT = {'flax': 'uint8[B, H, W, channels]', 'torch': 'float32[B, channels, H, W], with numbers of 0 to 255'}


def card(one: Trained, licence: str, to: str) -> str:
  """The text of README.md. `licence`: of the weights, an identifier of the hub; `to`: 'flax' or 'torch'."""
  facts = '\n'.join(f'| {name} | {value} |' for name, value in one.facts.items())
  accuracy = 'not measured: the run evaluated other clients' if one.accuracy is None else f'{one.accuracy:.4f}'
  return f"""---
{_front_matter(one, licence, to)}
---

# {one.facts['architecture']}, {one.facts['method']}, client {one.facts['client'].split()[0]}

An image classifier that one client of a federation learned with {one.facts['method']} on {one.data}, by
fedkd. It knows the classes {', '.join(one.class_names)}.

| | |
| --- | --- |
| test accuracy | {accuracy} |
{facts}
| licence | {licence} |

The accuracy is on the test set of the run, after its last round. What the data were licensed for is not known here.

```python
{FLAX if to == 'flax' else TORCH}```

`images` are raw, {LAYOUT[to]}, each of shape {_shape(one, to)}.
{_preprocessing(to)}
"""


def _shape(one, to) -> list[int]:
  height_first = list(one.shape)
  return height_first if to == 'flax' or len(height_first) != 3 else [height_first[2], *height_first[:2]]


def _preprocessing(to) -> str:
  if to == 'flax':
    return 'The model subtracts the mean and scales them itself, with the constants of its training.'
  return 'The constants are those of its training.'


def _front_matter(one, licence, to) -> str:
  """JSON is YAML."""
  fields = {
    'library_name': 'fedkd' if to == 'flax' else 'pytorch',
    'license': licence,
    'pipeline_tag': 'image-classification',
    'tags': ['fedkd', 'federated-learning', 'knowledge-distillation'],
  }
  if one.accuracy is not None:
    result = {
      'task': {'type': 'image-classification'},
      'dataset': {'type': one.data, 'name': one.data},
      'metrics': [{'type': 'accuracy', 'value': one.accuracy}],
    }
    fields['model-index'] = [{'name': one.facts['architecture'], 'results': [result]}]
  return '\n'.join(f'{name}: {json.dumps(value)}' for name, value in fields.items())
