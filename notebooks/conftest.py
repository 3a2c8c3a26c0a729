"""Notebooks are tests of the documentation."""

import pytest


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the markers
def pytest_collection_modifyitems(items):
  """Marks them."""
  for item in items:
    if item.path.suffix == '.ipynb':
      item.add_marker(pytest.mark.documentation)
