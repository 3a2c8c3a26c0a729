"""What the tests of whole runs share."""

import pytest

import runs


@pytest.fixture(scope='session')
def images(tmp_path_factory):
  return runs.save_images(tmp_path_factory.mktemp('images') / 'tiny.npz')
