"""Checkpoints survive, or are recognised as damaged, whatever file is hit."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from fedkd.errors import ConfigError
from fedkd.experiment.storage import checkpoint

STATE = ({'a': jnp.arange(12.0).reshape(3, 4), 'b': ()}, jnp.int32(7), {'empty': jnp.zeros((0, 3))})
NOTES = {'examples': [1.5], 'round': 3}


def states(step):
  return ({'a': STATE[0]['a'] + step, 'b': ()}, jnp.int32(step), STATE[2])


def save_two(directory):
  with checkpoint.manager(directory) as saved:
    for step in (2, 4):
      checkpoint.save(saved, step, states(step), {**NOTES, 'round': step})


def restore(directory, warnings):
  with checkpoint.manager(directory) as saved:
    return checkpoint.restore(saved, lambda step: STATE, warnings.append)


def test_round_trip(tmp_path):
  save_two(tmp_path)
  step, state, notes = restore(tmp_path, [])
  assert (step, notes) == (4, {**NOTES, 'round': 4})
  assert checkpoint.checksum(state) == checkpoint.checksum(states(4))
  assert state[0]['b'] == ()


def test_nothing_to_restore(tmp_path):
  assert restore(tmp_path, []) is None


def test_one_flipped_bit_or_a_cut_in_any_file_is_harmless_or_noticed(tmp_path):
  """Either the newest checkpoint's content survives exactly, or the older one is used, with a warning."""
  save_two(tmp_path / 'good')
  files = sorted(p.relative_to(tmp_path / 'good') for p in (tmp_path / 'good' / '4').rglob('*') if p.is_file())
  noticed = 0
  for number, name in enumerate(files):
    for kind in ('flip', 'cut'):
      directory = tmp_path / f'{number}{kind}'
      save_two(directory)
      target = directory / name
      if not target.exists():  # Orbax names its data files at random: take the one of the same place
        target = sorted(p for p in (directory / name).parent.iterdir() if p.is_file())[0]
      content = bytearray(target.read_bytes())
      if not content:
        continue
      if kind == 'flip':
        content[len(content) // 2] ^= 4
      target.write_bytes(content if kind == 'flip' else content[: len(content) // 2])
      warnings = []
      step, state, notes = restore(directory, warnings)
      assert checkpoint.checksum(state) == checkpoint.checksum(states(step))
      assert notes['round'] == step
      assert step == 4 or 'checkpoint 4 is damaged' in warnings[0]
      noticed += step == 2
  assert noticed >= 4


def test_where_none_can_be_read_nothing_is_deleted(tmp_path):
  """As after a change of the method: the shapes are others."""
  save_two(tmp_path)
  other = (*STATE[:2], {'empty': jnp.zeros((2, 3))})
  with (
    checkpoint.manager(tmp_path) as saved,
    pytest.raises(ConfigError, match=r'no checkpoint can be read .*; undo what was changed in the method'),
  ):
    checkpoint.restore(saved, lambda step: other, lambda text: None)
  assert restore(tmp_path, [])[0] == 4


def test_arrays_that_another_version_did_not_have_are_told(tmp_path):
  save_two(tmp_path)
  told = []
  with checkpoint.manager(tmp_path) as saved, pytest.raises(ConfigError, match='no checkpoint can be read'):
    checkpoint.restore(saved, lambda step: (*STATE, jnp.ones(3)), told.append)
  assert all('it has fewer arrays than the method has, as of another version of it' in text for text in told)


def test_who_only_reads_clears_nothing_away(tmp_path):
  save_two(tmp_path)
  (tmp_path / '4' / 'digest' / 'metadata').write_text('{')
  with checkpoint.manager(tmp_path, tidy=False) as saved:
    assert checkpoint.restore(saved, lambda step: STATE, lambda text: None, tidy=False)[0] == 2
    assert sorted(saved.all_steps()) == [2, 4]


def test_digest_sees_shape_dtype_and_value():
  base = checkpoint.checksum([np.zeros(4, np.float32)])
  assert base != checkpoint.checksum([np.zeros((2, 2), np.float32)])
  assert base != checkpoint.checksum([np.zeros(4, np.int32)])
  assert base != checkpoint.checksum([np.array([0, 0, 0, -0.0], np.float32)])


@pytest.mark.parametrize('change', [{'item_handlers': 3}, {'metrics': 7}, {'commit_timestamp_nsecs': 10**30}])
def test_damaged_words_about_a_checkpoint_are_named_and_can_be_deleted(tmp_path, change):
  save_two(tmp_path)
  paths = sorted(tmp_path.glob('*/_CHECKPOINT_METADATA'))
  paths[1].write_text(json.dumps({**json.loads(paths[1].read_text()), **change}))
  with pytest.raises(ConfigError, match=r'_CHECKPOINT_METADATA says is damaged \(.*\); delete those files') as caught:
    restore(tmp_path, [])
  assert '\n' not in str(caught.value)
  for path in paths:
    path.unlink()
  step, state, _ = restore(tmp_path, [])
  assert (step, checkpoint.checksum(state)) == (4, checkpoint.checksum(states(4)))


EARLIER = {'a': jnp.arange(6.0), 'public': jnp.arange(5), 'rows': jnp.arange(4) + 9, 'size': jnp.int32(3)}


@pytest.mark.parametrize(
  ('now', 'message'),
  [
    (('a', 'rows'), ''),
    (('a', 'public', 'size'), ''),
    (('rows', 'size'), ''),
    (('a', 'twin'), 'was written by an earlier version, and which of its arrays are which cannot be told'),
    (('a', 'other'), 'holds the state of another method'),
    (('size', 'size2'), 'holds the state of another method'),
  ],
)
def test_what_a_state_no_longer_has_is_left_out(tmp_path, now, message):
  """Of a checkpoint of an earlier version, by shapes and dtypes alone, if they leave no choice."""
  stored = {**EARLIER, 'twins': jnp.arange(5) + 20} if 'twin' in now else EARLIER
  like = {'twin': jnp.zeros(5, int), 'other': jnp.zeros(7), 'size2': jnp.int32(0)}
  with checkpoint.manager(tmp_path) as saved:
    checkpoint.save(saved, 1, stored, NOTES)
    read = lambda: checkpoint.read(saved, 1, {name: {**EARLIER, **like}[name] for name in now})
    if message:
      with pytest.raises(ValueError, match=message):
        read()
      return
    state, notes = read()
  assert notes == NOTES
  assert {name: leaf.tolist() for name, leaf in state.items()} == {name: EARLIER[name].tolist() for name in now}
