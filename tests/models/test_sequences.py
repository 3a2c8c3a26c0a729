"""Networks for tokens and sequences: what padding may not change, order, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkd import models

NETS = {
  'bag': models.EmbeddingBag(8, vocabulary=20, padding=0, classes=3),
  'cnn': models.SequenceCNN((4, 4), 3, 8, vocabulary=20, padding=0, classes=3),
  'transformer': models.Transformer(8, 1, 2, vocabulary=20, padding=0, classes=3),
}
TOKENS = jnp.asarray(np.random.default_rng(0).integers(1, 20, (5, 6)))


def of(net, x):
  variables = jax.jit(lambda key: net.init(key, x, False))(jax.random.key(1))
  return variables, net.apply(variables, x, False)


@pytest.mark.parametrize('net', [NETS['bag'], NETS['transformer']], ids=['bag', 'transformer'])
def test_tokens_of_padding_change_nothing(net):
  x = jnp.pad(TOKENS, ((0, 0), (0, 3)))
  variables, (logits, out) = of(net, x)
  assert out['features'].shape == (5, 8)
  changed = jax.tree_util.tree_map_with_path(
    lambda path, leaf: leaf.at[0].add(7.0) if 'Embed' in jax.tree_util.keystr(path) else leaf, variables
  )  # the vector of padding
  np.testing.assert_array_equal(net.apply(changed, x, False)[0], logits)
  if 'position' not in str(jax.tree.structure(variables)):  # shorter sequences have the same mean
    np.testing.assert_allclose(net.apply(variables, TOKENS, False)[0], logits, rtol=1e-5)
  empty = net.apply(variables, jnp.zeros_like(x), False)[0]
  assert np.isfinite(empty).all()


@pytest.mark.parametrize('padding', [-1, 20])
def test_a_token_without_a_vector_has_no_prediction_unless_it_is_padding(padding):
  """Below 0 as above the vocabulary; indices below 0 would count from the end of the table."""
  net = models.EmbeddingBag(8, vocabulary=20, padding=padding, classes=3)
  x = TOKENS.at[1, 2].set(padding).at[2, 0].set(-1).at[3, 0].set(20)
  _, (logits, _) = of(net, x)
  assert np.isnan(logits).any(1).tolist() == [False, False, padding != -1, padding != 20, False]


def test_only_the_bag_ignores_order():
  for name, net in NETS.items():
    variables, (logits, _) = of(net, TOKENS)
    same = np.allclose(net.apply(variables, TOKENS[:, ::-1], False)[0], logits, atol=1e-6)
    assert same == (name == 'bag')


def test_a_transformer_looks_at_every_place():
  """The gradient of each prediction reaches each token of its own example, and none of another's."""
  net, x = models.Transformer(8, 1, 2, classes=3), jnp.asarray(np.random.default_rng(0).normal(size=(2, 6, 3)))
  variables, _ = of(net, x)
  grad = jax.jit(jax.grad(lambda x: net.apply(variables, x, False)[0][0].sum()))(x)
  assert (jnp.abs(grad[0]).max(-1) > 0).all()
  np.testing.assert_array_equal(grad[1], 0)


@pytest.mark.parametrize(
  ('net', 'x', 'match'),
  [
    (NETS['bag'], jnp.zeros((2, 4)), r'an embedding is for tokens, int\[N, length\], and examples are float32\[4\]'),
    (NETS['cnn'], jnp.zeros((2, 4, 4, 1)), r'is for sequences .* examples are \[4, 4, 1\]; choose a network for im'),
    (models.TwoConv((4, 4)), jnp.zeros((2, 4)), r'the network is for images .* are float32\[4\]; choose MLP for vec'),
    (models.LeNet(), jnp.zeros((2, 4, 3)), r'.* float32\[4, 3\]; .* SequenceCNN .*; grey images are uint8, or'),
    (models.EmbeddingBag(), TOKENS, 'vocabulary=0 has no token; set it to the largest token of the data plus one'),
  ],
)
def test_other_examples_are_refused(net, x, match):
  with pytest.raises(ValueError, match=match):
    of(net, x)


def test_heads_divide_the_width():
  with pytest.raises(ValueError, match=r'^width=30 must be a multiple of heads=4$'):
    models.Transformer(30)
