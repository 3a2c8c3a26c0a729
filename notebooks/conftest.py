"""Notebooks are tests."""

import pytest

# The others are of run directories and of stored results, and longer.
DOCUMENTATION = ('00_library.ipynb',)


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the markers
def pytest_collection_modifyitems(items):
  """Marks them all, each with one marker."""
  for item in items:
    if item.path.suffix == '.ipynb':
      item.add_marker(pytest.mark.documentation if item.path.name in DOCUMENTATION else pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
  """Without the tests' flags for cheap compilation: 01 trains for longer than it takes to compile."""
  del item
  with pytest.MonkeyPatch.context() as patch:
    patch.delenv('XLA_FLAGS', raising=False)
    return (yield)
