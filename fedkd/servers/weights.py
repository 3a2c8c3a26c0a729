"""Servers that hold weights: one model for all clients, or one per architecture."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedkd import aggregate, local, optimizers
from fedkd.rows import store_rows
from fedkd.types import Download, Group, PyTree, Server, clients

PER_GROUP = 'take fedavg or fedprox with per_group=True (in a config method.per_group=True) for a mean of each'


class GlobalModel(NamedTuple):
  """The state of one set of weights whose server optimizer, or rule, is stateful."""

  variables: PyTree  # {'params', 'batch_stats'}
  opt: PyTree = ()
  rule: PyTree = ()


def weights(
  rule: aggregate.AnyRule = aggregate.mean,
  tx: optax.GradientTransformation | None = None,
  *,
  per_group: bool = False,
) -> Server:
  """Holds one set of variables, and replaces it by the rule over all uploads {'params', 'batch_stats', 'count'}.

  With an optimizer the uploads only determine a direction (Reddi et al., "Adaptive Federated Optimization", 2021,
  Algorithm 1): the parameters take one step of `tx` along the gradient `old - rule(uploads)`, while BatchNorm
  statistics are still replaced. `optax.sgd(1.0)` is FedAvg, `optax.sgd(1.0, momentum=0.9)` FedAvgM (Hsu, Qi, Brown,
  2019), and FedAdagrad, FedAdam and FedYogi are in `fedkd.optimizers`. In a round without uploads nothing changes.

  Args:
    rule: aggregation rule (`fedkd.aggregate`), weighted by `count`.
    tx: optax optimizer of the server; its schedules count rounds with uploads, `optimizers.scheduled` counts all
      rounds.
    per_group: one set of variables per architecture, by the uploads of that group, instead of one for all.

  Raises:
    ValueError: at init, if the groups' variables differ in structure or shape and `per_group` is False.
  """
  checked = aggregate.as_rule(rule)
  stateless = tx is None and not isinstance(rule, aggregate.Rule)  # the state is then the variables themselves

  def start(variables):
    opt = () if tx is None else optimizers.init(tx, variables['params'])
    return variables if stateless else GlobalModel(variables, opt, checked.init(variables))

  def init(key, groups, variables, data):
    del key, data
    if per_group:
      return tuple(map(start, variables))
    check_one_architecture(groups, variables, PER_GROUP)
    return start(variables[0])

  def step(t, state, uploads, ids):
    weight = jnp.where(ids >= 0, uploads['count'], 0).astype(jnp.float32)
    if not weight.shape[0]:  # a group without slots; a rule need not handle zero rows
      return state
    old = GlobalModel(state) if stateless else state
    rows = {key: value for key, value in uploads.items() if key != 'count'}
    reduced, rule_state = checked.update(rows, weight, old.rule)
    new = (
      GlobalModel(reduced, rule=rule_state) if tx is None else _optimized(t, tx, old, reduced)._replace(rule=rule_state)
    )
    kept = jax.tree.map(lambda n, o: jnp.where(jnp.any(weight > 0), n, o).astype(o.dtype), new, old)
    return kept.variables if stateless else kept

  def receive(key, t, groups, state, uploads, ids, data):
    if per_group:
      return tuple(step(t, *group) for group in zip(state, uploads, ids, strict=True)), {}
    return step(t, state, jax.tree.map(lambda *a: jnp.concatenate(a), *uploads), jnp.concatenate(ids)), {}

  def send(key, t, groups, state, ids, data):
    return tuple(Download(shared=variables_of(state, g)) for g in range(len(ids)))

  return Server(init, receive, send)


def _optimized(t, tx, old, reduced) -> GlobalModel:
  """One step of the server's optimizer along the negative mean change of the parameters."""
  gradient = jax.tree.map(jnp.subtract, old.variables['params'], reduced['params'])
  learner = local.Learner(**old.variables, opt=old.opt)
  learner = local.update(learner, tx, gradient, reduced['batch_stats'], t)
  return GlobalModel(local.variables(learner), learner.opt)


def variables_of(state: PyTree, g: int) -> PyTree:
  """The variables of group `g` in a state of `weights`."""
  one = state if isinstance(state, GlobalModel) or not isinstance(state, tuple) else state[g]
  return one.variables if isinstance(one, GlobalModel) else one


def with_variables(state: PyTree, variables: PyTree) -> PyTree:
  """The state of one set of weights, an entry of that of `weights(per_group=True)`, with other variables."""
  return state._replace(variables=variables) if isinstance(state, GlobalModel) else variables


def check_one_architecture(groups: tuple[Group, ...], variables: tuple, remedy: str) -> None:
  """Checks that the models of all groups have the same arrays.

  Raises:
    ValueError: if not; `remedy`: what else to do than giving all clients equal modules.
  """
  shapes = [jax.tree.map(jnp.shape, v) for v in variables]
  if any(s != shapes[0] for s in shapes):
    names = ', '.join(g.name for g in groups)
    raise ValueError(
      f'groups have different architectures ({names}), so their weights cannot be averaged; '
      f'give all clients equal modules, or {remedy}'
    )


class WithUploads(NamedTuple):
  """The state of `with_uploads`; `uploads` has leaves [K, ...]."""

  server: PyTree
  uploads: PyTree


def with_uploads(server: Server) -> Server:
  """`server`, one of `weights` for all clients, that also keeps the variables that every client uploaded in the last
  round; for absent clients, what it sent them."""

  def of_all(variables, client_count):
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (client_count, *a.shape)), variables)

  def init(key, groups, variables, data):
    state = server.init(key, groups, variables, data)
    return WithUploads(state, of_all(variables_of(state, 0), clients(groups)))

  def receive(key, t, groups, state, uploads, ids, data):
    client_count = jax.tree.leaves(state.uploads)[0].shape[0]
    kept = of_all(variables_of(state.server, 0), client_count)
    for up, slot in zip(uploads, ids, strict=True):
      kept = store_rows(kept, slot, {k: up[k] for k in kept})
    after, info = server.receive(key, t, groups, state.server, uploads, ids, data)
    return WithUploads(after, kept), info

  def send(key, t, groups, state, ids, data):
    return server.send(key, t, groups, state.server, ids, data)

  return Server(init, receive, send)


def global_model(state: PyTree, g: int) -> PyTree:
  """What a method's `variables` returns for group `g` if `weights` holds its models: leaves [1, ...], one for all.

  Args:
    state: of the server `weights`.
    g: number of the group.
  """
  return as_rows(variables_of(state, g))


def as_rows(variables: PyTree) -> PyTree:
  """One set of variables as `Method.variables` returns it: leaves [1, ...], one model for the whole group."""
  return jax.tree.map(lambda a: a[None], variables)


def silent() -> Server:
  """A server that neither sends nor keeps anything."""
  return Server(
    lambda key, groups, variables, data: (),
    lambda key, t, groups, state, uploads, ids, data: ((), {}),
    lambda key, t, groups, state, ids, data: tuple(Download() for _ in ids),
  )
