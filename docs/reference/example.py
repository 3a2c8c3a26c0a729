"""The small federation on which every method's page states its messages."""

import inspect

import numpy as np
import optax

import fedkd
from fedkd import methods, models
from fedkd.federation import Federation

PUBLIC = {'public', 'fedmd', 'dsfl', 'feddf', 'ktpfl', 'rhfl', 'fccl', 'selective_fd', 'scarlet', 'fedkt'}
SHARED = {'fedh2l'}
ONE = (
  'fedavg',
  'fedprox',
  'scaffold',
  'moon',
  'ditto',
  'fedper',
  'fedrep',
  'fedbabu',
  'fedgen',
  'fiarse',
)  # architecture
NET, OTHER, COMMON = models.MLP((32,)), models.MLP((64, 32)), models.MLP((16,))
MODELS = {
  **dict.fromkeys(ONE, ([NET], 'All train `MLP((32,))`.')),
  'fedgkt': ([models.GKTClient(channels=4)], 'All train `GKTClient(channels=4)`.'),
  **dict.fromkeys(
    ('heterofl', 'fedrolex', 'federated_dropout'),
    ([models.MLP((64,))] * 2 + [NET] * 2, 'Two train `MLP((64,))`, two its corner `MLP((32,))`.'),
  ),
}
MIXED = ([NET, NET, OTHER, OTHER], 'Two train `MLP((32,))`, two `MLP((64, 32))`.')


def federation(name: str) -> Federation:
  """The federation for a method."""
  y = np.arange(260) % 10
  x = np.random.default_rng(0).integers(0, 256, (260, 28, 28, 1)).astype(np.uint8)
  parts = np.array_split(np.arange(160), 4)
  given = {'public': np.arange(160, 260)} if name in PUBLIC else {}
  given |= {'shared': [rows[-10:] for rows in parts]} if name in SHARED else {}
  return fedkd.federation(x, y, parts, MODELS.get(name, MIXED)[0], **given)


def method(name: str) -> fedkd.Method:
  """A method with its defaults, except for what the federation is too small for, and a common model."""
  given = {'subset': 50, 'common': COMMON, **({'batch': 5} if name in SHARED else {})}
  return getattr(methods, name)(optax.sgd(0.1), **{key: given[key] for key in given if takes(name, key)})


def takes(name: str, argument: str) -> bool:
  """Whether a method has an argument of that name."""
  return argument in inspect.signature(getattr(methods, name)).parameters


def described(name: str) -> str:
  """The federation and the method in words."""
  sentences = ['Four clients own 40 images of 28 by 28 grey pixels each, of ten classes.', MODELS.get(name, MIXED)[1]]
  sentences += ['100 more images are public; a round uses 50.'] if name in PUBLIC and takes(name, 'subset') else []
  sentences += ['100 more images are public.'] if name in PUBLIC and not takes(name, 'subset') else []
  sentences += ['Each shares 10 of its images, and learns from 5 at a time.'] if name in SHARED else []
  sentences += ['The common model is `MLP((16,))`.'] if takes(name, 'common') else []
  return ' '.join(sentences)
