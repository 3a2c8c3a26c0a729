"""Checkpoints of a whole run: Orbax for the files, a SHA-256 of the contents for integrity.

Orbax restores a flipped bit silently, so every checkpoint carries a checksum of its leaves; one that does not
match, or cannot be read, is skipped for the next older one.
"""

import contextlib
import errno
import functools
import hashlib
import json
import logging
import os
import re
import sys
import traceback

import jax
import numpy as np

from fedkd import files
from fedkd.errors import ConfigError, StoreError, in_a_sentence
from fedkd.experiment.storage import key_data

KEPT = 3  # checkpoints of a run


def checksum(tree) -> str:
  """SHA-256 over shape, dtype and bytes of the leaves, in tree order, then the generators of its `KeyData`."""
  sha = hashlib.sha256()
  for leaf in jax.tree.leaves(tree):
    leaf = np.asarray(leaf)
    sha.update(f'{leaf.shape}{leaf.dtype}'.encode())
    sha.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8))  # type: ignore[arg-type]  # no copy: states can be large
  sha.update(''.join(key_data.generators(tree)).encode())
  return sha.hexdigest()


@contextlib.contextmanager
def manager(directory, keep=KEPT, largest=0, tidy=True):
  """The Orbax manager of a run's `checkpoints/`; saves are atomic and done when `save` returns.

  `tidy`: remove what an interrupted save has left; not for readers, since another process may be saving.
  `largest`: bytes of the largest array to save. Orbax compresses as many arrays at once as it may hold besides a state;
  with 0 that is all of them.

  Raises:
    ConfigError: if what Orbax keeps about a checkpoint is damaged.
    OSError: if the system does not let it be opened.
  """
  import orbax.checkpoint as ocp  # here and below: half a second that a refused config need not wait for

  _silence()
  options = ocp.CheckpointManagerOptions(
    max_to_keep=keep,
    enable_async_checkpointing=False,
    cleanup_tmp_directories=tidy,
    create=False,
    multiprocessing_options=_alone(),
  )
  handlers = {'digest': ocp.JsonCheckpointHandler(multiprocessing_options=_alone())}
  gigabytes = {'save_concurrent_gb': 1 + largest // 10**9} if largest else {}
  handlers['state'] = ocp.StandardCheckpointHandler(multiprocessing_options=_alone(), **gigabytes)
  directory.mkdir(parents=True, exist_ok=True)  # as Orbax asks of a process that is alone
  damaged = lambda error: (
    f'{directory}: what a _CHECKPOINT_METADATA says is damaged ({cause(error)}); delete those files there, without '
    'which the checkpoints can be read and are checked as before'
  )
  with in_a_sentence(damaged, through=(OSError,)):  # a full or read-only disk, too many open files: nothing is damaged
    # Orbax reads what it wrote about every step.
    opened = ocp.CheckpointManager(directory.absolute(), options=options, item_handlers=handlers)
  with opened:
    yield opened


@functools.cache
def _silence():
  """What goes wrong is raised by `save` and `read`. Orbax and absl also log it, as they do every save; and after a
  failure Orbax leaves tasks behind, and closes an event loop, or half of one, to which TensorStore's threads still
  report."""
  logging.getLogger('absl').setLevel(logging.CRITICAL)
  theirs = re.compile('orbax|tensorstore|OCDBT')
  logging.getLogger('asyncio').addFilter(lambda record: not theirs.search(logging.Formatter().format(record)))
  before = sys.unraisablehook
  of_loop = lambda said: 'BaseEventLoop' in repr(said.object) or str(said.exc_value) == 'Event loop is closed'
  sys.unraisablehook = lambda said: None if of_loop(said) else before(said)


def _alone():
  """Every process reads and writes on its own; of several hosts only the first does (`loop`)."""
  import orbax.checkpoint as ocp

  me = jax.process_index()
  return ocp.options.MultiprocessingOptions(primary_host=me, active_processes={me}, barrier_sync_key_prefix=f'host{me}')


def _flat(leaves) -> dict:
  """Leaves by number, so that restoring does not depend on node types; without empty ones, which Orbax rejects."""
  return {f'{i:05d}': leaf for i, leaf in enumerate(leaves) if leaf.size}


def _seal(state, notes) -> str:
  return hashlib.sha256((checksum(state) + json.dumps(notes, sort_keys=True)).encode()).hexdigest()


def save(opened, step, state, notes):
  """Saves a state, as `key_data.unwrapped` makes it, and JSON-ready `notes` as `step`.

  Raises:
    StoreError: if it cannot be written; older checkpoints are kept.
  """
  import orbax.checkpoint as ocp

  # Orbax copies a NumPy array before it writes it. It would write a JAX array on several devices in parts, some of
  # them on other hosts.
  in_one_place = lambda a: isinstance(a, jax.Array) and len(a.sharding.device_set) == 1
  state = jax.tree.map(lambda a: a if in_one_place(a) else np.asarray(a), state)
  notes = {**notes, 'step': step}
  seal = {'notes': notes, 'sha256': _seal(state, notes)}
  arrays = ocp.args.StandardSave(_flat(jax.tree.leaves(state)))
  args = ocp.args.Composite(state=arrays, digest=ocp.args.JsonSave(seal))
  try:
    opened.save(step, args=args)
    files.sync(opened.directory)  # Orbax makes the contents durable, not the name
  except Exception as error:  # Orbax and TensorStore raise many types for one full disk
    raise StoreError(
      f'checkpoint {step} cannot be written to {opened.directory} ({cause(error)}); free space or repair it and start '
      'again: the checkpoints before it are kept'
    ) from error


class Damaged(ValueError):
  """A checkpoint that cannot be read."""


def read(opened, step, like):
  """(state, notes) of one step, with the structure of `like`, whose keys are `KeyData`.

  Raises:
    Damaged: if it is.
  """
  try:
    return _read(opened, step, like)
  except Exception as error:  # damage raises many types, depending on the file that is hit
    raise Damaged(cause(error)) from error


def _read(opened, step, like):
  import orbax.checkpoint as ocp

  found = opened.restore(step, args=ocp.args.Composite(digest=ocp.args.JsonRestore()))
  wanted = [np.zeros(s.shape, s.dtype) for s in jax.tree.leaves(like)]
  stored, count = opened.item_metadata(step).state, len(_flat(wanted))
  if stored is not None and len(stored) < count:
    raise ValueError('it has fewer arrays than the method has, as of another version of it')
  more = stored is not None and len(stored) > count  # of a version whose states had more in them
  target = [np.zeros(s.shape, s.dtype) for _, s in sorted(stored.items())] if more else wanted
  tree = opened.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore(_flat(target)))).state
  leaves = [np.asarray(tree.get(f'{i:05d}', leaf)) for i, leaf in enumerate(target)]
  as_state = lambda leaves: jax.tree.unflatten(jax.tree.structure(like), leaves)
  notes = dict(found.digest['notes'])
  if _seal(leaves if more else as_state(leaves), notes) != found.digest['sha256'] or notes.pop('step', step) != step:
    raise ValueError('its contents do not match their checksum')
  return as_state(_still_wanted(leaves, wanted) if more else leaves), notes


