"""Reads MATLAB files of version 5 whose variables are numbers, text and structs of them, without trusting a byte.

SciPy's reader crashes the process on about one in three hundred damaged files; this one checks every size before it
uses it, and knows only what EMNIST's files have.
"""

import math
import zlib

import numpy as np

from fedkd.checks.npz import check_file
from fedkd.data.limits import check_size

MOST_BYTES = 2**32  # of a file
MOST_PARTS = 1000  # variables and fields
MATRIX, COMPRESSED = 14, 15
# Kinds of numbers on disk, by the numbers that the format has for them; and the classes that arrays then have.
STORED = {
  1: 'i1',
  2: 'u1',
  3: 'i2',
  4: 'u2',
  5: 'i4',
  6: 'u4',
  7: 'f4',
  9: 'f8',
  12: 'i8',
  13: 'u8',
  16: 'u1',
  17: 'u2',
}
CLASSES = {6: 'f8', 7: 'f4', 8: 'i1', 9: 'u1', 10: 'i2', 11: 'u2', 12: 'i4', 13: 'u4', 14: 'i8', 15: 'u8'}
STRUCT, TEXT = 2, 4


def load(path, limit) -> dict:
  """The variables of a file: arrays, squeezed; text as str; structs as dicts.

  Raises:
    ConfigError: for more than `limit` bytes, unpacked.
    ValueError: for anything else than such a file; the message says where it ends to be one.
  """
  check_file(path, MOST_BYTES)
  raw = memoryview(path.read_bytes())
  order = {b'IM': '<', b'MI': '>'}.get(bytes(raw[126:128]))
  if order is None:
    raise ValueError('it is not a MATLAB file of version 5')
  variables, at, size, left = {}, 128, 0, [MOST_PARTS]
  while at < len(raw):
    kind, content, at = _element(raw, at, order)
    if kind == COMPRESSED:
      content = _inflated(path, content, size, limit)
      kind, content, _ = _element(content, 0, order)
    size += len(content)
    check_size(f'mat:{path}', size, limit)
    if kind == MATRIX:
      name, value = _matrix(content, order, left)
      variables[name] = value
  return variables


def _inflated(path, packed, size, limit) -> memoryview:
  unpack = zlib.decompressobj()
  content = unpack.decompress(packed, int(limit - size) + 1)
  check_size(f'mat:{path}', size + len(content), limit)
  if not unpack.eof:
    raise ValueError('a compressed variable is cut off')
  return memoryview(content)


def _element(raw, at, order) -> tuple:
  """(type, its bytes, where the next begins) of the element at a place."""
  if at + 8 > len(raw):
    raise ValueError(f'it ends within an element, at byte {at}')
  first, size = (int(n) for n in np.frombuffer(raw[at : at + 8], f'{order}u4'))
  kind, begin = first, at + 8
  if first >> 16:  # a small one, of up to four bytes in its own head
    kind, size, begin = first & 0xFFFF, first >> 16, at + 4
    if size > 4:
      raise ValueError(f'a small element has {size} bytes')
  if begin + size > len(raw):
    raise ValueError(f'an element of {size} bytes does not fit the {len(raw) - begin} that are left')
  following = at + 8 if first >> 16 else begin + size + (-size % 8 if kind != COMPRESSED else 0)
  return kind, raw[begin : begin + size], following


def _matrix(raw, order, left) -> tuple:
  """(name, value) of a matrix element."""
  left[0] -= 1
  if left[0] < 0:
    raise ValueError(f'it has more than {MOST_PARTS} variables and fields')
  _, flags, at = _element(raw, 0, order)
  if len(flags) < 8:
    raise ValueError('a variable has no flags')
  _, dims, at = _element(raw, at, order)
  _, name, at = _element(raw, at, order)
  kind = int(np.frombuffer(flags[:4], f'{order}u4')[0])
  shape = _numbers(5, dims, order).tolist()
  name = bytes(name).decode('latin-1')
  if min(shape, default=-1) < 0:
    raise ValueError(f'{name} has the shape {shape}')
  if kind & 0x800:
    raise ValueError(f'{name} has complex numbers')
  if kind & 0xFF == STRUCT:
    return name, _struct(raw, at, order, shape, left)
  return name, _array(raw, at, order, shape, kind & 0xFF, name)


def _struct(raw, at, order, shape, left) -> dict:
  if math.prod(shape) != 1:
    raise ValueError(f'a struct has the shape {shape}')
  _, length, at = _element(raw, at, order)
  _, names, at = _element(raw, at, order)
  width = int(_numbers(5, length, order)[0]) if len(length) == 4 else 0
  if width < 1 or len(names) % width:
    raise ValueError(f'a struct has names of {width} bytes')
  fields = {}
  for i in range(0, len(names), width):
    kind, content, at = _element(raw, at, order)
    if kind != MATRIX or len(fields) > MOST_PARTS:
      raise ValueError('a field of a struct is not a variable')
    fields[bytes(names[i : i + width]).split(b'\0')[0].decode('latin-1')] = _matrix(content, order, left)[1]
  return fields


def _array(raw, at, order, shape, kind, name):
  stored, content, _ = _element(raw, at, order) if at < len(raw) else (2, raw[:0], at)
  values = _numbers(stored, content, order)
  if kind not in CLASSES and kind != TEXT:
    raise ValueError(f'{name or "a field"} is of class {kind}, neither numbers nor text nor a struct')
  if len(values) != math.prod(shape):
    raise ValueError(f'{name or "a field"} has {len(values)} numbers for the shape {shape}')
  if kind == TEXT:
    return ''.join(map(chr, values.astype(np.uint16).tolist()))
  with np.errstate(invalid='ignore'):
    return np.squeeze(values.astype(CLASSES[kind]).reshape(shape, order='F'))


def _numbers(kind, content, order) -> np.ndarray:
  if kind not in STORED:
    raise ValueError(f'an element is of type {kind}, which is not a numeric type')
  dtype = np.dtype(order + STORED[kind])
  if len(content) % dtype.itemsize:
    raise ValueError(f'an element of {dtype} has {len(content)} bytes')
  return np.frombuffer(content, dtype)
