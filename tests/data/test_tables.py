"""Tables: what becomes of each column, and what is refused, with its line and column."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

from fedkd.data import sources, tables
from fedkd.errors import ConfigError

ROWS = """age,city,height,label,who
31,Bern,1.5,yes,u2
44,Rome,,no,u1
5,Bern,1.75,no,u2
60,,1.25,yes,u3
71,Rome,2.0,yes,u1
18,Oslo,1.0,no,u2
"""
TRAIN = ['train', 'train', 'train', 'test', 'train', 'test']


def write(path, text=ROWS, encoding='utf-8'):
  path.write_bytes(text.encode(encoding))
  return path


def with_split(text=ROWS, words=TRAIN):
  head, *rows = text.splitlines()
  return '\n'.join([f'{head},part', *(f'{row},{word}' for row, word in zip(rows, words, strict=True))])


def load(path, **roles):
  return sources.load(f'table:{path}', roles=tables.Roles(**roles), label=roles.get('label', 'label'))


def test_columns_become_numbers_and_text_one_number_for_each_text_of_training_rows(tmp_path):
  path = write(tmp_path / 'a.csv', with_split())
  source = load(path, user='who', split='part', missing='median')
  assert source.class_names == ('no', 'yes')
  assert source.train_label.tolist() == [1, 0, 0, 1]
  assert source.test_label.tolist() == [1, 0]
  median = 1.75  # of the training rows: the height of the test rows is not used
  np.testing.assert_array_equal(
    source.train_image, np.float32([[31, 1, 0, 1.5], [44, 0, 1, median], [5, 1, 0, 1.75], [71, 0, 1, 2]])
  )
  np.testing.assert_array_equal(source.test_image, np.float32([[60, 0, 0, 1.25], [18, 0, 0, 1]]))  # no training city
  assert [source.origins[k] for k in source.origin] == ['u2', 'u1', 'u2', 'u1']
  mean = load(path, split='part', features=('height',), missing='mean')
  np.testing.assert_allclose(mean.train_image[1], 1.75)
  assert mean.train_image.shape == (4, 1)
  assert mean.origin is None


def test_test_rows_are_a_share_of_each_class_and_always_the_same(tmp_path):
  random = np.random.default_rng(0)
  frame = pd.DataFrame({'x': np.arange(100.0), 'label': random.permutation(np.repeat([7, 8, 9], [70, 28, 2]))})
  frame.to_csv(tmp_path / 'a.csv', index=False)
  source, again = load(tmp_path / 'a.csv'), load(tmp_path / 'a.csv')
  assert np.bincount(source.test_label).tolist() == [14, 5]
  assert np.bincount(source.train_label).tolist() == [56, 23, 2]
  assert source.class_names == ('7', '8', '9')
  x = np.concatenate([source.train_image, source.test_image])[:, 0]
  assert sorted(x.tolist()) == list(range(100))
  np.testing.assert_array_equal(source.test_image, again.test_image)
  whole = load(tmp_path / 'a.csv', test=0.0)
  assert len(whole.train_label) == 100
  assert len(whole.test_label) == 0


@pytest.mark.parametrize('change', ['mark', 'windows', 'semicolons', 'tabs', 'spaces', 'quotes', 'blank lines'])
def test_other_forms_of_csv_are_the_same_table(tmp_path, change):
  text = ROWS
  forms = {
    'mark': '\ufeff' + text,
    'windows': text.replace('\n', '\r\n'),
    'semicolons': text.replace(',', ';'),
    'tabs': text.replace(',', '\t'),
    'spaces': text.replace(',', ', '),
    'quotes': text.replace('Bern', '"Bern"').replace('label', '"label"'),
    'blank lines': text.replace('\n', '\n\n'),
  }
  usual = load(write(tmp_path / 'a.csv'), missing='mean', user='who')
  other = load(write(tmp_path / 'b.csv', forms[change]), missing='mean', user='who')
  for one, two in zip(usual[1:8], other[1:8], strict=True):
    np.testing.assert_array_equal(one, two)


def test_parquet_is_the_same_table(tmp_path):
  path = write(tmp_path / 'a.csv')
  frame = pd.read_csv(path)
  frame['city'] = frame.city.astype('category')
  frame['old'] = frame.age > 40
  frame.to_csv(tmp_path / 'b.csv', index=False)
  frame.to_parquet(tmp_path / 'b.parquet')
  usual, other = (load(tmp_path / name, missing='mean', user='who') for name in ('b.csv', 'b.parquet'))
  assert usual.train_image.shape[1] == 6  # age, three cities, height, old
  for one, two in zip(usual[1:8], other[1:8], strict=True):
    np.testing.assert_array_equal(one, two)


REFUSED = {
  'short line': (ROWS.replace('5,Bern,1.75,no,u2', '5,Bern,1.75,no'), {}, r', line 4: 4 fields for 5 columns; mend'),
  'long line': (ROWS.replace('60,,', '60,,,'), {}, r', line 5: 6 fields for 5 columns; mend the line, and put fields'),
  'open quote': (ROWS.replace('Oslo', '"Oslo'), {}, r', line 7: unexpected end of data; mend the quotes of that row'),
  'no label': (
    ROWS.replace('1.75,no', '1.75,'),
    {},
    r", line 4, column 'label': the label is missing .*; label the row",
  ),
  'no owner': (
    ROWS.replace('yes,u3', 'yes,'),
    {'user': 'who'},
    r", line 5, column 'who': the owner is missing .*; name",
  ),
  'mixed': (ROWS.replace('71,', 'old,'), {}, r", line 6, column 'age': 'old' is text among numbers; mend it, leave"),
  'mixed text': (
    ROWS.replace('Oslo', '12'),
    {'missing': 'mean'},
    r", line 7, column 'city': '12' is a number among text",
  ),
  'missing': (ROWS, {}, r", line 5, column 'city': the value is missing .*; fill it, or set data.missing to 'mean' or"),
  'no column': (
    ROWS,
    {'label': 'class'},
    r" has no column 'class'; set data.label to one of age, city, height, label, who",
  ),
  'misspelt': (ROWS, {'label': 'lable'}, r" has no column 'lable'; is it 'label'\? Else set data.label to one of age"),
  'no user': (
    ROWS,
    {'user': 'patient'},
    r" has no column 'patient'; set data.user to one of age, city, height, label, who",
  ),
  'no feature': (ROWS, {'features': ('age', 'x')}, r" has no column 'x'; set data.columns to one of age, city, height"),
  'both': (
    ROWS,
    {'features': ('age', 'label')},
    r"^data.columns has 'label', which is data.label; leave it out of one",
  ),
  'twice': (ROWS, {'user': 'label'}, r'^data.label, data.user and data.split name one column twice, .*; give each its'),
  'float': (ROWS, {'label': 'age', 'features': ('height',), 'missing': 'mean'}, None),
  'float labels': (
    ROWS.replace('31,', '31.5,'),
    {'label': 'age'},
    r"line 2, column 'age': the label 31.5 is a float, ",
  ),
  'whole floats': (ROWS.replace('31,', '31.0,'), {'label': 'age'}, r"line 2, column 'age': the label 31.0 is a float"),
  'split': (ROWS, {'split': 'who'}, r"line 2, column 'who': 'u2' is neither train nor test; write one of them"),
  'no training rows': (
    'x,y,part\n1,a,test\n2,b,test\n',
    {'label': 'y', 'split': 'part'},
    r"line 2, column 'part' and below: all rows are test; write train for those to learn from",
  ),
  'a number for the split': (
    'x,y,part\n1,a,0\n2,b,1\n',
    {'label': 'y', 'split': 'part'},
    r'0 is neither train nor test',
  ),
  'same names': (ROWS.replace('city', 'age'), {}, r" has two columns 'age'; rename one of them in the first line"),
  'index': (ROWS.replace('age,', ','), {}, r': column 1 has no name; name it in the first line, or leave it out'),
  'no rows': ('age,label\n', {}, r' has no rows; give a line of column names, and below it a line for each row'),
  'empty': ('', {}, r' has no rows; give a line of column names'),
  'nothing to learn from': ('label\na\nb\n', {}, r" has no column to learn 'label' from, only label; add one"),
  'infinite': (ROWS.replace('31,', '1e60,'), {'missing': 'mean'}, r"line 2, column 'age': 1e\+60 is beyond 32 bits"),
  'seconds': (
    ROWS.replace('age', 'time')
    .replace('31,', '1700000031,')
    .replace('44,', '1700000044,')
    .replace('\n5,', '\n1700000005,')
    .replace('60,', '1700000060,')
    .replace('71,', '1700000071,')
    .replace('18,', '1700000018,'),
    {'missing': 'mean'},
    r"line 2, column 'time' and below: the column varies by .* around 17.*, which float32 rounds away; subt",
  ),
  'zero bytes': (ROWS.replace('Oslo', '\0'), {}, r' has zero bytes, so it is no text; write it as plain CSV in UTF-8'),
}


@pytest.mark.parametrize(('text', 'roles', 'match'), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_named_with_its_line_and_column(tmp_path, text, roles, match):
  path = write(tmp_path / 'a.csv', text)
  if match is None:
    assert load(path, **{**roles, 'test': 0.0}).classes == 6
    return
  with pytest.raises(ConfigError, match=match) as refused:
    load(path, **roles)
  assert '\n' not in str(refused.value)
  assert 'a.csv' in str(refused.value) or str(refused.value).startswith(('data.columns', 'data.label'))


def test_other_encodings_are_refused_with_the_command(tmp_path):
  for encoding, match in (
    ('iso-8859-1', r', line 3: the byte 0xfc is not UTF-8; convert the file, for example with iconv -f ISO-8859-1 -t'),
    ('utf-16', r', line 1: the byte 0xff is not UTF-8; .* iconv -f UTF-16 -t UTF-8$'),
  ):
    with pytest.raises(ConfigError, match=match):
      load(write(tmp_path / 'a.csv', ROWS.replace('Rome', 'Zürich'), encoding))


def test_many_texts_are_no_category(tmp_path):
  lines = ['name,label', *(f'n{i},{"ab"[i % 2]}' for i in range(300))]
  with pytest.raises(ConfigError, match=r", line 2, column 'name': text, 240 different ones, more than 100; write num"):
    load(write(tmp_path / 'a.csv', '\n'.join(lines)))


@pytest.mark.parametrize(
  ('values', 'match'),
  [
    (
      [[1.0, 2.0]] * 6,
      r"row 1, column 'odd': a list is neither a number nor text; write one column for each number, or",
    ),
    ([{'a': 1}] * 6, r"row 1, column 'odd': a nested column is neither"),
    (pd.date_range('2020-01-01', periods=6), r"row 1, column 'odd': a date or time is neither"),
    ([None] * 6, r"row 1, column 'odd': the value is missing, and no training row has one; leave the column out with"),
  ],
)
def test_parquet_of_other_values_is_refused_unless_they_are_left_out(tmp_path, values, match):
  pd.DataFrame({'x': range(6), 'odd': values, 'label': list('aabbab')}).to_parquet(tmp_path / 'a.parquet')
  with pytest.raises(ConfigError, match=match):
    load(tmp_path / 'a.parquet', missing='mean')
  assert load(tmp_path / 'a.parquet', features=('x',)).classes == 2


def test_files_that_are_none_or_too_large(tmp_path):
  (tmp_path / 'a.parquet').write_bytes(b'PAR1 broken')
  for name, match in (
    ('a.parquet', r'data.name=table:.*a.parquet cannot be read \(.*\); write it again as Parquet'),
    ('none.csv', r'data.name=table:.*none.csv cannot be read \(.*No such file.*\); check the path'),
    ('a.xlsx', r'is none of .csv and .parquet; convert it'),
  ):
    with pytest.raises(ConfigError, match=match):
      load(tmp_path / name)
  pd.DataFrame({'x': np.zeros(10**5), 'label': 0}).to_parquet(tmp_path / 'b.parquet')
  with pytest.raises(ConfigError, match=r'b.parquet has 0.0 GB of examples, more than data.limit=0.001; raise it'):
    sources.load(f'table:{tmp_path / "b.parquet"}', limit=1e6)
  with pytest.raises(ConfigError, match=r'a.csv cannot be read \(it has 0.0 GB, more than 0.0\); check the path'):
    sources.load(f'table:{write(tmp_path / "a.csv")}', limit=10)


@pytest.mark.parametrize(
  ('name', 'match'),
  [
    ('C:\\data\\mine.npz', r'does not say what the file is; write npz:C:\\data\\mine.npz$'),
    ('csv:mine.csv', r'^data.name=csv:mine.csv has csv, which is no kind of data; write table:mine.csv$'),
    ('mine.csv', r'write table:mine.csv$'),
    ('D:\\photos', r'does not say what the folder is; write folder:D:\\photos or domains:D:\\photos$'),
    ('npz:C:\\none\\mine.npz', r'^data.name=npz:C:\\none\\mine.npz cannot be read '),
    ('table:C:\\none\\mine.csv', r'^data.name=table:C:\\none\\mine.csv cannot be read '),
  ],
)
def test_paths_with_drives_and_without_a_kind(name, match):
  with pytest.raises(ConfigError, match=match):
    sources.load(name)


def test_only_tables_have_columns():
  with pytest.raises(
    ConfigError, match=r"^data.user='who' names columns, and data.name=mnist_5k has none; leave it em"
  ):
    sources.load('mnist_5k', roles=tables.Roles(user='who'))


@pytest.mark.parametrize(
  'texts',
  ['1,5 2,5 1,25', '1.500,5 2.500,0 3.000,1', '1,500 2,500 12,000', '10% 20% 15%', '$10 $20 $5', '\u22121 \u22122 3,0'],
)
def test_numbers_in_another_notation_are_no_categories(tmp_path, texts):
  values = texts.split()
  pd.DataFrame({'x': values, 'label': ['a', 'b', 'a']}).to_csv(tmp_path / 'a.csv', index=False, sep=';')
  with pytest.raises(
    ConfigError, match=rf"line 2, column 'x': '{re.escape(values[0])}' looks like a number in another"
  ):
    load(tmp_path / 'a.csv', test=0.0)


@pytest.mark.parametrize('texts', ['10-20 20-30 10-20', '1.2.3 1.2.4 1.2.3', '10.0.0.1 10.0.0.2 x', '1/2 1/4 1/2'])
def test_names_with_digits_are_categories(tmp_path, texts):
  pd.DataFrame({'x': texts.split(), 'label': ['a', 'b', 'a']}).to_csv(tmp_path / 'a.csv', index=False)
  assert load(tmp_path / 'a.csv', test=0.0).train_image.sum(1).tolist() == [1, 1, 1]


def test_codes_that_begin_with_zero_are_text_unless_they_are_learned_from(tmp_path):
  """01 and 1 are two owners, and two classes; 0 is a number."""
  path = write(tmp_path / 'a.csv', 'x,zero,label,who\n01,0,01,007\n10,1,1,7\n2,0,2,8\n')
  source = load(path, user='who', test=0.0)
  assert source.class_names == ('01', '1', '2')
  assert [source.origins[k] for k in source.origin] == ['007', '7', '8']
  np.testing.assert_array_equal(source.train_image, np.float32([[1, 0], [10, 1], [2, 0]]))


def test_spaces_around_a_word_make_no_other_word(tmp_path):
  path = write(tmp_path / 'a.csv', 'x,label\n1, yes\n2,yes \n3,no\n')
  assert load(path, test=0.0).class_names == ('no', 'yes')


def test_a_column_of_a_text_for_every_row_draws_a_warning(tmp_path):
  """Dates and names become a column each, in which no test row has anything."""
  days = [f'2024-01-{day:02}' for day in range(1, 25)]
  frame = pd.DataFrame({'visit': days, 'city': list('abcd') * 6, 'label': list('xy') * 12})
  frame.to_csv(tmp_path / 'a.csv', index=False)
  with pytest.warns(
    UserWarning, match=r"column 'visit' and below: nearly every row has a text of its own \(24 of 24\)"
  ):
    load(tmp_path / 'a.csv', test=0.0)
  with warnings.catch_warnings(action='error'):
    load(tmp_path / 'a.csv', test=0.0, features=('city',))


def test_a_column_that_numbers_the_rows_draws_a_warning(tmp_path):
  frame = pd.DataFrame({'id': range(5, 9), 'x': [3, 1, 2, 4], 'label': list('aabb')})
  frame.to_csv(tmp_path / 'a.csv', index=False)
  with pytest.warns(
    UserWarning, match=r"a.csv: column 'id' numbers the rows, .*; name those to learn from in data.col"
  ):
    load(tmp_path / 'a.csv', test=0.0)
  with warnings.catch_warnings(action='error'):
    load(tmp_path / 'a.csv', test=0.0, features=('id', 'x'))


def test_the_index_of_a_pandas_frame_is_no_feature(tmp_path):
  """It may order the rows by their labels."""
  frame = pd.DataFrame({'x': np.arange(20.0), 'label': ['a', 'b'] * 10}).sample(frac=1, random_state=0)
  frame.to_parquet(tmp_path / 'a.parquet')
  with pytest.raises(
    ConfigError, match=r"column '__index_level_0__' is the index .*; write it with to_parquet\(index=Fal"
  ):
    sources.load(f'table:{tmp_path}/a.parquet')
  frame.to_parquet(tmp_path / 'a.parquet', index=False)
  assert sources.load(f'table:{tmp_path}/a.parquet').train_image.shape[1:] == (1,)


def test_booleans_are_one_number_with_gaps_or_without(tmp_path):
  whole = [True, False, True, True, False, True]
  gap = [True, None, True, True, False, True]
  for name, values in (('whole', whole), ('gap', gap)):
    frame = pd.DataFrame({'smokes': values, 'label': list('ababab')})
    frame.to_csv(tmp_path / f'{name}.csv', index=False)
    frame.astype({'smokes': 'boolean'}).to_parquet(tmp_path / f'{name}.parquet')
    for end in ('csv', 'parquet'):
      source = load(tmp_path / f'{name}.{end}', missing='mean')
      x = np.concatenate([source.train_image, source.test_image])
      assert x.shape == (6, 1)
      assert {0.0, 1.0} <= set(x.ravel().tolist())
