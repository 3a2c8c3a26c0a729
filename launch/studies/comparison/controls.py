"""Controls: what the benchmark's own choices do to a method. Each is run as somebody else's method is, by `--add`, and
so with the rates and decays from which methods without a hyperparameter choose."""

import optax

from fedkd import Method, methods

# {control: (whose, what is other about it)}
CONTROLS = {
  'private_fresh': ('private', 'a fresh optimizer in every round'),
  'private_unshared': ('private', 'the four fifths of its rows that methods on public rows learn the labels of'),
}


def name_of(control: str) -> str:
  """The method as `--add` names it."""
  return f'{__name__}:{control}'


def private_fresh(tx: optax.GradientTransformation, steps: int, batch: int) -> Method:
  """`private` with the optimizer of the methods that begin each round with a fresh one."""
  return methods.private(tx, epochs=None, steps=steps, batch=batch, keep_optimizer=False)


def private_unshared(tx: optax.GradientTransformation, steps: int, batch: int, keep_optimizer: bool) -> Method:
  """`private` on the examples that it does not share."""
  return methods.private(tx, epochs=None, steps=steps, batch=batch, keep_optimizer=keep_optimizer, rows='unshared')
