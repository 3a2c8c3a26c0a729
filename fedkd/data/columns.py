"""Single columns of a table as arrays: labels, numbers, owners, test rows.

Columns are Series of pandas; `where(row, column)` begins a message about a value.
"""

import re
import warnings

import numpy as np

from fedkd.checks.kinds import short
from fedkd.checks.numeric import OFFSET, in_precision
from fedkd.errors import ConfigError

MOST_TEXTS = 100  # different texts of a column that becomes numbers: more are names or sentences
FEW_TEXTS, MANY_ALONE = 10, 0.5  # as many different texts, or that share of the rows, draw no warning
LEFT_OUT = 'or leave the column out with data.columns'


def labels(column, where) -> tuple:
  """(int64[N], None) of integers, (int64[N], class names) of text.

  Raises:
    ConfigError: for a label that is missing or a float.
  """
  _check_filled(column, where, 'label', 'label the row, or leave it out')
  if _is_float(column):
    odd = int(np.argmax(column != np.floor(column)))
    raise ConfigError(
      f'{where(odd, column.name)}: the label {column.iloc[odd]} is a float, and labels are classes; write whole '
      'numbers or text, such as the ranges that the numbers fall in'
    )
  if _is_integer(column):
    return column.to_numpy(), None
  names, label = np.unique(_texts(column, where), return_inverse=True)
  return label, names.tolist()


def owners(column, where) -> np.ndarray:
  """The owner of each row, int64[N] or text [N].

  Raises:
    ConfigError: for an owner that is missing or a float.
  """
  _check_filled(column, where, 'owner', 'name the owner of the row, or leave it out')
  if _is_float(column):
    raise ConfigError(f'{where(0, column.name)}: the owner {column.iloc[0]} is a float; write whole numbers or text')
  return column.to_numpy() if _is_integer(column) else _texts(column, where)


def is_test(column, where) -> np.ndarray:
  """Which rows are 'test', bool[N].

  Raises:
    ConfigError: for another word than 'train' and 'test'.
  """
  words = np.array([str(value).strip().lower() for value in column])
  odd = np.flatnonzero((words != 'train') & (words != 'test'))
  if len(odd):
    raise ConfigError(f'{where(odd[0], column.name)}: {short(column.iloc[odd[0]])} is neither train nor test; {SPLIT}')
  return words == 'test'


SPLIT = 'write one of them, or leave data.split empty'


def numbers(column, is_train, missing, where) -> np.ndarray:
  """float32[N, 1] of numbers or booleans, float32[N, texts] of text: 1 for a row's own text among those of the training
  rows.

  Args:
    column: Series of N.
    is_train: bool[N].
    missing: 'refuse', 'mean' or 'median'; missing text is then all zeros.
    where: as in this module.

  Raises:
    ConfigError: for numbers among text, or text among numbers, other kinds of values, and missing ones to be refused.
  """
  import pandas as pd

  if missing == 'refuse':
    _check_filled(column, where, 'value', "fill it, or set data.missing to 'mean' or 'median'")
  if _is_boolean(column):  # of objects, if some are missing
    column = pd.Series([np.nan if pd.isna(value) else float(value) for value in column], name=column.name)
  if not pd.api.types.is_numeric_dtype(column):
    values = _texts(column, where)
    parsed = pd.to_numeric(pd.Series(values), errors='coerce').to_numpy()
    is_number, there = ~np.isnan(parsed), column.notna().to_numpy()
    if not is_number[there].all():
      _check_unmixed(column, is_number, there, where)
      _check_notation(values, there, column.name, where)
      return _indicators(values, there, is_train, column.name, where)
    column = pd.Series(np.where(there, parsed, np.nan), name=column.name)
  return _filled(column.astype(np.float64).to_numpy(), is_train, missing, column.name, where)[:, None]


def _filled(x, is_train, missing, name, where) -> np.ndarray:
  absent, limit = np.isnan(x), np.finfo(np.float32).max
  if (odd := np.abs(np.where(absent, 0, x)) > limit).any():
    row = int(odd.argmax())
    raise ConfigError(f'{where(row, name)}: {x[row]} is beyond 32 bits; mend it, {LEFT_OUT}')
  if absent.any():
    known = x[is_train & ~absent]
    if not len(known):
      told = f'{where(int(absent.argmax()), name)}: the value is missing, and no training row has one'
      raise ConfigError(f'{told}; {LEFT_OUT.removeprefix("or ")}')
    x = np.where(absent, np.median(known) if missing == 'median' else known.mean(), x)
  in_precision(f'{where(0, name)} and below: the column', x[is_train], np.dtype(np.float32), f'{OFFSET}, {LEFT_OUT}')
  return x.astype(np.float32)


