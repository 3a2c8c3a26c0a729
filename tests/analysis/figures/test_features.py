"""Feature maps."""

import numpy as np
import pytest

from fedkd.analysis.figures import feature_map, principal
from fedkd.errors import ConfigError

FEATURES = np.random.default_rng(0).normal(size=(30, 5)) * [9, 4, 1, 1, 1]
LABEL, DOMAIN = np.arange(30) % 3, np.arange(30) % 2


def test_principal_components_are_those_of_the_covariance():
  values, vectors = np.linalg.eigh(np.cov(FEATURES.T))
  np.testing.assert_allclose(principal(FEATURES).var(0, ddof=1), values[::-1][:2])
  along = (FEATURES - FEATURES.mean(0)) @ vectors[:, ::-1][:, :2]
  np.testing.assert_allclose(np.abs(principal(FEATURES)), np.abs(along))


def test_classes_are_colours_and_domains_markers():
  axes = feature_map(FEATURES, LABEL, DOMAIN, ['north', 'south'])
  dots = axes.collections
  np.testing.assert_allclose(dots[1].get_offsets(), principal(FEATURES)[DOMAIN == 1])
  assert dots[1].get_array().tolist() == LABEL[DOMAIN == 1].tolist()
  assert [text.get_text() for text in axes.get_legend().get_texts()] == ['north', 'south']
  assert feature_map(FEATURES, LABEL).get_legend() is None


def test_a_domain_without_a_name_is_refused():
  with pytest.raises(ConfigError, match='domain has 2, and domains 2 names; give numbers from 0 up, and a name'):
    feature_map(FEATURES, LABEL, LABEL, ('a', 'b'))
  with pytest.raises(ConfigError, match="domain has 'a', and domains 2 names"):
    feature_map(FEATURES, LABEL, np.array(['b', 'a'])[DOMAIN], ('a', 'b'))


def test_labels_of_other_examples_are_refused():
  with pytest.raises(ConfigError, match=r'label has shape \[29\] for 30 features'):
    feature_map(FEATURES, LABEL[1:])
  with pytest.raises(ConfigError, match=r'features has shape \[30\]; give \[N, d\], N at least 1 and d at'):
    feature_map(FEATURES[:, 0], LABEL)


def test_too_few_examples_and_no_numbers_are_refused():
  for draw in (principal, lambda features: feature_map(features, LABEL[:1])):
    with pytest.raises(ConfigError, match=r'features has shape \[1, 5\]; give \[N, d\], N at least 2 and d at least 2'):
      draw(FEATURES[:1])
  assert len(feature_map(FEATURES[:1, :2], LABEL[:1]).collections[0].get_offsets()) == 1
  broken = FEATURES.copy()
  broken[7, 1] = np.nan
  for features in (broken, broken[:, :2]):
    with pytest.raises(ConfigError, match='features has NaN or infinity in row 7; leave it out'):
      feature_map(features, LABEL)
