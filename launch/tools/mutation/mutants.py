"""Mutants of a Python file: the file with one small change each, of the kinds that tests of losses should notice."""

import ast
import itertools
from collections.abc import Iterator
from typing import NamedTuple

FLOATS = {'Weight', 'Scale', 'Ratio', 'Fraction', 'Exponent', 'Rate', 'float'}  # annotations of numbers that weigh
DISTANCES = (
  'kl',
  'divergence',
  'entropy',
  'error',
  'mse',
  'mae',
  'loss',
  'distance',
  'away',
  'penalty',
)  # in their names
STRICT = {ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Lt: ast.LtE, ast.LtE: ast.Lt}
OTHER_SIGN = {ast.Add: ast.Sub, ast.Sub: ast.Add}
OTHER_MEAN = {'mean': 'sum', 'sum': 'mean'}


class Mutant(NamedTuple):
  """One change: of the part `was`, in a function, which `becomes` another; `source` is the whole file."""

  kind: str
  function: str
  line: int
  was: str
  becomes: str
  source: str


def term(node):
  """A term of a sum is 0."""
  if isinstance(node, ast.AugAssign) and type(node.op) in OTHER_SIGN:
    yield ast.AugAssign(node.target, node.op, _nothing(node.value))
  if not _is_sum(node):
    return
  if not _is_sum(node.left):  # its own terms take their turn
    yield ast.BinOp(_nothing(node.left), node.op, node.right)
  if not _is_sum(node.right):
    yield ast.BinOp(node.left, node.op, _nothing(node.right))


def stop(node):
  """Gradients flow where they were stopped."""
  if isinstance(node, ast.Call) and _name(node.func) == 'stop_gradient':
    yield node.args[0]
  elif isinstance(node, ast.Assign) and _name(node.value) == 'stop_gradient':
    yield ast.Assign(node.targets, ast.parse('lambda value: value', mode='eval').body)


def sign(node):
  """Plus is minus."""
  if _is_sum(node):
    yield ast.BinOp(node.left, OTHER_SIGN[type(node.op)](), node.right)
  elif isinstance(node, ast.AugAssign) and type(node.op) in OTHER_SIGN:
    yield ast.AugAssign(node.target, OTHER_SIGN[type(node.op)](), node.value)
  elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
    yield node.operand


def softmax(node):
  """The largest is the smallest."""
  if isinstance(node, ast.Call) and _name(node.func) in ('softmax', 'log_softmax', 'argmax', 'argsort') and node.args:
    yield ast.Call(node.func, [ast.UnaryOp(ast.USub(), node.args[0]), *node.args[1:]], node.keywords)


def factor(node):
  """A factor, a divisor or an exponent is 1."""
  if not isinstance(node, ast.BinOp):
    return
  if isinstance(node.op, ast.Mult | ast.Div | ast.Pow | ast.FloorDiv):
    yield node.left
  if isinstance(node.op, ast.Mult):
    yield node.right


def compare(node):
  """A bound belongs to the other side."""
  if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in STRICT:
    yield ast.Compare(node.left, [STRICT[type(node.ops[0])]()], node.comparators)


def mean(node):
  """A mean is a sum, or a sum a mean."""
  if isinstance(node, ast.Call) and _name(node.func) in OTHER_MEAN and isinstance(node.func, ast.Attribute):
    yield ast.Call(ast.Attribute(node.func.value, OTHER_MEAN[node.func.attr]), node.args, node.keywords)


def branch(node):
  """What is chosen is the other one; both is either."""
  if isinstance(node, ast.Call) and _name(node.func) == 'where' and len(node.args) == 3:
    yield ast.Call(node.func, [node.args[0], node.args[2], node.args[1]], node.keywords)
  elif isinstance(node, ast.IfExp):
    yield ast.IfExp(node.test, node.orelse, node.body)
  elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
    yield ast.BinOp(node.left, ast.BitOr() if isinstance(node.op, ast.BitAnd) else ast.BitAnd(), node.right)


def arguments(node):
  """What is compared with what: the first two arguments of a loss change places."""
  if not isinstance(node, ast.Call) or len(node.args) < 2 or any(isinstance(a, ast.Lambda) for a in node.args):
    return
  words = _name(node.func).lower().split('_') if not isinstance(node.func, ast.Call) else DISTANCES
  if set(words) & set(DISTANCES):
    yield ast.Call(node.func, [*node.args[1::-1], *node.args[2:]], node.keywords)


