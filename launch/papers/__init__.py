"""The tables and figures of the papers: which runs make them, what was printed, and what was claimed.

One file a paper; an id's rows run on the same splits and seeds.
"""

from launch.papers import decide, fedh2l, fedhe, fedmd, fedproto, felo
from launch.papers.common import PROFILES, Claim, Experiment, Question, Row

__all__ = ['PROFILES', 'Claim', 'Experiment', 'Question', 'Row', 'claims', 'questions', 'registry']


def registry() -> dict:
  """{id: Experiment}, in the order of the report."""
  papers = (fedmd, fedhe, fedh2l, felo, fedproto, decide)
  return {id: experiment for paper in papers for id, experiment in paper.registry().items()}


def claims() -> tuple:
  """The papers' claims about their tables."""
  return (*fedh2l.claims(), *fedmd.claims(), *fedhe.claims(), *felo.claims(), *fedproto.claims())


def questions() -> list:
  """Changes beside rows of the tables that are to explain disagreements."""
  return decide.questions()
