"""Splits with test rows of each client's own: their laws and published sizes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runs
from fedkd.data import sources
from fedkd.data.splits import personal_splits
from fedkd.errors import ConfigError
from fedkd.experiment.build import assembly
from fedkd.federation import table

QUICK = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32)
CLASSES = 5
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(CLASSES), 200)).astype(np.int32)
TESTS = np.random.default_rng(1).permutation(np.repeat(np.arange(CLASSES), 60)).astype(np.int32)
POOL = np.concatenate([LABELS, TESTS])
# name -> arguments with which ten clients can be had
SPLITS = {
  'n_way': {'shots': 15, 'stride': 18, 'test_shots': 6},
  'uneven_classes': {},
  'inner_dirichlet': {'concentration': 0.2},
  'fedgen_dirichlet': {'smallest': 5},
  'lg_shards': {},
}
every_split = pytest.mark.parametrize('name', SPLITS)


def made(name, seed=0, clients=10, **how):
  return getattr(personal_splits, name)(LABELS, clients, seed, TESTS, **{**SPLITS[name], **how})


def counts(parts):
  return np.stack([np.bincount(POOL[part], minlength=CLASSES) for part in parts])


@every_split
@QUICK
@given(seed=seeds)
def test_parts_are_disjoint_deterministic_and_never_train_on_official_test_rows(name, seed):
  parts, again = made(name, seed), made(name, seed)
  for lists, first, end in ((parts.train, 0, len(LABELS)), (parts.test, len(LABELS), len(POOL))):
    rows = np.concatenate(lists)
    assert len(lists) == 10
    assert first <= rows.min() <= rows.max() < end
    assert len(np.unique(rows)) == len(rows)
    assert all(np.all(np.diff(part) > 0) for part in lists)
  for one, other in zip((*parts.train, *parts.test), (*again.train, *again.test), strict=True):
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize('name', [name for name in SPLITS if name != 'inner_dirichlet'])
@QUICK
@given(seed=seeds)
def test_who_trains_on_a_class_is_tested_on_it_and_on_no_other(name, seed):
  parts = made(name, seed)
  np.testing.assert_array_equal(counts(parts.train) > 0, counts(parts.test) > 0)


@QUICK
@given(seed=seeds, stdev=st.integers(2, 3), legacy=st.booleans())
def test_n_way_k_shot(seed, stdev, legacy):
  parts = made('n_way', seed, ways=3, stdev=stdev, stride=20, legacy_shots=legacy)
  train, test = counts(parts.train), counts(parts.test)
  ways = (train > 0).sum(1)
  assert ways.min() >= max(2, 3 - stdev)
  assert ways.max() < min(CLASSES, 3 + stdev + 1)
  shots = train.max(1)
  assert np.all((train == 0) | (train == shots[:, None]))
  assert shots.min() >= 15 - stdev + 1
  assert shots.max() < 15 + stdev + (-1 if legacy else 1)
  assert np.all((test == 0) | (test == 6))


def test_mnist_in_fedproto():
  """3-way 100-shot with 20 clients: 99 or 100 rows of 2 to 5 classes each, 40 test rows of a class."""
  label, tests = np.arange(54210) % 10, np.arange(8920) % 10
  parts = personal_splits.n_way(label, 20, 0, tests, ways=3, stdev=2, shots=100)
  train = np.stack([np.bincount(label[part], minlength=10) for part in parts.train])
  assert set(np.unique(train)) == {0, 99, 100}
  assert set((train > 0).sum(1)) <= {2, 3, 4, 5}
  assert {len(test) for test in parts.test} <= {80, 120, 160, 200}


@QUICK
@given(seed=seeds, ways=st.sampled_from([1, 2, 3]))
def test_uneven_classes_fill_all_slots(seed, ways):
  parts = made('uneven_classes', seed, ways=ways)
  train, test = counts(parts.train), counts(parts.test)
  slots = 10 * ways // CLASSES
  assert np.all((train > 0).sum(1) <= ways)
  assert np.all(train.sum(0) > 200 - slots)  # a slot loses less than a row
  # Shares from 0.4 to 0.6 before they are normalised: none is more than 1.5 times another.
  assert train[train > 0].min() >= int(200 / slots / 1.5)
  np.testing.assert_allclose(test / 60, train / 200, atol=ways / 60 + 1e-9)


@QUICK
@given(seed=seeds, concentration=st.sampled_from([0.01, 0.2, 5.0]))
def test_inner_dirichlet_has_equal_sizes_and_uses_up_all_rows(seed, concentration):
  parts = made('inner_dirichlet', seed, concentration=concentration)
  assert {len(part) for part in parts.train} == {100}
  assert {len(part) for part in parts.test} == {30}
  np.testing.assert_array_equal(counts(parts.train).sum(0), 200)


def test_inner_dirichlet_follows_its_priors():
  flat, skewed = (counts(made('inner_dirichlet', concentration=c).train) / 100 for c in (1000.0, 0.05))
  assert np.abs(flat - 0.2).max() < 0.2
  assert skewed.max(1).mean() > 0.6


@QUICK
@given(seed=seeds, ratio=st.sampled_from([0.5, 1.0]), concentration=st.sampled_from([0.5, 5.0]))
def test_fedgen_cuts_a_share_of_every_class(seed, ratio, concentration):
  parts = made('fedgen_dirichlet', seed, ratio=ratio, concentration=concentration, clients=4)
  most = ratio * len(LABELS) / 4
  np.testing.assert_array_equal(counts(parts.train).sum(0), min(most, 200 * ratio))
  assert min(map(len, parts.train)) >= 5
  assert np.all(np.isin(counts(parts.test), [0, 15]))
  everything = made('fedgen_dirichlet', seed, ratio=ratio, concentration=concentration, clients=4, all_labels=True)
  np.testing.assert_array_equal(counts(everything.test), 15)


def test_mnist_in_fedgen_is_15_000_rows():
  label = np.arange(60000) % 10
  parts = personal_splits.fedgen_dirichlet(label, 20, 0, np.arange(10000) % 10, concentration=1.0)
  np.testing.assert_array_equal(np.bincount(label[np.concatenate(parts.train)]), 1500)


@QUICK
@given(seed=seeds, per_client=st.sampled_from([1, 2, 5]))
def test_lg_shards_deal_equal_pieces_of_one_label(seed, per_client):
  parts = made('lg_shards', seed, per_client=per_client)
  slots = 10 * per_client // CLASSES
  assert np.all(counts(parts.train) % (200 // slots) == 0)
  np.testing.assert_array_equal(counts(parts.train).sum(0), 200)
  np.testing.assert_array_equal(counts(parts.test) * (200 // slots), counts(parts.train) * (60 // slots))


@pytest.mark.parametrize(
  ('name', 'how', 'message'),
  [
    ('n_way', {'ways': 9, 'stdev': 1}, r'ways=9 with stdev=1 leaves no number of classes from 8 to 4'),
    ('n_way', {'stdev': 1}, r'shots=15 with stdev=1 leaves no number of rows .* legacy_shots=False'),
    ('n_way', {'shots': 30}, r'stride=18 is below the 30 rows of a class that a client may take'),
    ('n_way', {'stride': 30}, r'stride=30 for clients=10 needs 285 training rows of class 0, which has 200'),
    ('n_way', {'test_shots': 7}, r'test_shots=7 for clients=10 needs 70 test rows of class 0, which has 60'),
    ('uneven_classes', {'clients': 3}, r'ways=2 for clients=3 is 6 in all, not a multiple of the 5 classes'),
    ('lg_shards', {'per_client': 3, 'clients': 4}, r'per_client=3 for clients=4 is 12 in all'),
    ('inner_dirichlet', {'concentration': 0.0}, 'concentration=0.0 must be a number above 0'),
    ('inner_dirichlet', {'clients': 500}, r'client 0 of the split has no test row; lower clients'),
    ('fedgen_dirichlet', {'ratio': 0.0}, 'ratio=0.0 must be a number above 0 and at most 1'),
    ('fedgen_dirichlet', {'smallest': 60}, r'gave no split of 1000 examples over clients=10'),
  ],
)
def test_impossible_splits_are_refused_in_a_sentence(name, how, message):
  with pytest.raises(ConfigError, match=message):
    made(name, **how)


# In a config.


def config(tmp_path, **data):
  out = runs.config(runs.save_images(tmp_path / 'tiny.npz'), 'private')
  out.data.update({'partition': 'lg_shards', 'clients': 3, 'validation': 0.0, **data})
  out.groups = ({'model': 'MLP', 'clients': 3, 'hidden': (4,)},)
  return out


def test_a_config_trains_on_training_rows_and_tests_on_official_ones(tmp_path):
  parts = assembly.build(config(tmp_path), dry=True)
  source, split = parts.source, parts.splits[0]
  assert sources.counts(source) == {'train': 240, 'public': 0, 'test': 90, 'classes': 3}
  assert max(map(np.max, split.private)) < 240 <= min(map(np.min, split.test))
  assert sum(map(len, split.test)) == 90
  mean = sources.trained(source).mean(0)
  np.testing.assert_allclose(parts.groups[0].model.mean, mean, rtol=1e-5)
  assert not np.allclose(mean, source.train_image.mean(0))
  assert table(split.private, np.arange(3)).index.max() < 240


def test_merged_rows_are_dealt_out_and_every_client_keeps_its_share_of_them(tmp_path):
  merged = config(tmp_path, partition='pathological', merge_test=True, test_share=0.25)
  split = assembly.build(merged, dry=True).splits[0]
  every = np.sort(np.concatenate([*split.private, *split.test]))
  np.testing.assert_array_equal(every, np.arange(330))
  assert np.abs(np.array(list(map(len, split.test))) / 330 * 3 - 0.25).max() < 0.25


@pytest.mark.parametrize(
  ('data', 'message'),
  [
    ({'test_share': 0.1}, r"data.test_share=0.1 cannot be combined with data.partition='lg_shards'.* set it to 0.0"),
    (
      {'merge_test': True},
      r"data.merge_test=True cannot be combined with data.partition='lg_shards'.* set it to False",
    ),
    ({'clients': 4}, r'data.per_client=2 for data.clients=4 is 8 in all, not a multiple of the 3 classes'),
  ],
)
def test_a_config_refuses_what_does_not_go_together(tmp_path, data, message):
  wrong = config(tmp_path, **data)
  wrong.groups = ({'model': 'MLP', 'clients': wrong.data.clients, 'hidden': (4,)},)
  with pytest.raises(ConfigError, match=message):
    assembly.build(wrong, dry=True)


def test_a_set_without_test_rows_has_none_to_give(tmp_path):
  source = sources.load('rotated_mnist_5k')
  with pytest.raises(ConfigError, match=r'data.name=rotated_mnist_5k has no test set to take test rows from'):
    sources.merged(source, trainable=False)
