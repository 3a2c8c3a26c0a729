"""Figures of tidy frames.

Every function draws in the Matplotlib axes that it is given, or in new ones, and returns them. Options are few: a frame
is what seaborn takes, too.
"""

from fedkd.analysis.figures.features import feature_map, principal
from fedkd.analysis.figures.front import pareto
from fedkd.analysis.figures.gains import gain
from fedkd.analysis.figures.maps import class_accuracy, class_knowledge, label_bars, labels
from fedkd.analysis.figures.of_run import save_figures
from fedkd.analysis.figures.over_rounds import curves, violations
from fedkd.analysis.figures.panels import save
from fedkd.analysis.figures.per_client import clients, worst
from fedkd.analysis.figures.stored import bars, collaboration, components, gain_against_megabytes, lines
from fedkd.analysis.figures.style import colours
from fedkd.analysis.figures.timelines import timeline

__all__ = [
  'bars',
  'class_accuracy',
  'class_knowledge',
  'clients',
  'collaboration',
  'colours',
  'components',
  'curves',
  'feature_map',
  'gain',
  'gain_against_megabytes',
  'label_bars',
  'labels',
  'lines',
  'pareto',
  'principal',
  'save',
  'save_figures',
  'timeline',
  'violations',
  'worst',
]
