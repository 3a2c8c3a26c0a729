"""Notebooks are tests."""

import pytest

# Of run directories, and of stored results.
SLOW = ('01_first_run.ipynb', '02_write_an_aggregation_rule.ipynb', '03_paper_tables.ipynb')


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the markers
def pytest_collection_modifyitems(items):
  """Marks the longest."""
  for item in items:
    if item.path.name in SLOW:
      item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
  """Without the tests' flags for cheap compilation: 01 trains for longer than it takes to compile."""
  del item
  with pytest.MonkeyPatch.context() as patch:
    patch.delenv('XLA_FLAGS', raising=False)
    return (yield)
