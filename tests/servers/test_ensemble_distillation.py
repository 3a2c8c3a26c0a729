"""Which models are averaged and teach, and when a student stops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkd import local
from fedkd.servers import ensemble_distillation as ensembles
from fedkd.types import Data, ExampleIndices, Pool

CLASSES = 10


def kept(accuracy, present=None):
  """(averaged, teaching) of one group."""
  present = np.ones(len(accuracy)) if present is None else present
  return [np.asarray(k[0]) for k in ensembles._kept([jnp.float32(accuracy)], [jnp.float32(present)], CLASSES)]


def in_numpy(accuracy, present):
  """Which teach where nobody is near chance: not below the others' mean by 1.5 of their deviations; the best is none of
  the others."""
  others = np.delete(accuracy, np.argmax(np.where(present, accuracy, -1)))
  others = others[np.delete(present, np.argmax(np.where(present, accuracy, -1)))]
  return present & (accuracy >= others.mean() - 1.5 * others.std())


@pytest.mark.parametrize('seed', range(8))
def test_outliers_below_the_others_do_not_teach(seed):
  rng = np.random.default_rng(seed)
  accuracy, present = rng.uniform(0.3, 0.9, 9), rng.permutation([True] * 6 + [False] * 3)
  averaged, teaching = kept(accuracy, present)
  np.testing.assert_array_equal(averaged, present)
  np.testing.assert_array_equal(teaching, in_numpy(accuracy, present))


def test_one_that_is_below_the_mean_but_not_far_still_teaches():
  np.testing.assert_array_equal(kept([0.9, 0.7, 0.69, 0.71, 0.7, 0.5])[1], [1, 1, 1, 1, 1, 0])


def test_who_is_just_at_the_bound_teaches_whatever_it_is_rounded_to():
  """Nine and four others: the four are 9 / 13 of the distance below their mean, and the deviation is 6 / 13 of it."""
  accuracy = jnp.float32(
    [[0.95, *[high] * 9, *[low] * 4] for high in np.arange(0.6, 0.9, 0.01) for low in (0.34, 0.55)]
  )
  teaching = lambda a: ensembles._kept([a], [jnp.ones(14)], CLASSES)[1][0]
  np.testing.assert_array_equal(jax.jit(jax.vmap(teaching))(accuracy), 1)


def test_accuracy_is_the_share_of_public_rows_whose_label_has_the_largest_logit(monkeypatch):
  logits = jnp.array([[0.0, 2, 1], [3, 0, 1], [0, 1, 5], [9, 1, 2]])
  monkeypatch.setattr(ensembles.inference, 'infer', lambda net, variables, example, index: example[index])
  public = ExampleIndices(jnp.array([0, 1, 2, 3, 3]), jnp.int32(4), jnp.int32(-1))  # the last is padding
  data = Data(Pool(logits, jnp.array([1, 0, 0, 0])), None, None, public=public)
  assert float(ensembles._accuracy(None, {}, [data])) == 3 / 4


@pytest.fixture
def student(monkeypatch):
  """(steps, patience, step of the best accuracy) -> (steps of the returned student, [steps between two looks]).

  Weights are the number of steps that made them; two steps between two looks."""
  calls = []

  def called(steps):
    calls.append(int(steps))
    assert len(calls) < 30  # it would go on for ever

  def fit(key, learner, *args, **how):
    (work,) = (value for value in (*args, *how.values()) if isinstance(value, local.Work))
    jax.debug.callback(called, work.steps, ordered=True)
    return learner._replace(params=learner.params + work.steps), {}

  def run(steps, patience, peak):
    monkeypatch.setattr(ensembles, 'CHECK', 2)
    monkeypatch.setattr(local, 'fit', fit)
    monkeypatch.setattr(local, 'start', lambda variables, tx: local.Learner(variables['params'], {}, ()))
    monkeypatch.setattr(local, 'report', lambda sums: {'distill_loss': 0.0})
    monkeypatch.setattr(ensembles, '_accuracy', lambda net, v, data: 1 / (1.0 + jnp.abs(v['params'] - peak)))
    first, work = {'params': jnp.int32(0), 'batch_stats': {}}, local.Work(1, steps)
    taught = jnp.zeros((1, 1)), None, 1
    best, _ = ensembles._student(jax.random.key(0), 0, None, first, taught, None, None, work, patience)
    jax.effects_barrier()
    return int(best['params']), calls

  return run


@pytest.mark.parametrize(
  ('steps', 'patience', 'peak', 'best', 'looks'),
  [
    (5, 9, 5, 5, [2, 2, 1]),  # the last steps are those that are left
    (40, 4, 6, 6, [2] * 5),  # two looks without a better one
    (40, 5, 6, 6, [2] * 6),
    (8, 9, 2, 2, [2] * 4),  # the best is kept
  ],
)
def test_a_student_is_looked_at_until_its_steps_or_its_patience_run_out(student, steps, patience, peak, best, looks):
  assert student(steps, patience, peak) == (best, looks)
