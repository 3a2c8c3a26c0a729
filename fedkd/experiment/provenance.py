"""What a result was made with: versions, device, commit; and where compiled programs are kept."""

import importlib.metadata as package_metadata
import os
import pathlib
import platform
import subprocess

import jax

import fedkd
from fedkd.data import cache


def use_compilation_cache():
  """Keeps compiled programs in $FEDKD_CACHE (default ~/.cache/fedkd), unless JAX was told another place."""
  if jax.config.jax_compilation_cache_dir is None:
    jax.config.update('jax_compilation_cache_dir', str(cache.directory() / 'xla'))


def environment() -> dict:
  """Versions, device and commit, for every result that is written."""
  here = pathlib.Path(__file__).parent
  git = lambda *words: subprocess.run(['git', *words], cwd=here, capture_output=True, text=True).stdout.strip()
  versions = {package: package_metadata.version(package) for package in ('jax', 'jaxlib', 'flax', 'optax', 'numpy')}
  return {
    'versions': {'python': platform.python_version(), 'fedkd': fedkd.__version__, **versions},
    'device': f'{len(jax.devices())}x {jax.devices()[0].device_kind}, {os.cpu_count()} cores',
    'commit': git('rev-parse', '--short', 'HEAD'),
    'dirty': bool(git('status', '--porcelain', '--untracked-files=no')),
  }
