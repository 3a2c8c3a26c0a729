"""The server of Felo and Velo: what it says of features of several widths."""

import jax
import pytest

from fedkd import models
from fedkd.servers.features_and_logits import _knowledge
from fedkd.types import Data, Download, Group, Server
from helpers import pool, preprocessed


def reporting(**metrics):
  """A server that keeps nothing, and reports numbers."""
  return Server(lambda *_: (), lambda *_: ((), metrics), lambda *_: ())


@pytest.mark.parametrize(
  ('widths', 'names'),
  [
    ((4, 4), {'feature_age': 4, 'cvae_kl': 8}),
    ((4, 6), {'feature_age_4': 4, 'cvae_kl_4': 8, 'feature_age_6': 6, 'cvae_kl_6': 12}),
  ],
)
def test_metrics_of_features_are_named_after_their_width_where_there_are_several(widths, names):
  features = lambda width: reporting(knowledge_age=width, cvae_kl=2 * width)
  server = _knowledge(reporting(knowledge_age=1), features, 'group')
  groups = tuple(Group(f'g{i}', preprocessed(models.MLP((w,), classes=3)), None) for i, w in enumerate(widths))
  data, state = (Data(pool(), None, None),) * 2, {'features': {str(w): () for w in set(widths)}, 'logits': ()}
  uploads = ({'features': None, 'logits': None, 'label': None},) * 2
  _, info = server.receive(jax.random.key(0), 0, groups, state, uploads, ((), ()), data)
  assert info == {'knowledge_age': 1, **names}


def test_every_width_has_randomness_of_its_own():
  """Numbers that a key makes for one width begin those that it makes for another."""
  telling = Server(
    lambda key, *_: key, lambda *_: (), lambda key, t, *_: (Download(shared={'knowledge': key, 'label': ()}),)
  )
  server = _knowledge(telling, lambda width: telling, 'group')
  groups = tuple(Group(f'g{w}', preprocessed(models.MLP((w,), classes=3)), None) for w in (4, 6))
  data = (Data(pool(), None, None),) * 2
  state = server.init(jax.random.key(0), groups, (), data)
  sent = server.send(jax.random.key(0), 0, groups, state, ((), ()), data)
  for keys in (state['features'].values(), [down.shared['features'] for down in sent]):
    one, other = (jax.random.normal(key) for key in keys)
    assert one != other
