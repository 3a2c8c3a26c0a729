"""The vocabulary of a config's models is that of its data."""

import numpy as np
import pytest

from fedkd import models
from fedkd.data import sources
from fedkd.errors import ConfigError
from fedkd.experiment.build import vocabulary

LABEL = np.array([0, 1], np.int32)


def source(train, test=((0,), (0,))):
  train, test = (np.array(x, np.int32) for x in (train, test))
  return sources.Source('mine', train, LABEL, test, LABEL, 2, ('a', 'b'))


def test_the_vocabulary_is_that_of_all_examples():
  net = models.EmbeddingBag()
  assert vocabulary.fitted(net, source([[3], [1]], [[5], [0]]), 'groups[0]').vocabulary == 6
  larger = net.clone(vocabulary=9)
  assert vocabulary.fitted(larger, source([[3], [1]]), 'groups[0]') is larger
  other = models.MLP()
  assert vocabulary.fitted(other, source([[3], [-1]]), 'groups[0]') is other
  numbers = source([[3], [1]])._replace(train_image=np.zeros((2, 4), np.float32))
  assert vocabulary.fitted(net, numbers, 'groups[0]') is net


def test_tokens_without_a_vector_are_refused():
  net = models.EmbeddingBag(vocabulary=5)
  with pytest.raises(ConfigError, match=r'^groups\[1\].vocabulary=5 is too small .* go up to 5; set it to at least 6'):
    vocabulary.fitted(net, source([[3], [5]]), 'groups[1]')
  with pytest.raises(ConfigError, match=r'^groups\[1\] looks up tokens, and data.name=mine has -1; number them from 0'):
    vocabulary.fitted(net, source([[3], [-1]]), 'groups[1]')
