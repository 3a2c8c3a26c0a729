"""CSV and Parquet files as frames of pandas, checked for what pandas would read without a word.

A frame comes with `place`, row -> text: where the reader of a message finds the row.
"""

import csv
import io
import re
from typing import Any

from fedkd.checks import npz
from fedkd.data.limits import check_size
from fedkd.errors import ConfigError, in_a_sentence, reason_of


def read(path: Any, name: str, limit: float) -> tuple:
  """(frame, place) of a file .csv (or .tsv) or .parquet, in which all rows have all columns.

  Args:
    path: pathlib.Path.
    name: of the set, for the messages.
    limit: bytes that the file may have, and a Parquet file unpacked.

  Raises:
    ConfigError: for another kind of file, one that cannot be read, and columns that are no plain values.
  """
  kinds = {'.csv': _csv, '.tsv': _csv, '.txt': _csv, '.parquet': _parquet}
  if path.suffix.lower() not in kinds:
    raise ConfigError(f'data.name={name} is none of .csv and .parquet; convert it, or name it by what it holds')
  with in_a_sentence(lambda error: f'data.name={name} cannot be read ({reason_of(error)}); check the path'):
    npz.check_file(path, limit)
  return kinds[path.suffix.lower()](path, name, limit)


def _csv(path, name, limit) -> tuple:
  import pandas as pd

  del limit  # the file has been weighed
  text = _text(path, name)
  separator = max(',;\t', key=text.partition('\n')[0].count)
  header, lines, codes = _scanned(text, separator, name)
  reading = {'sep': separator, 'index_col': False, 'skipinitialspace': True, 'low_memory': False}
  with in_a_sentence(lambda error: f'data.name={name} cannot be read ({reason_of(error)}); write it as plain CSV'):
    frame = pd.read_csv(io.StringIO(text), names=header, header=0, dtype=dict.fromkeys(codes, str), **reading)
  if len(frame) != len(lines):
    raise ConfigError(f'data.name={name} has {len(lines)} lines and {len(frame)} rows; remove lines of spaces only')
  return frame, lambda row: f'line {lines[row]}'


def _text(path, name) -> str:
  """The text of a file, without a byte-order mark."""
  content = path.read_bytes()
  try:
    text = content.decode('utf-8-sig')
  except UnicodeDecodeError as error:
    line = content[: error.start].count(b'\n') + 1
    of = 'UTF-16' if content[:2] in (b'\xff\xfe', b'\xfe\xff') else 'ISO-8859-1'
    raise ConfigError(
      f'data.name={name}, line {line}: the byte 0x{content[error.start]:02x} is not UTF-8; convert the file, for '
      f'example with iconv -f {of} -t UTF-8'
    ) from error
  if '\0' in text:
    raise ConfigError(f'data.name={name} has zero bytes, so it is no text; write it as plain CSV in UTF-8')
  return text


def _scanned(text, separator, name) -> tuple:
  """(column names, the first line of each row, the columns of codes): pandas would fill up short lines, number equal
  names, and take 01 and 1 for one."""
  reader = csv.reader(io.StringIO(text, newline=''), delimiter=separator, skipinitialspace=True, strict=True)
  header: list = []
  lines, before = [], 0
  codes: set[str] = set()
  try:
    for fields in reader:
      if fields and not header:
        header = _header([field.strip() for field in fields], name)
      elif fields and len(fields) != len(header):
        raise ConfigError(
          f'data.name={name}, line {before + 1}: {_count(len(fields), "field")} for {_count(len(header), "column")}; '
          f'mend the line, and put fields that contain {separator!r} in double quotes'
        )
      elif fields:
        lines.append(before + 1)
        codes.update(column for column, field in zip(header, fields, strict=True) if _is_code(field))
      before = reader.line_num
  except csv.Error as error:
    raise ConfigError(f'data.name={name}, line {before + 1}: {error}; mend the quotes of that row') from error
  if not lines:
    raise ConfigError(f'data.name={name} has no rows; give a line of column names, and below it a line for each row')
  return header, lines, codes


def _is_code(field) -> bool:
  """Whether digits begin with 0, as of no number."""
  return len(field) > 1 and field[0] == '0' and field.strip().isdigit()


def _count(number, what) -> str:
  return f'{number} {what}{"" if number == 1 else "s"}'


def _header(names, name) -> list:
  if '' in names:
    raise ConfigError(
      f'data.name={name}: column {names.index("") + 1} has no name; name it in the first line, or leave it out '
      '(pandas: to_csv(index=False))'
    )
  if twice := [one for one in names if names.count(one) > 1]:
    raise ConfigError(f'data.name={name} has two columns {twice[0]!r}; rename one of them in the first line')
  return names


def _check_index(names, name):
  """Checks that a Parquet file has no index of pandas, which may order rows by their labels.

  Raises:
    ConfigError: if it has.
  """
  if index := [one for one in names if re.fullmatch(r'__index_level_\d+__', one)]:
    raise ConfigError(
      f'data.name={name}: column {index[0]!r} is the index of a pandas frame; write it with to_parquet(index=False)'
    )


def _parquet(path, name, limit) -> tuple:
  import pyarrow.parquet as parquet

  with in_a_sentence(lambda error: f'data.name={name} cannot be read ({reason_of(error)}); write it again as Parquet'):
    file = parquet.ParquetFile(path)
    held = file.metadata
    unpacked = sum(held.row_group(i).total_byte_size for i in range(held.num_row_groups))
  check_size(name, max(unpacked, 8 * held.num_rows * held.num_columns), limit)
  _check_index(_header(list(file.schema_arrow.names), name), name)
  with in_a_sentence(lambda error: f'data.name={name} cannot be read ({reason_of(error)}); write it again as Parquet'):
    table = file.read()
    table.validate(full=True)  # text that is no UTF-8 would be found later, or never
    return table.to_pandas(ignore_metadata=True), lambda row: f'row {row + 1}'
