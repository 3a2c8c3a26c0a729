"""All that a method's functions are given, on one page, from `fedkd/types.py`."""

from fedkd import ledger, local, types
from fedkd.config.meanings import arguments
from reference import fields
from reference.markdown import flow, markdown, table

TEXT = """# Cheat sheet

What the functions of a method are given and what they return. `n` clients are in a group, `m` of them have a slot in a
round, `K` are in the federation, `N` examples are in the pool. [A method](../guides/method.md) explains it by an
example, [a rule or a server](../guides/rules.md) the server's side.
"""
WHO = """**Who am I?** `data.private.id` is the client's own number, `int32[]`, the same in every grouping.

**Whose uploads are these?** `ids[g]` are the numbers behind `uploads[g]`; -1 is an empty slot.
"""
OWN_ROWS = """The first `data.private.size` entries of `data.private.index` are a client's rows; the rest is padding, up
to the client with the most. `data.pool.example[data.private.index]` therefore has rows that are not the client's:
`fedkd.examples.owned(data.private)` says which are, and `local.fit` draws no others.
"""

KINDS = """The keys on the path of an array decide as what the ledger counts it: the last of these does, and all else is
knowledge. Below the first three all is of the model, whatever its layers are called; nest parameters of your own, such
as adapters, in `'params'`.
"""


def page() -> str:
  """The page."""
  parts = [TEXT, WHO, '## What a client is given', _called(types.ClientInit), _called(types.ClientStep)]
  parts += ['### data', table(('field', 'type', 'what'), _flat('data', types.Data)), OWN_ROWS]
  parts += ['### download, and other messages']
  parts += [_fields('download', types.Download), *map(_class, (types.Masked, types.PeerMessages, types.Known))]
  parts += [KINDS, table(('key', 'counted as'), [(f"`'{key}'`", kind) for key, kind in ledger.KINDS.items()])]
  parts += ['### learner', markdown(local.Learner.__doc__), _fields('learner', local.Learner)]
  parts += ['## What a server is given']
  parts += map(_called, (types.ServerInit, types.ServerReceive, types.ServerSend))
  parts += ['### group', _fields('group', types.Group), '## What a method consists of']
  parts += map(_class, (types.Method, types.Client, types.Server, types.State))
  return '\n\n'.join(parts) + '\n'


def _called(protocol) -> str:
  """A function by its protocol: what it is, and its arguments."""
  said = arguments(protocol.__doc__)
  rows = [(f'`{name}`', flow(what)) for name, what in said.items()]
  text = markdown(protocol.__doc__.partition('\n  Args:')[0])
  return f'### {protocol.__name__}\n\n{text}\n\n{table(("argument", "what"), rows)}'


def _flat(path, kind) -> list[tuple[str, str, str]]:
  """The fields of a NamedTuple, and of those inside it."""
  rows = []
  for field in fields.of_class(kind):
    where = f'{path}.{field.name}'
    rows.append((f'`{where}`', _type(field), flow(field.comment)))
    inner = getattr(types, field.type.removesuffix(' | None'), None)
    if hasattr(inner, '_fields') and (inner is not types.ExampleIndices or field.name == 'private'):
      rows += _flat(where, inner)
  return rows


def _fields(path, kind) -> str:
  return table(('field', 'type', 'what'), _flat(path, kind))


def _class(kind) -> str:
  rows = [(f'`{field.name}`', _type(field), flow(field.comment)) for field in fields.of_class(kind)]
  return f'### {kind.__name__}\n\n{markdown(kind.__doc__)}\n\n{table(("field", "type", "what"), rows)}'


def _type(field) -> str:
  text = field.type.replace('jax.Array | np.ndarray', 'jax.Array')
  return f'`{text}`'
