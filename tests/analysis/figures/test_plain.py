"""Names with a dollar are names in every figure, not mathematics."""

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from fedkd import plan
from fedkd.analysis import figures
from fedkd.analysis.figures import of_sweep

NAMES = ['a $5_$6', 'fe $a$ b', '$x$', 'private']  # the first is no mathematics that can be drawn
NUMBERS = np.ones((4, 4)) / 2
ROWS = [{'phase': 0, 'round': r, 'accuracy_per_client': [[0.1, 0.2]]} for r in range(2)]
RESULT = {'method': NAMES[0], 'id': 'i', 'profile': 'small', 'curve': ROWS}
RESULT['config'] = {'groups': [{'model': name} for name in NAMES[:2]]}
LEVELS = {name: (np.arange(2), np.ones((3, 2)) + i) for i, name in enumerate(NAMES)}
SENT = {name: (1.0 + i, 1.0, 0.5, 2.0) for i, name in enumerate(NAMES)}
DRAW = {
  'bars': lambda axes, _: figures.bars({name: np.ones(3) for name in NAMES}, NAMES[0], axes=axes),
  'class_accuracy': lambda axes, _: figures.class_accuracy(NUMBERS, NAMES, axes),
  'class_knowledge': lambda axes, _: figures.class_knowledge(NUMBERS, label=NAMES[0], axes=axes),
  'clients': lambda axes, frame: figures.clients(frame[frame['run'] == NAMES[0]], axes=axes),
  'collaboration': lambda axes, _: figures.collaboration(RESULT, {}, axes),
  'curves': lambda axes, frame: figures.curves(frame, axes=axes),
  'feature_map': lambda axes, _: figures.feature_map(NUMBERS, range(4), range(4), NAMES, axes),
  'gain': lambda axes, frame: figures.gain(frame, NAMES[0], axes=axes),
  'gain_against_megabytes': lambda axes, _: figures.gain_against_megabytes(SENT, NAMES[0], axes),
  'label_bars': lambda axes, _: figures.label_bars(NUMBERS, axes, NAMES),
  'labels': lambda axes, _: figures.labels(NUMBERS, axes, NAMES),
  'lines': lambda axes, _: figures.lines(LEVELS, NAMES[0], NAMES[0], NAMES[0], axes),
  'pareto': lambda axes, frame: figures.pareto(frame, axes=axes),
  'timeline': lambda axes, _: figures.timeline(plan.synchronous()([2], 2), axes=axes),
  'violations': lambda axes, frame: figures.violations(frame.replace({'accuracy': 'violated'}), axes=axes),
  'worst': lambda axes, frame: figures.worst(frame, axes=axes),
}
NO_AXES = {'colours', 'components', 'principal', 'save', 'save_figures'}


@pytest.fixture
def named(make):
  return figures.values.pd.concat([make(name, 0.5 + i / 10, 10.0**i) for i, name in enumerate(NAMES)])


def check_names(axes):
  """Checks that the figure can be drawn, and shows every dollar in it."""
  figure = axes.get_figure(root=True)
  figure.savefig(io.BytesIO())
  shown = [text for text in figure.findobj(Text) if '$' in text.get_text()]
  assert not [text.get_text() for text in shown if text.get_parse_math()]
  return shown


@pytest.mark.parametrize('name', sorted(set(figures.__all__) - NO_AXES))
def test_a_dollar_in_a_name_is_a_dollar(named, name):
  assert check_names(DRAW[name](None, named)) or name == 'timeline'
  axes = Figure(layout='constrained').add_subplot(title=r'$\alpha$')
  axes.figure.draw_without_rendering()  # as axes that were shown before
  drawn = DRAW[name](axes, named)
  assert drawn.title.get_parse_math() is (drawn.get_title() == r'$\alpha$')
  drawn.set_title('')
  check_names(drawn)


def test_panels_and_sweeps_have_dollars_too(tmp_path):
  check_names(figures.components([NUMBERS], range(4), range(4), NAMES[:1], NAMES).axes[0])
  frame = figures.values.pd.DataFrame({'a $5_$6': NAMES, 'b $5_$6': range(4), of_sweep.SCORE: range(4), 'rounds': 1})
  of_sweep.save_all(frame.assign(number=range(4)), ['a $5_$6', 'b $5_$6'], tmp_path)
  assert check_names(of_sweep.heat_map(frame, 'a $5_$6', 'b $5_$6'))


def test_a_title_that_is_given_afterwards_and_powers_of_ten_are_mathematics(named):
  axes = figures.curves(named, 'megabytes')
  axes.set_title(r'$\alpha = 1$')
  assert axes.title.get_parse_math()
  axes = Figure().add_subplot(yscale='log')
  figures.lines(LEVELS, 'x', axes=axes)
  powers = [text for text in axes.get_yticklabels() if '$' in text.get_text()]
  assert powers
  assert all(text.get_parse_math() for text in powers)