KINDS = {f.__name__: f for f in (term, stop, sign, softmax, factor, compare, mean, branch, arguments)}
SWAP = 'swap'  # two weights of one statement change places


def mutants(source: str, kinds: tuple[str, ...] = (*KINDS, SWAP)) -> Iterator[Mutant]:
  """All mutants of a file in the order of its lines, each once; signatures, messages of errors and what is outside of
  functions stay as they are."""
  tree = ast.parse(source)
  weights = _weights(tree)
  seen = set()
  for function, node, put in _places(tree):
    for kind in kinds:
      for new in _swaps(node, weights) if kind == SWAP else KINDS[kind](node):
        put(new)
        text = ast.unparse(ast.fix_missing_locations(tree))
        put(node)
        if text not in seen:
          seen.add(text)
          yield Mutant(kind, function, node.lineno, _text(node), _text(new), text)


def _name(node):
  """The last word of a name, `stop_gradient` of `jax.lax.stop_gradient`; '' of anything else."""
  return getattr(node, 'attr', getattr(node, 'id', ''))


def _is_sum(node):
  return isinstance(node, ast.BinOp) and type(node.op) in OTHER_SIGN and not _is_text(node)


def _is_text(node):
  """Of strings, as far as one can see."""
  if isinstance(node, ast.BinOp):
    return _is_text(node.left) or _is_text(node.right)
  of = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else node
  return isinstance(of, ast.JoinedStr) or (isinstance(of, ast.Constant) and isinstance(of.value, str))


def _nothing(node):
  return ast.BinOp(ast.Constant(0), ast.Mult(), node)


def _text(node):
  """In one line, of statements with blocks the first."""
  return ast.unparse(node).partition('\n')[0]


def _places(tree):
  """(function, node, what puts another one in its place) of everything that may change."""

  def visit(node, function):
    for field, value in ast.iter_fields(node):
      for i, child in enumerate(value if isinstance(value, list) else [value]):
        if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.arguments | ast.expr_context):
          continue
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and field != 'body':
          continue
        inner = f'{function}.{child.name}'.lstrip('.') if isinstance(child, ast.FunctionDef) else function
        if function and hasattr(child, 'lineno'):
          put = value.__setitem__ if isinstance(value, list) else lambda _, new, at=(node, field): setattr(*at, new)
          yield function, child, lambda new, put=put, i=i: put(i, new)
        yield from visit(child, inner)

  yield from visit(tree, '')


def _weights(tree) -> set[str]:
  """Names of the parameters that are annotated as numbers which weigh."""
  every = [a for node in ast.walk(tree) if isinstance(node, ast.arguments) for a in (*node.args, *node.kwonlyargs)]
  names = lambda a: {_name(node) for node in ast.walk(a.annotation)} if a.annotation else set()
  return {a.arg for a in every if names(a) & FLOATS}


def _swaps(node, weights):
  """A statement, or the head of a loop, with two weights, or two factors of different terms, in each other's place."""
  if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return | ast.Expr):
    within = node
  elif isinstance(node, ast.For):
    within = node.iter
  else:
    return
  loads = {n.id for n in ast.walk(within) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
  terms = [side for n in ast.walk(within) if _is_sum(n) for side in (n.left, n.right) if not _is_sum(side)]
  across = {
    frozenset(pair) for a, b in itertools.combinations(map(_factors, terms), 2) for pair in itertools.product(a, b)
  }
  pairs = {frozenset(pair) for pair in itertools.combinations(sorted(loads & weights), 2)} | across
  for one, other in sorted(sorted(pair) for pair in pairs if len(pair) == 2):
    yield _renamed(node, within, {one: other, other: one})


def _factors(node) -> set[str]:
  """Names that are factors of a product."""
  if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
    sides = (node.left, node.right)
    return {n.id for n in sides if isinstance(n, ast.Name)} | set().union(*map(_factors, sides))
  return set()


def _renamed(node, within, names):
  """A copy of a statement with other names read in the part `within`."""

  class Rename(ast.NodeTransformer):
    def visit_Name(self, name):
      swapped = isinstance(name.ctx, ast.Load) and name.id in names
      return ast.Name(names[name.id], name.ctx) if swapped else name

  copy = ast.parse(ast.unparse(node)).body[0] if not isinstance(node, ast.Return) else _parsed_return(node)
  if within is node:
    return Rename().visit(copy)
  copy.iter = Rename().visit(copy.iter)
  return copy


def _parsed_return(node):
  return ast.parse(f'def f():\n  {ast.unparse(node)}').body[0].body[0]
