"""The tables and figures of the papers: which runs make them, what was printed, and what was claimed.

One file a paper; an id's rows run on the same splits and seeds.
"""

import functools

from launch.papers import decide, fedgen, fedh2l, fedhe, fedmd, fedproto, felo
from launch.papers.common import PROFILES, Claim, Experiment, Question, Row

__all__ = ['PROFILES', 'Claim', 'Experiment', 'Question', 'Row', 'claims', 'questions', 'registry']


@functools.cache
def registry() -> dict:
  """{id: Experiment}, in the order of the report."""
  papers = (fedmd, fedhe, fedh2l, felo, fedproto, fedgen, decide)
  return {id: experiment for paper in papers for id, experiment in paper.registry().items()}


def claims() -> tuple:
  """The papers' claims about their tables."""
  papers = (fedh2l, fedmd, fedhe, felo, fedproto, fedgen)
  return tuple(claim for paper in papers for claim in paper.claims())


def questions() -> list:
  """Changes beside rows of the tables that are to explain disagreements."""
  return decide.questions()
