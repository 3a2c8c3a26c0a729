"""Notebooks are tests; the longest of them is one of the longer checks."""

import pytest

SLOW = ('02_write_an_aggregation_rule.ipynb',)  # nine runs


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the markers
def pytest_collection_modifyitems(items):
  for item in items:
    if item.path.name in SLOW:
      item.add_marker(pytest.mark.slow)