def _indicators(values, there, is_train, name, where) -> np.ndarray:
  texts = np.unique(values[there & is_train])
  if len(texts) > MOST_TEXTS:
    raise ConfigError(
      f'{where(int(there.argmax()), name)}: text, {len(texts)} different ones, more than {MOST_TEXTS}; write numbers, '
      f'{LEFT_OUT}'
    )
  if len(texts) > max(FEW_TEXTS, MANY_ALONE * there.sum()):
    warnings.warn(
      f'{where(int(there.argmax()), name)} and below: nearly every row has a text of its own ({len(texts)} of '
      f'{there.sum()}), and each becomes a column; leave it out by data.columns, or write dates as numbers',
      stacklevel=2,
    )
  return ((values[:, None] == texts) & there[:, None]).astype(np.float32)


def _check_unmixed(column, is_number, there, where):
  """Checks that no number is among the text; the rarer kind is named."""
  if not is_number[there].any():
    return
  rare = is_number if is_number[there].mean() < 0.5 else ~is_number
  row = int((rare & there).argmax())
  kinds = ('a number', 'text') if is_number[row] else ('text', 'numbers')
  raise ConfigError(
    f'{where(row, column.name)}: {short(column.iloc[row])} is {kinds[0]} among {kinds[1]}; mend it, leave missing '
    f'values empty, {LEFT_OUT}'
  )


def _check_notation(values, there, name, where):
  """Checks that text is not numbers in another notation: 1,5 and 1 500 and 15 % and $15."""
  if all(NUMBER.fullmatch(re.sub(MARKS, '', value)) for value in values[there]):
    row = int(there.argmax())
    raise ConfigError(
      f'{where(row, name)}: {str(values[row])!r} looks like a number in another notation; write all of the column as '
      f'1234.5, {LEFT_OUT}'
    )


MARKS = r"[\s'\N{RIGHT SINGLE QUOTATION MARK}_%$\N{EURO SIGN}\N{POUND SIGN}\N{YEN SIGN}]"
NUMBER = re.compile(r'[-+\N{MINUS SIGN}]?(\d+([.,]\d+)?|\d{1,3}([.,]\d{3})+([.,]\d+)?)')


def _check_filled(column, where, what, remedy):
  if (absent := column.isna().to_numpy()).any():
    told = f'the {what} is missing (empty, NA, null, None or the like)'
    raise ConfigError(f'{where(int(absent.argmax()), column.name)}: {told}; {remedy}')


def _texts(column, where) -> np.ndarray:
  """Text [N] of text or booleans without spaces around it, '' where it is missing.

  Raises:
    ConfigError: for lists, dates and other values.
  """
  values, absent = column.to_numpy(object), column.isna().to_numpy()
  if column.dtype.kind in 'mM':
    raise ConfigError(_unfit(where(0, column.name), 'a date or time'))
  for row in np.flatnonzero(~absent) if column.dtype == object else ():
    if not isinstance(values[row], PLAIN):
      raise ConfigError(_unfit(where(int(row), column.name), WORDS.get(type(values[row]), type(values[row]).__name__)))
  return np.array(['' if missing else str(value).strip() for value, missing in zip(values, absent, strict=True)])


PLAIN = str | bool | int | float | np.generic
WORDS = {np.ndarray: 'a list', list: 'a list', dict: 'a nested column', bytes: 'bytes'}


def _unfit(what, kind) -> str:
  return f'{what}: {kind} is neither a number nor text; write one column for each number, {LEFT_OUT}'


def _is_boolean(column) -> bool:
  there = column[column.notna()]
  return bool(len(there)) and all(isinstance(value, bool | np.bool_) for value in there)


def _is_float(column) -> bool:
  return column.dtype.kind == 'f'


def _is_integer(column) -> bool:
  return column.dtype.kind in 'iu'
