"""One visual language."""

from matplotlib.colors import to_hex

from fedkd import methods
from fedkd.analysis import figures
from fedkd.analysis.figures.style import styles


def test_a_run_has_its_colour_in_every_figure(frame):
  wanted = figures.colours(frame)
  for axes in (figures.curves(frame), figures.curves(frame, 'megabytes'), figures.pareto(frame)):
    drawn = {line.get_label().split(' ')[0]: to_hex(line.get_color()) for line in axes.get_lines()}
    drawn |= {bar.get_label(): to_hex(bar.lines[0].get_color()) for bar in axes.containers}
    assert {run: drawn[run] for run in wanted} == {run: to_hex(colour) for run, colour in wanted.items()}
  bars = {bar.get_label(): to_hex(bar.lines[0].get_color()) for bar in figures.gain(frame).containers}
  assert bars == {run: to_hex(wanted[run]) for run in ('fedhe', 'fedmd')}
  alone = figures.curves(frame[frame['run'] == 'fedmd']).get_lines()[0]
  assert to_hex(alone.get_color()) == to_hex(wanted['fedmd'])


def test_methods_differ_and_baselines_are_grey():
  of = styles(methods.__all__)
  assert len(set(of.values())) == len(methods.__all__)
  assert len({style.color for style in of.values()}) == len(methods.__all__)
  assert of['private'].color == '#000000'
  assert styles(['Private', 'FedHe'])['Private'] == of['private']


def test_runs_of_one_method_have_colours_of_their_own(frame):
  two = frame.assign(method='fedhe')
  assert len(set(figures.colours(two).values())) == 3
  assert figures.colours(frame.assign(run=frame['run'] + '/1')) == {
    f'{run}/1': colour for run, colour in figures.colours(frame).items()
  }


def test_given_colours_are_taken(frame):
  axes = figures.curves(frame, colours={'fedhe': '#123456'})
  drawn = {line.get_label(): to_hex(line.get_color()) for line in axes.get_lines()}
  assert drawn['fedhe'] == '#123456'
  assert drawn['private'] == '#000000'


def test_names_that_are_alike_without_their_signs_differ():
  alone = styles(['fedhe'])['fedhe']
  for names in (['fedhe', 'fedhe+'], ['fedhe+', 'fedhe']):
    of = styles(names)
    assert list(of) == names
    assert of['fedhe'] == alone
    assert of['fedhe+'].color != alone.color
