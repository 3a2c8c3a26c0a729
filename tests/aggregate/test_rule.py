"""What every rule goes through before it runs: shapes, error messages, state."""

import functools
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkd import aggregate, methods
from fedkd.errors import ConfigError
from helpers import assert_same_bits

TREE = {'params': {'w': jnp.ones((3, 10, 5))}, 'bias': jnp.ones((3, 5))}
ARRAY = jnp.ones((3, 5))
WEIGHT = jnp.ones(3)


def unreduced(rows, weight):
  del weight
  return rows


def forgetful(rows, weight):
  del rows, weight


def other_tree(rows, weight):
  return {**aggregate.mean(rows, weight), 'extra': weight}


def broken(rows, weight):
  rows = aggregate.mean(rows, weight)
  return rows['no such key']


def untraceable(rows, weight):
  return rows[0] if weight[0] > 0 else rows[1]


def in_numpy(rows, weight):
  return np.average(rows, 0, weight)


def careless(rows, weight):
  del weight
  return aggregate.mean(rows, None)


HERE = __name__
AT = r' \(test_rule\.py, line \d+\)'
SENTENCES = {
  'shape': (unreduced, ARRAY, rf'^rule {HERE}:unreduced{AT} returned \[3, 5\], expected \[5\]$'),
  'shape in a tree': (unreduced, TREE, rf'^rule {HERE}:unreduced{AT} returned \[3, 5\] for bias, expected \[5\]$'),
  'nothing': (
    forgetful,
    TREE,
    rf'^rule {HERE}:forgetful{AT} returned no bias, params\.w; let it return a tree',
  ),
  'no array': (
    forgetful,
    ARRAY,
    rf'^rule {HERE}:forgetful{AT} returned no array; let it return a tree like one of its rows$',
  ),
  'more': (other_tree, TREE, rf'^rule {HERE}:other_tree{AT} returned extra, which its rows do not have;'),
  'raised': (
    broken,
    TREE,
    rf"^rule {HERE}:broken \(test_rule\.py, line \d+: return rows\['no such key'\]\) raised KeyError: 'no such key'$",
  ),
  'traced': (
    untraceable,
    ARRAY,
    r'line \d+: return rows\[0\] if weight\[0\] > 0 .*\) raised TracerBool.*; use jax\.numpy\.where in place of `if`$',
  ),
  'NumPy': (
    in_numpy,
    ARRAY,
    r'line \d+: return np\.average\(rows, 0, weight\)\) raised TracerArray.*; use functions of jax\.numpy'
    r' in place of NumPy$',
  ),
  'below': (
    careless,
    ARRAY,
    rf'^rule {HERE}:careless \(test_rule\.py, line \d+: return aggregate\.mean\(rows, None\)\) raised ',
  ),
  'partial': (functools.partial(unreduced), ARRAY, rf'^rule {HERE}:unreduced{AT} returned'),
  'jitted': (jax.jit(unreduced), ARRAY, rf'^rule {HERE}:unreduced{AT} returned'),
  'one argument': (lambda rows: rows, ARRAY, r'cannot be called: too many positional arguments; let it take \(rows, w'),
  'a factory': (
    lambda rows, weight: aggregate.Rule(rows, weight),
    ARRAY,
    r'<lambda>.* makes a rule; call it, and give what it returns$',
  ),
  'scalar': (lambda rows, weight: 0.0, ARRAY, r'<lambda>.* returned \[\], expected \[5\]$'),
  'integers': (
    lambda rows, weight: jnp.ones(5, int),
    ARRAY,
    rf'<lambda>{AT} returned int32, expected float32; numbers would be cut off$',
  ),
  'a function': (
    lambda rows, weight: jnp.sum,
    ARRAY,
    rf'<lambda>{AT} returned the function sum, not called in its tree; let it be a pytree of arrays$',
  ),
  'a rule': (
    lambda rows, weight: unreduced,
    TREE,
    rf'<lambda>{AT} returned the function unreduced, not called in its t',
  ),
  'a name': (
    lambda rows, weight: {'params': {'w': 'mean'}, 'bias': 0.0},
    TREE,
    r"returned 'mean', a str at \['params'\]",
  ),
  'lambda': (lambda rows, weight: rows, ARRAY, rf'^rule {HERE}:<lambda>{AT} returned \[3, 5\], expected \[5\]$'),
}


def shares(rows, weight):
  return jax.tree.map(lambda a: jnp.tensordot(weight / weight.sum(), a, 1), rows)


def remembering(reduce):
  """A pair that reduces by a plain rule and keeps the result."""
  return aggregate.Rule(lambda like: like, lambda rows, weight, last: (reduce(rows, weight), last))


@pytest.mark.parametrize(
  ('reduce', 'reads'),
  [
    (lambda rows, weight: jax.tree.map(lambda a: a.mean(0), rows), True),
    (lambda rows, weight: jax.tree.map(lambda a: a[0], rows), True),
    (lambda rows, weight: jax.tree.map(lambda a: a[-1], rows), True),
    (shares, False),
    (lambda rows, weight: jax.tree.map(lambda a: a[jnp.argmax(weight)], rows), False),
    (lambda rows, weight: {'w': rows['w'][0] * jnp.ones((4, 5))[1], 'b': rows['b'][0]}, False),  # of these shapes alone
  ],
)
@pytest.mark.parametrize('lifted', [lambda rule: rule, remembering])
def test_a_rule_that_reads_absent_rows_is_told_once(reduce, reads, lifted):
  rows = {'w': jnp.ones((3, 5)), 'b': jnp.ones((3, 2))}
  rule = lifted(reduce)
  for again in (False, True):
    with warnings.catch_warnings(record=True) as told:
      warnings.simplefilter('always')
      made = aggregate.as_rule(rule)
      jax.jit(made.update)(rows, jnp.ones(3), made.init(jax.tree.map(lambda a: a[0], rows)))
    expected = r'^rule .* changes its result with a row of weight 0, .*; leave such rows out, as fedkd.aggregate.mean'
    assert [bool(re.match(expected, str(one.message))) for one in told] == [True] * (reads and not again)


