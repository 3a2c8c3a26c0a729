"""What the tests of data share."""

import pytest


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
  monkeypatch.setenv('FEDKD_CACHE', str(tmp_path / 'cache'))
  return tmp_path / 'cache'
