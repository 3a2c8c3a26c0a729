"""Maps of labels and classes."""

import numpy as np
import pytest

from fedkd.analysis.figures import class_accuracy, class_knowledge, label_bars, labels
from fedkd.errors import ConfigError

COUNTS = np.arange(12).reshape(4, 3)  # clients, classes


def written(axes):
  return {tuple(map(int, text.get_position())): text.get_text() for text in axes.texts}


def test_a_label_map_has_clients_across_and_its_counts_written():
  axes = labels(COUNTS)
  assert np.array_equal(axes.images[0].get_array(), COUNTS.T)
  assert written(axes) == {(k, c): str(COUNTS[k, c]) for k in range(4) for c in range(3)}
  assert (axes.get_xlabel(), axes.get_ylabel()) == ('client', 'class')
  assert list(axes.get_xticks()) == [0, 1, 2, 3]
  assert not labels(np.ones((100, 10))).texts  # too many to be read


@pytest.mark.parametrize(('names', 'shown'), [(None, ['0', '1', '2']), (['cat', 'dog', 'owl'], ['cat', 'dog', 'owl'])])
def test_classes_are_named(names, shown):
  assert [text.get_text() for text in labels(COUNTS, names=names).get_yticklabels()] == shown
  assert [text.get_text() for text in label_bars(COUNTS, names=names).get_legend().get_texts()][::-1] == shown


def test_bars_of_labels_stack_to_what_a_client_has():
  axes = label_bars(COUNTS)
  tops = [bars[2].get_y() + bars[2].get_height() for bars in (axes.containers[2],)]
  assert tops == [COUNTS[2].sum()]
  for c, bars in enumerate(axes.containers):
    assert [bar.get_height() for bar in bars] == COUNTS[:, c].tolist()
  assert label_bars(np.ones((3, 40))).get_legend() is None


def test_class_accuracy_is_in_per_cent_and_blank_where_there_is_none():
  accuracy = np.array([[0.5, np.nan], [0.25, 1.0]])
  axes = class_accuracy(accuracy, ['fedhe', 'fedmd'])
  assert written(axes) == {(0, 0): '50', (0, 1): '25', (1, 1): '100'}
  assert [text.get_text() for text in axes.get_yticklabels()] == ['fedhe', 'fedmd']
  seeds = np.stack([accuracy, accuracy * 0])
  assert written(class_accuracy(seeds))[1, 1] == '50'
  assert written(class_accuracy([[1 + 1e-7]])) == {(0, 0): '100'}


def test_class_knowledge_has_rounds_across():
  values = np.arange(6.0).reshape(3, 2)
  axes = class_knowledge(values, [0, 10, 20])
  assert np.array_equal(axes.images[0].get_array(), values.T)
  assert [text.get_text() for text in axes.get_xticklabels()] == ['0', '10', '20']
  assert axes.figure.axes[1].get_ylabel() == ''  # it need not be accuracy
  assert class_knowledge(values, label='examples').figure.axes[1].get_ylabel() == 'examples'


@pytest.mark.parametrize(('draw', 'match'), [
  (lambda: labels(np.arange(3)), r'counts has shape \[3\]; give an array \[clients, classes\]'),
  (lambda: labels(COUNTS, names=['a']), r'names has shape \[1\] for 3 classes of counts'),
  (lambda: label_bars(np.zeros((0, 3))), r'counts has shape \[0, 3\]'),
  (lambda: class_accuracy(np.ones((2, 3)), ['a']), r'names has shape \[1\] for 2 rows'),
  (lambda: class_accuracy([[0.5, 73.83]]), r'accuracy has 73.83, which is no share; give numbers from 0 to 1'),
  (lambda: class_accuracy([[[0.5, -0.5]], [[0.5, 0.5]]]), r'accuracy has -0.5, which is no share'),
  (lambda: class_knowledge(np.ones((2, 3)), [1]), r'rounds has shape \[1\] for 2 rows of values'),
])  # fmt: skip
def test_other_arrays_are_refused(draw, match):
  with pytest.raises(ConfigError, match=match):
    draw()
