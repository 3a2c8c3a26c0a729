"""Provenance of a result: versions, device, commit; and the compilation cache."""

import functools
import importlib.metadata as package_metadata
import os
import pathlib
import platform
import subprocess
import tomllib

import jax

import fedkd
from fedkd.data import cache


def use_compilation_cache():
  """Keeps compiled programs in $FEDKD_CACHE (default ~/.cache/fedkd), unless JAX is configured for another directory.

  Small ones too: a run compiles some fifty besides its rounds, which together take longer than a short run.
  """
  if jax.config.jax_compilation_cache_dir is None:
    jax.config.update('jax_compilation_cache_dir', str(cache.directory() / 'xla'))
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)


def environment() -> dict:
  """Versions, device and commit, for every result that is written; the commit is '' outside a checkout of fedkd."""
  versions = {package: package_metadata.version(package) for package in ('jax', 'jaxlib', 'flax', 'optax', 'numpy')}
  return {
    'versions': {'python': platform.python_version(), 'fedkd': fedkd.__version__, **versions},
    'device': f'{len(jax.devices())}x {jax.devices()[0].device_kind}, {os.cpu_count()} cores',
    **code(),
  }


@functools.cache
def code() -> dict:
  """`commit` of the code that this process runs: as it was at the first call, since modules that are loaded stay what
  they are, whatever is committed meanwhile."""
  return commit(pathlib.Path(fedkd.__file__).parent)


def continued(codes: list | None, now: dict | None) -> list:
  """The `code` of every start that has trained a run, one after the other.

  Args:
    codes: of those before; None where an older version did not record them.
    now: of one more; None for one that has nothing left to train.
  """
  before = [{'commit': 'unknown', 'dirty': False}] if codes is None else codes
  return before if now is None or before[-1:] == [now] else [*before, now]


def made_by(codes: list) -> dict:
  """The fields of a result of such starts: the `commit` of the first, `commits` of all where there are several, and
  whether files had been changed in any."""
  commits = list(dict.fromkeys(code['commit'] for code in codes))
  several = {'commits': [commit or 'none' for commit in commits]} if len(commits) > 1 else {}
  return {'commit': commits[0], **several, 'dirty': any(code['dirty'] for code in codes)}


def commit(package) -> dict:
  """{'commit', 'dirty'} of the checkout that the folder `package` is the package of; '' and False where it is in none.

  An installed package may be inside another repository, whose commit is not that of this code.
  """
  root = package.parent
  if not _is_ours(root) or _git(root, 'rev-parse', '--show-prefix') != '':  # not the top folder of a repository
    return {'commit': '', 'dirty': False}
  changed = _git(root, 'status', '--porcelain', '--untracked-files=no')
  return {'commit': _git(root, 'rev-parse', '--short', 'HEAD') or '', 'dirty': bool(changed)}


def _is_ours(root) -> bool:
  """Whether a folder holds the sources of fedkd."""
  try:
    return tomllib.loads((root / 'pyproject.toml').read_text())['project']['name'] == 'fedkd'
  except (OSError, ValueError, KeyError):
    return False


def _git(folder, *words) -> str | None:
  """The output of git in a folder; None if it fails or is not installed."""
  try:
    done = subprocess.run(['git', *words], cwd=folder, capture_output=True, text=True, check=True)
  except (OSError, subprocess.CalledProcessError):
    return None
  return done.stdout.strip()
