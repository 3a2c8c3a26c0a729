"""Notebooks are tests; the longest of them is one of the longer checks."""

import pytest

SLOW = ('02_write_an_aggregation_rule.ipynb',)  # nine runs


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the markers
def pytest_collection_modifyitems(items):
  for item in items:
    if item.path.name in SLOW:
      item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
  """Notebooks train for longer than it takes to compile, so that the tests' cheap compilation would be dear."""
  del item
  with pytest.MonkeyPatch.context() as patch:
    patch.delenv('XLA_FLAGS', raising=False)
    return (yield)
