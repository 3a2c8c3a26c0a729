"""The card of an exported model: README.md with the front matter that the Hugging Face hub reads."""

import json

from fedkd.experiment.export.trained import Trained

FLAX = """import fedkd

model, variables = fedkd.load_exported('.')
logits, _ = model.apply(variables, {examples}, False)
"""
TORCH = """from safetensors.torch import load_file

network.load_state_dict(load_file('model.safetensors'))
constants = load_file('preprocessing.safetensors')
logits = network.eval()(({examples} - constants['mean']) * constants['scale'])
"""


def card(one: Trained, licence: str, to: str) -> str:
  """The text of README.md. `licence`: of the weights, an identifier of the hub; `to`: 'flax' or 'torch'."""
  facts = '\n'.join(f'| {name} | {value} |' for name, value in one.facts.items())
  accuracy = f'not measured: {one.unmeasured}' if one.accuracy is None else f'{one.accuracy:.4f}'
  return f"""---
{_front_matter(one, licence, to)}
---

# {one.facts['architecture']}, {one.facts['method']}, client {one.facts['client'].split()[0]}

{'An image' if _of_images(one) else 'A'} classifier that one client of a federation learned with {one.facts['method']}
on {one.data}, by fedkd. It knows the classes {', '.join(one.class_names)}.

| | |
| --- | --- |
| test accuracy | {accuracy} |
{facts}
| licence | {licence} |

The test accuracies are on {one.tested_on}, after the last round. What the data were licensed for is not known here.

```python
{_code(one, to)}```

{_layout(one, to)}
{_preprocessing(one, to)}
"""


def _of_images(one) -> bool:
  return len(one.shape) == 3


def _code(one, to) -> str:
  return (FLAX if to == 'flax' else TORCH).replace('{examples}', 'images' if _of_images(one) else 'examples')


def _layout(one, to) -> str:
  """What the code takes."""
  if not _of_images(one):
    dtype = one.dtype if to == 'flax' else 'float32'
    return f'`examples` are as in the data set, {dtype}[B, {", ".join(map(str, one.shape))}].'
  if to == 'flax':
    return f'`images` are raw, {one.dtype}[B, H, W, channels], each of shape {list(one.shape)}.'
  first = [one.shape[2], *one.shape[:2]]
  scale = ' with numbers of 0 to 255,' if str(one.dtype) == 'uint8' else ''
  return f'`images` are raw, float32[B, channels, H, W],{scale} each of shape {first}.'


def _preprocessing(one, to) -> str:
  if getattr(one.module, 'mean', None) is None:
    return 'They are used as they are.'
  if to == 'flax':
    return 'The model subtracts the mean and scales them itself, with the constants of its training.'
  return 'The constants are those of its training.'


def _front_matter(one, licence, to) -> str:
  """JSON is YAML."""
  fields = {
    'library_name': 'fedkd' if to == 'flax' else 'pytorch',
    'license': licence,
    **({'pipeline_tag': 'image-classification'} if _of_images(one) else {}),
    'tags': ['fedkd', 'federated-learning', 'knowledge-distillation'],
  }
  if one.accuracy is not None:
    result = {
      'task': {'type': 'image-classification' if _of_images(one) else 'classification'},
      'dataset': {'type': one.data, 'name': one.data},
      'metrics': [{'type': 'accuracy', 'value': one.accuracy}],
    }
    fields['model-index'] = [{'name': one.facts['architecture'], 'results': [result]}]
  return '\n'.join(f'{name}: {json.dumps(value)}' for name, value in fields.items())
