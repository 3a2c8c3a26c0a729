"""The tables and figures of the papers: which runs make them, what was printed, and what was claimed.

One file a paper; an id's rows run on the same splits and seeds.
"""

from launch.papers import decide, fedh2l, fedhe, fedmd, felo
from launch.papers.common import PROFILES, Claim, Experiment, Question, Row

__all__ = ['PROFILES', 'Claim', 'Experiment', 'Question', 'Row', 'claims', 'questions', 'registry']


def registry() -> dict:
  """{id: Experiment}, in the order of the report."""
  return {**fedmd.registry(), **fedhe.registry(), **fedh2l.registry(), **felo.registry(), **decide.registry()}


def claims() -> tuple:
  """The papers' claims about their tables."""
  return (*fedh2l.claims(), *fedmd.claims(), *fedhe.claims(), *felo.claims())


def questions() -> list:
  """Changes beside rows of the tables that are to explain disagreements."""
  return decide.questions()
