"""Notebooks are tests of the documentation."""

import importlib.metadata
import os

import pytest

if tuple(map(int, importlib.metadata.version('jaxlib').split('.')[:2])) < (0, 11):  # where XLA still knows it
  os.environ.setdefault('XLA_FLAGS', '--xla_cpu_use_fusion_emitters=false')  # they compile more than they train


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the markers
def pytest_collection_modifyitems(items):
  """Marks them."""
  for item in items:
    if item.path.suffix == '.ipynb':
      item.add_marker(pytest.mark.documentation)
