"""A page per public module, and their index by task."""

import importlib
import inspect
from typing import NamedTuple

from reference import fields
from reference.markdown import first_sentence, flow, markdown, table
from reference.signature import signature


class Task(NamedTuple):
  """Something that one wants to do, and the modules for it."""

  title: str
  text: str
  modules: tuple[str, ...]


TASKS = (
  Task(
    'Build a federation',
    'Arrays, who owns which of their rows, and a model for each client. [Data](../guides/data.md) shows it.',
    (
      'fedkd.federation',
      'fedkd.parts',
      'fedkd.data.splits.partition',
      'fedkd.data.splits.skews',
      'fedkd.data.splits.personal_splits',
      'fedkd.data.splits.stored',
      'fedkd.data.splits.flower',
    ),
  ),
  Task(
    'Choose models',
    'Any Flax module will do; these are at hand. [A model](../guides/models.md) shows what a module may return.',
    ('fedkd.models', 'fedkd.models.base', 'fedkd.models.layers'),
  ),
  Task(
    'Choose a method',
    '[Methods](../methods/index.md) compares what they send. An optimizer, a schedule, a plan and a codec complete '
    'one.',
    ('fedkd.methods', 'fedkd.optimizers', 'fedkd.schedules', 'fedkd.plan', 'fedkd.codecs'),
  ),
  Task(
    'Train and save',
    '`fedkd.train` evaluates and shows progress; `fedkd.simulation` makes the pure functions that it is made of. '
    '[Training in a notebook](../guides/training.md) shows both.',
    ('fedkd.training', 'fedkd.history', 'fedkd.simulation', 'fedkd.round', 'fedkd.ledger'),
  ),
  Task(
    'Predict and analyse',
    '`logits`, `predict`, `accuracy` and `model` are fields of [`Simulation`](fedkd.simulation.md); what they return, '
    'and the frames of histories and runs, are analysed here.',
    ('fedkd.analysis', 'fedkd.evaluation'),
  ),
  Task(
    'Share a model',
    'One client of a finished run as files for the Hugging Face hub, for PyTorch, or for images. '
    '[Export a model](../guides/export.md) shows it.',
    ('fedkd.experiment.export.writing', 'fedkd.experiment.export.reading', 'fedkd.experiment.predict'),
  ),
  Task(
    'Write an aggregation rule',
    'A function `rule(rows, weight) -> tree`. [A rule or a server](../guides/rules.md) shows it.',
    ('fedkd.aggregate', 'fedkd.aggregate.rule'),
  ),
  Task(
    'Write a method or a server',
    'What their functions are given is on [the cheat sheet](cheat_sheet.md); [a method](../guides/method.md) is an '
    'example.',
    (
      'fedkd.types',
      'fedkd.local',
      'fedkd.inference',
      'fedkd.losses',
      'fedkd.examples',
      'fedkd.servers',
      'fedkd.distillation',
      'fedkd.methods.selectors',
    ),
  ),
  Task(
    'Run experiments from configs',
    'A config becomes a run directory. [All fields](config_fields.md) are on one page; '
    '[configs and runs](../running/configs.md) explains them; '
    '[reports](../guides/reports.md) shows what becomes of finished runs.',
    (
      'fedkd.config',
      'fedkd.experiment',
      'fedkd.experiment.trackers',
      'fedkd.sweep.study',
      'fedkd.report',
      'fedkd.data.sources',
      'fedkd.data.catalogue',
    ),
  ),
)
INTRODUCTION = (
  'By what one wants to do, with a sentence each. `fedkd` itself exports what a notebook types: `fedkd.federation`, '
  '`fedkd.simulation`, `fedkd.train`, `fedkd.methods` and so on.'
)
MORE = {'fedkd.aggregate': ('centred_clipping', 'total')}  # beside `__all__`, which is what a config may name


def pages() -> dict[str, str]:
  """{name: page} of all modules and the index."""
  return {'index': _index(), **{name: _module(name) for task in TASKS for name in task.modules}}


def _index() -> str:
  parts = ['# API by task', INTRODUCTION]
  for task in TASKS:
    parts += [f'## {task.title}', task.text]
    for name in task.modules:
      rows = [
        (f'[`{item}`]({name}.md#{anchor})', first_sentence(value.__doc__)) for item, value, anchor in _items(name)
      ]
      module = importlib.import_module(name)
      parts += [f'**[{name}]({name}.md)**: {first_sentence(module.__doc__)}', table(('', ''), rows)]
  names = '\n'.join(['cheat_sheet', 'config_fields', *(name for task in TASKS for name in task.modules)])
  return '\n\n'.join([*parts, f'```{{toctree}}\n:hidden:\n\n{names}\n```']) + '\n'


def _items(name) -> list[tuple]:
  """(name, function or class, anchor of its heading) of what a module exports."""
  module = importlib.import_module(name)
  exported = getattr(module, '__all__', None) or [
    key for key, value in vars(module).items() if key[0] != '_' and getattr(value, '__module__', None) == name
  ]
  found, headings = [], [name.lower()]
  for item in (*exported, *MORE.get(name, ())):
    value = getattr(module, item)
    if callable(value) and inspect.getdoc(value) and not inspect.ismodule(value):
      again = headings.count(item.lower())
      found.append((item, value, f'{item.lower()}-{again}' if again else item.lower()))
      headings.append(item.lower())
  return found


def _module(name) -> str:
  parts = [f'# {name}', markdown(importlib.import_module(name).__doc__)]
  for item, value, _ in _items(name):
    parts += [f'## {item}', signature(item, value), markdown(value.__doc__), *_comments(value)]
  return '\n\n'.join(parts) + '\n'


def _comments(value) -> list[str]:
  """The commented fields of a NamedTuple."""
  if not (inspect.isclass(value) and hasattr(value, '_fields')):
    return []
  rows = [(f'`{field.name}`', flow(field.comment)) for field in fields.of_class(value) if field.comment]
  return [table(('field', 'what'), rows)] if rows else []