def test_a_factory_of_the_package_is_no_rule():
  with pytest.raises(ValueError, match=r'^rule fedkd\.aggregate:centred_clipping .* makes a rule; call it'):
    aggregate.as_rule(aggregate.centred_clipping).update(ARRAY, jnp.ones(3), ())


@pytest.mark.parametrize(('rule', 'rows', 'sentence'), SENTENCES.values(), ids=SENTENCES)
def test_a_wrong_rule_ends_in_one_sentence(rule, rows, sentence):
  for update in (aggregate.as_rule(rule).update, jax.jit(aggregate.as_rule(rule).update)):
    with pytest.raises(ValueError, match=f'rule {HERE}:') as caught:
      update(rows, WEIGHT, ())
    assert re.search(sentence, str(caught.value))  # without the notes that JAX adds
    assert '\n' not in str(caught.value)


def test_a_mapped_rule_is_refused_by_the_shapes_it_sees():
  with pytest.raises(ValueError, match=rf'rule {HERE}:unreduced{AT} returned \[10, 5\], expected \[5\]'):
    aggregate.mapped(unreduced).update(jnp.ones((10, 4, 5)), jnp.ones((10, 4)), ())


def test_the_check_comes_before_the_rule_runs():
  ran = []

  def counted(rows, weight):
    jax.debug.callback(lambda: ran.append(1))
    return rows

  with pytest.raises(ValueError, match='returned'):
    aggregate.as_rule(counted).update(ARRAY, WEIGHT, ())
  jax.effects_barrier()
  assert not ran


# Stateful rules.


def smoothed(decay):
  """An exponential moving average of the results, in ten lines."""

  def update(rows, weight, last):
    new = jax.tree.map(lambda a, b: decay * a + (1 - decay) * b, last, aggregate.mean(rows, weight))
    return new, new

  return aggregate.Rule(lambda like: like, update)


def test_memory_goes_from_call_to_call_and_sleeps_without_uploads():
  rule = aggregate.as_rule(smoothed(0.75))
  state = rule.init({'w': jnp.zeros(2)})
  for value, weight, expected in ((8.0, 1.0, 2.0), (np.nan, 0.0, 2.0), (2.0, 3.0, 2.0), (6.0, 1.0, 3.0)):
    tree, state = jax.jit(rule.update)({'w': jnp.full((2, 2), value)}, jnp.array([0.0, weight]), state)
    np.testing.assert_array_equal(state['w'], expected)
    if weight:
      np.testing.assert_array_equal(tree['w'], expected)


def test_a_wrong_state_ends_in_one_sentence():
  def wrong(after):
    def update(rows, weight, state):
      return after(aggregate.mean(rows, weight), state)

    return aggregate.Rule(lambda like: like, update)

  for after, sentence in (
    (lambda tree, state: tree, 'test_a_wrong_state_ends_in_one_sentence .* does not return a pair'),
    (lambda tree, state: (tree, state[0]), r'returned a state with \[\], expected \[5\]'),
    (lambda tree, state: (state[0], tree), r'returned \[\], expected \[5\]'),
  ):
    rule = aggregate.as_rule(wrong(after))
    with pytest.raises(ValueError, match=sentence):
      rule.update(ARRAY, WEIGHT, rule.init(ARRAY[0]))


@pytest.mark.parametrize('rule', [aggregate.mean, aggregate.median, aggregate.trimmed_mean])
def test_a_lifted_rule_has_the_bits_of_the_plain_one(rule):
  rows = {'a': np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)}
  weight = np.array([1, 0, 2, 5, 0, 1, 3], np.float32)
  lifted = aggregate.as_rule(rule)
  assert lifted.init(rows) == ()
  assert_same_bits(jax.jit(lifted.update)(rows, weight, ()), (jax.jit(rule)(rows, weight), ()))


@pytest.mark.parametrize('rule', [aggregate.mean, aggregate.median])
def test_a_mapped_rule_is_the_rule_entry_by_entry(rule):
  rng = np.random.default_rng(1)
  rows, weight = rng.normal(size=(6, 4, 3)).astype(np.float32), rng.integers(0, 3, (6, 4)).astype(np.float32)
  weight[0] = 1
  rows = np.where(weight[..., None] > 0, rows, np.float32(np.nan))
  found, state = aggregate.mapped(rule).update(rows, weight, ())
  assert state == ()
  for c in range(4):
    np.testing.assert_allclose(found[c], rule(rows[:, c], weight[:, c]), rtol=1e-6)


def test_results_have_the_dtype_of_the_rows():
  doubled = lambda rows, weight: aggregate.mean(rows.astype(jnp.float32), weight)
  tree, _ = aggregate.as_rule(doubled).update(ARRAY.astype(jnp.bfloat16), WEIGHT, ())
  assert tree.dtype == jnp.bfloat16


@pytest.mark.parametrize('name', ['fedavg', 'fedhe', 'fedproto', 'heterofl', 'fd', 'scarlet'])
def test_the_name_of_a_rule_is_refused_by_the_method(name):
  with pytest.raises(ConfigError, match="rule is 'trimmed_mean', a str") as error:
    getattr(methods, name)(optax.sgd(0.1), rule='trimmed_mean')
  assert all(rule in str(error.value) for rule in aggregate.__all__)
