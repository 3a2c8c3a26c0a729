"""What all methods promise that exchange something about public rows; their messages, counted."""

from functools import cache

import jax
import numpy as np
import optax
import pytest

from fedkd import codecs, ledger, methods, models, plan
from helpers import CLASSES, assert_close, assert_same_bits, cases, problem, row

NET = models.MLP((), classes=CLASSES)
SGD = optax.sgd(0.1)
PARTS = [np.arange(12), np.arange(20, 32), np.arange(40, 46), np.arange(60, 66)]  # of which 4, 4, 3 and 3 are shared
SUBSET, ROUNDS = 6, 3
WEIGHTS = 36 * CLASSES + CLASSES  # of `NET`
BOTH = SUBSET * CLASSES  # numbers of one message of probabilities
TURN = {'epochs': 1, 'batch': 24}  # every row as often, with the shared ones or without
PUBLIC = {**TURN, 'subset': SUBSET, 'digest_batch': SUBSET}
# name -> (method, numbers up of a client and round, numbers down in the first round and in the others)
TABLE = {
  'fedmd': (methods.fedmd(SGD, **PUBLIC), BOTH, (SUBSET, BOTH + SUBSET)),
  'dsfl': (methods.dsfl(SGD, digest_epochs=1, **PUBLIC), BOTH, (SUBSET, BOTH + SUBSET)),
  # Nothing is kept: all labels travel, and with them their rows and a signal for each.
  'scarlet': (methods.scarlet(SGD, digest_epochs=1, duration=0, **PUBLIC), BOTH, (SUBSET, BOTH + 3 * SUBSET)),
  'feddf': (methods.feddf(SGD, server_steps=2, server_batch=6, server_tx=SGD, **TURN), WEIGHTS + 1, (WEIGHTS, WEIGHTS)),
  'ktpfl': (methods.ktpfl(SGD, subset=SUBSET, digest_batch=SUBSET, epochs=1, batch=24), BOTH, (SUBSET, BOTH + SUBSET)),
  'rhfl': (methods.rhfl(SGD, **PUBLIC), BOTH + 1, (SUBSET, BOTH + SUBSET)),
  'fccl': (methods.fccl(SGD, **PUBLIC), BOTH, (SUBSET, BOTH + SUBSET)),
  # Its numbers depend on what clients select, which a client's own noise decides: `test_selective_fd.py`.
  'selective_fd': (methods.selective_fd(SGD, subset=SUBSET, digest_batch=SUBSET, epochs=1, steps=None), None, None),
}
FEW = ('fedmd', 'scarlet')  # the others' own files have twins, which count messages too
every_method = pytest.mark.parametrize('name', cases(TABLE, fast=FEW))
every_other = pytest.mark.parametrize('name', cases([name for name in TABLE if name != 'selective_fd'], fast=FEW))


def made_with(name, sizes, parts=PARTS):
  return problem(TABLE[name][0], [NET] * len(sizes), sizes, plan.synchronous()(sizes, ROUNDS), parts)


@cache
def base(name):
  made = made_with(name, [4])
  return made, made.run()


def models_of(made, state):
  """Per client, the variables of the model that it uses."""
  deployed = [
    jax.vmap(lambda v, model=group.model, g=g: made.method.deployed(model, v, state.server, g)[1])(
      made.method.variables(state, g)
    )
    for g, group in enumerate(made.groups)
  ]
  rows = [[row(v, min(k, v['params']['net']['output']['bias'].shape[0] - 1)) for k in range(len(g.ids))]
          for g, v in zip(made.groups, deployed, strict=True)]  # fmt: skip
  return [variables for of_group in rows for variables in of_group]


@pytest.mark.parametrize('name', [name for name in TABLE if name != 'feddf'])  # whose images stay on the server
def test_answers_to_older_questions_are_refused(name):
  stale = plan.synchronous()([4], ROUNDS)._replace(stale=True)
  for method in (TABLE[name][0], codecs.coded(TABLE[name][0], codecs.float16())):
    with pytest.raises(
      ValueError, match=r'asks for other public rows in every round; set stale=False \(plan.stale in a config\)'
    ):
      problem(method, [NET], [4], stale, PARTS)


@every_other
def test_the_ledger_is_the_formula(name):
  _, up, (first, later) = TABLE[name]
  _, (_, report) = base(name)
  numbers = lambda counts: sum(np.asarray(n) for n, _ in counts[0].values())  # [rounds, clients]
  np.testing.assert_array_equal(numbers(report.up), np.full((ROUNDS, 4), up))
  np.testing.assert_array_equal(numbers(report.down), np.repeat([[first], [later], [later]], 4, 1))
  assert set(ledger.total(report.up)) <= {'knowledge', 'indices', 'weights', 'statistics', 'labels'}


@every_method
def test_a_round_with_nobody_leaves_the_server_alone(name):
  made, (state, _) = base(name)
  nobody = made._replace(plan=plan.Plan((np.full((ROUNDS, 4), -1, np.int32),)))
  after, report = nobody.run(1, state, 1, length=ROUNDS)
  assert_same_bits((after.client, after.server), (state.client, state.server))
  assert not sum(n for n, _ in ledger.total(report.down).values())


@every_other
def test_permuted_clients_permute_the_results(name):
  """With batches that hold every row as often: nothing but the number of a client is random."""
  made, (state, _) = base(name)
  order = [2, 0, 3, 1]
  other = made_with(name, [4], [PARTS[k] for k in order])
  public = made.data[0].public  # in the old order, so that the same rows are drawn
  data = (other.data[0]._replace(public=public),)
  turned, _ = other._replace(programs=made.programs, data=data).run(state=made.state)
  expected, found = models_of(made, state), models_of(made, turned)
  assert_close(found, [expected[k] for k in order], rtol=1e-4, atol=1e-5)


# Nor is anything averaged over groups in FedDF, whose groups are architectures.
@pytest.mark.parametrize('name', cases([name for name in TABLE if name != 'feddf'], fast=('fedmd',)))
def test_another_group_of_the_architecture_and_an_empty_seat_change_no_bit(name):
  made, (state, _) = base(name)
  split = made_with(name, [1, 3])
  tables = (split.plan.participants[0], np.insert(split.plan.participants[1], 1, -1, axis=1))
  apart, _ = split._replace(plan=plan.Plan(tables)).run()
  assert_same_bits(models_of(split, apart), models_of(made, state))