def _still_wanted(stored, wanted) -> list:
  """Those of the stored leaves that correspond to the wanted ones, in their order, if only one choice fits.

  Servers of earlier versions kept in their states what they now read off the data.
  """

  def places(stored, wanted):
    found, at = [], 0
    for leaf in wanted:
      while stored[at].shape != leaf.shape or stored[at].dtype != leaf.dtype:
        at += 1
      found.append(at)
      at += 1
    return found

  try:
    first, last = places(stored, wanted), places(stored[::-1], wanted[::-1])
  except IndexError:
    raise ValueError('it holds the state of another method') from None
  if first != [len(stored) - 1 - at for at in reversed(last)]:
    raise ValueError('it was written by an earlier version, and which of its arrays are which cannot be told')
  return [stored[at] for at in first]


def cause(error) -> str:
  """What the operating system said, where an exception tells it somewhere; otherwise its type and first line."""
  text = str(error)
  for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EMFILE, errno.EIO):
    if os.strerror(number) in text:
      return os.strerror(number)
  return traceback.format_exception_only(error)[0].splitlines()[0][:150]


def restore(opened, like, warn, tidy=True, accept=lambda step, notes: None):
  """The newest intact checkpoint; damaged newer ones are reported through `warn`.

  Args:
    opened: from `manager`.
    like: step -> pytree of arrays or ShapeDtypeStructs with the structure of the state saved there.
    warn: called with one sentence per damaged checkpoint.
    tidy: delete damaged ones where there is an intact one, so that their numbers are free.
    accept: (step, notes) -> None; raises a ConfigError where another file of the run is inconsistent with them.

  Returns:
    (step, state, notes), or None if there is no checkpoint.

  Raises:
    ConfigError: if none can be read or is accepted. None is deleted then: the program may have changed instead.
  """
  damaged, refused = [], None
  for step in sorted(opened.all_steps(), reverse=True):
    wanted = like(step)  # what this raises, an older state would not mend
    try:
      state, notes = read(opened, step, wanted)
      accept(step, notes)
    except ConfigError as error:
      refused = error
      warn(f'{error}; trying the checkpoint before {step}')
      damaged.append(step)
    except Damaged as error:
      reason = str(error)
      warn(f'checkpoint {step} is damaged ({reason}); trying the next older one')
      damaged.append(step)
    else:
      for later in damaged if tidy else ():
        opened.delete(later)
      return step, state, notes
  if refused:
    raise ConfigError(f'{refused}, and no checkpoint is older than that; restore it, or choose another workdir')
  if damaged:
    raise ConfigError(
      f'workdir={opened.directory.parent}: no checkpoint can be read ({reason}); undo what was changed in the method '
      'or its models since, or choose another workdir'
    )
  return None


def replace(directory, state, notes):
  """Saves a state, as `save`, as the only one of a directory."""
  with manager(directory, keep=1) as opened:
    save(opened, (opened.latest_step() or 0) + 1, state, notes)


def only(directory, like):
  """(state, notes) that `replace` has written; `like`: notes -> pytree of ShapeDtypeStructs.

  Raises:
    ConfigError: if it is not there, cannot be read, or is not like that.
  """
  import orbax.checkpoint as ocp

  def likewise(step):
    return like(opened.restore(step, args=ocp.args.Composite(digest=ocp.args.JsonRestore())).digest['notes'])

  found = None
  if directory.is_dir():
    with manager(directory, keep=1, tidy=False) as opened:
      found = restore(opened, likewise, files.warn, tidy=False)
  if found is None:
    raise ConfigError(f'path={str(directory.parent)!r} holds no {directory.name!r}; give what History.save has written')
  return found[1:]
