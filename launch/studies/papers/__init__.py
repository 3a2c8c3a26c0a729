"""The tables and figures of the papers: which runs make them, what was printed, and what was claimed.

One file a paper; an id's rows run on the same splits and seeds.
"""

import functools

from launch.studies.papers import (
  decide,
  dense,
  fedgen,
  fedh2l,
  fedhe,
  fedkt,
  fedmd,
  fedproto,
  fedre,
  felo,
  heflwr,
  pfedes,
)
from launch.studies.papers.common import PROFILES, Claim, Experiment, Question, Row
from launch.studies.papers.disagreements import questions

PAPERS = {
  **{'FedMD': fedmd, 'FedHe': fedhe, 'FedH2L': fedh2l, 'Felo and Velo': felo},
  **{'FedProto': fedproto, 'FedGen': fedgen, 'FedKT': fedkt, 'DENSE': dense, 'pFedES': pfedes, 'HeFlwr': heflwr},
  'FedRE': fedre,
}

__all__ = ['PROFILES', 'Claim', 'Experiment', 'Question', 'Row', 'claims', 'questions', 'registry']


@functools.cache
def registry() -> dict:
  """{id: Experiment}, in the order of the report."""
  return {id: experiment for paper in (*PAPERS.values(), decide) for id, experiment in paper.registry().items()}


def claims() -> tuple:
  """The papers' claims about their tables."""
  return tuple(claim._replace(paper=name) for name, paper in PAPERS.items() for claim in paper.claims())
