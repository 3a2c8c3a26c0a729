"""Training in a notebook: a simulation for some rounds, with a history of its evaluations.

The only entry point that shows anything, and whose results have files.
"""

import contextlib
import hashlib
import pathlib
import secrets
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedkd import clock
from fedkd import totals as running
from fedkd.checks import arguments, kinds
from fedkd.errors import DivergedError
from fedkd.evaluation import evaluated_in, predictions
from fedkd.history import NAME, History, keys_of, lifted, round_of, seeds_of, shapes_of
from fedkd.simulation import Simulation, SimulationState
from fedkd.types import clients


class TrainingError(DivergedError):
  """A loss became NaN or infinite; `state` and `history` are those after the last evaluation."""

  def __init__(self, message: str, state: SimulationState, history: History):
    super().__init__(message)
    self.state, self.history = state, history


def train(
  simulation: Simulation | Mapping[str, Simulation],
  key: jax.Array | SimulationState | Mapping[str, SimulationState],
  *,
  rounds: int = 100,
  test: tuple | None = None,
  every: int = 10,
  progress: bool = True,
  history: History | None = None,
  tracker: Any = None,
) -> tuple[Any, History]:
  """Trains a simulation, and evaluates it every few rounds.

  Rounds between evaluations are one compiled program. Ctrl-C ends the training after the rounds that are complete, and
  returns what there is.

  Args:
    simulation: from `fedkd.simulation`; or several by name, which are trained one after the other for a comparison.
    key: one key, `jax.random.key(0)`; several, `jax.random.split(key, 3)`, are the seeds of so many runs, mapped as one
      program. Or a state from which to go on; by name if there are several simulations.
    rounds: further rounds.
    test: (x, y), examples [T, ...] and labels int[T], on which every client's model is evaluated; or (x, y, owner) with
      int[T], the client whose test example each is, for the accuracies on own ('accuracy_local') and on the others'
      examples ('accuracy_others') too. None: the losses and the ledger alone.
    every: rounds between evaluations; the state before the first round and that after the last are evaluated too.
    progress: show a progress bar, in a terminal or a notebook.
    history: of the training that goes on, to which evaluations are added.
    tracker: who is told of every evaluation: 'tensorboard', 'wandb', 'mlflow', 'trackio', or run -> `Tracker`
      (`experiment.trackers`); what is kept in files is in the folder tracked/NAME-ID. None: nobody.

  Returns:
    (state, history): the state after the last round, with a leading axis of seeds where there are several keys; or
    states by name.

  Raises:
    ValueError: for a wrong argument, before anything is compiled; a tracker that is not installed or not logged in.
    TrainingError: that names the first client whose loss is not finite; its `state` and `history` are those before.
  """
  several = isinstance(simulation, Mapping)
  simulations = dict(simulation) if isinstance(simulation, Mapping) else {NAME: simulation}
  _check(simulations, rounds, every, test)
  if history is not None:
    kinds.check_is('history', history, History, 'what fedkd.train has returned second, or None')
  if tracker is not None:
    from fedkd.experiment import trackers

    trackers.check(tracker)
  begun, history = [], history or History()
  for name, one in simulations.items():  # all of them, so that what is wrong with the last ends no training
    run, state, history = _begun(name, one, key.get(name) if isinstance(key, Mapping) else key, test, history)
    begun.append((run, state))
  for run, state in begun:
    name = run.name
    with _tracked(tracker, run, history, rounds, every) as (history, tell):
      history, is_complete = _trained(run, state, rounds, every, progress, history, tell.log)
      tell.finish(_summary(history, name) if is_complete else None, ())
    if not is_complete:
      break
  return (dict(history.states) if several else history.states[NAME]), history


class _Run(NamedTuple):
  name: str
  simulation: Simulation
  seeds: int  # that are mapped; 0 without an axis of them
  test: tuple | None


def _check(simulations, rounds, every, test):
  if not simulations:
    raise ValueError('simulation is an empty dict; give at least one, by name')
  for run, one in simulations.items():
    if not isinstance(run, str) or run != pathlib.PurePath(run).name or run == '..':  # `History.save`: its folder
      raise ValueError(f"simulation has the name {kinds.what_is(run)}; give a name that a folder can have, without '/'")
    kinds.check_is(f'simulation[{run!r}]', one, Simulation, 'what fedkd.simulation returns')
  kinds.whole_number('rounds', rounds)
  kinds.whole_number('every', every)
  if test is not None and (not isinstance(test, tuple | list) or len(test) not in (2, 3)):
    raise ValueError(
      f'test is {kinds.what_is(test)}; give (x, y), test examples and their labels, or (x, y, owner) with the client '
      'of each'
    )
  if test is not None and not np.size(test[1]):
    raise ValueError('test has no examples; give (x, y) with at least one, or leave out test')
  for run, one in simulations.items() if test is not None and len(test) == 3 else ():
    owner = arguments.one_each('test[2]', test[2], len(np.atleast_1d(test[1])))
    several = clients(one.federation.groups)
    if len(np.unique(owner)) != several or owner.min() != 0 or owner.max() != several - 1:
      raise ValueError(
        f'test has examples of the clients {np.unique(owner).tolist()}, and {run!r} has clients 0 to {several - 1}; '
        'give every client test examples, or leave out the third of (x, y, owner)'
      )


def _begun(name, simulation, begun, test, history) -> tuple[_Run, SimulationState, History]:
  """(run, state to go on from, history with its evaluation)."""
  if begun is None:
    raise ValueError(f'key has nothing for {name!r}; give a key, or the state of every simulation by name')
  if not isinstance(begun, SimulationState):
    return _fresh(name, simulation, begun, test, history)
  run = _Run(name, simulation, seeds_of(begun), test)
  wanted = jax.eval_shape(lifted(simulation.init, run.seeds), begun.key)
  if shapes_of(wanted) != shapes_of(begun):
    raise ValueError(f'key is a state of another simulation than {name!r}; give a state of this one, or a key')
  if name not in history.states:
    return run, begun, _noted(history, run, begun, running.start(run.seeds or 1))
  _check_history(history, run, begun)
  return run, begun, history


def _check_history(history, run, state):
  """Checks that a history is of the training that goes on: one line of evaluations, on the same examples."""
  name, last, told = run.name, history.states[run.name], 'give the state that was returned with it'
  if round_of(last) != round_of(state):
    raise ValueError(
      f'history ends at round {round_of(last)} of {name!r}, and the state is after round {round_of(state)}; {told}'
    )
  if last.key.shape != state.key.shape or not np.array_equal(*map(jax.random.key_data, (last.key, state.key))):
    raise ValueError(f'history is of {name!r} from another key than the state; {told}, or leave out history')
  if history.clients[name].get('data', '') not in ('', _clients(run.simulation, run.test)['data']):
    raise ValueError(
      f'history has evaluations of {name!r} on other examples or test examples; give the same, or leave out history'
    )


def _fresh(name, simulation, key, test, history) -> tuple[_Run, SimulationState, History]:
  """As `_begun`, from one key or several."""
  if name in history.states:
    raise ValueError(f'history has {name!r} already; give its state instead of a key, or leave out history')
  listed = isinstance(key, list | tuple) and len(key) and all(isinstance(one, jax.Array | np.ndarray) for one in key)
  key = jnp.stack(key) if listed else key
  typed = jnp.issubdtype(getattr(key, 'dtype', np.dtype(bool)), jax.dtypes.prng_key)
  seeds = key.shape[0] if np.ndim(key) > (not typed) else 0
  kinds.check_key(key[0] if seeds else key)
  _check_distinct(key, seeds)
  run = _Run(name, simulation, seeds, test)
  state = lifted(simulation.init, seeds)(key)
  return run, state, _noted(history, run, state, running.start(seeds or 1))


def _check_distinct(key, seeds):
  names = keys_of(key, seeds)
  if again := next((s for s, name in enumerate(names) if name in names[:s]), 0):
    raise ValueError(
      f'key has the same key for seeds {names.index(names[again])} and {again}; give every seed its own, as '
      'jax.random.split(key, seeds) does'
    )


@contextlib.contextmanager
def _tracked(tracker, run, history, rounds, every) -> Iterator:
  """(history, `Tracker`) of one simulation; a history that is continued has the id by which its tracker knows it."""
  from fedkd.experiment import trackers

  if tracker is None:
    yield history, trackers.SILENT
    return
  known = history.clients[run.name].get('id')
  id = known or secrets.token_hex(8)
  history = history._replace(clients=history.clients | {run.name: {**history.clients[run.name], 'id': id}})
  folder = pathlib.Path('tracked') / f'{run.name}-{id}'
  folder.mkdir(parents=True, exist_ok=True)
  rows = [row for row in history.rows if row['run'] == run.name]
  config = {'name': run.name, 'rounds': rows[-1]['round'] + rounds, 'every': every, 'seeds': run.seeds or 1}
  told = trackers.Run(
    run.name, id, config, folder, rows[-1]['round'], range(len(history.clients[run.name]['examples']))
  )
  with trackers.tracking(tracker, told, [(row, row['round']) for row in rows]) as tell:
    for row in rows if tell.last is None and not known else ():  # what it does not have, though it does not say so
      tell.log(row, row['round'])
    yield history, tell


def _summary(history, name) -> dict:
  last = [row for row in history.rows if row['run'] == name][-1]
  return {**last, 'rounds': last['round']}


def _trained(run, state, rounds, every, progress, history, log) -> tuple[History, bool]:
  """The history with the evaluations of so many more rounds; and whether it has all of them."""
  end = round_of(state) + rounds
  try:
    with _bar(run.name, rounds, progress) as show:
      while (at := round_of(state)) < end:
        count = min(every - at % every, end - at)
        state, history = _advanced(run, state, history, at, count)
        show(count, history.rows[-1])
        log(history.rows[-1], round_of(state))
  except KeyboardInterrupt:
    last = round_of(history.states[run.name])
    warnings.warn(f'{run.name} was interrupted, and is returned as of round {last}', stacklevel=3)
    return history, False
  return history, True


def _advanced(run, state, history, at, count) -> tuple[SimulationState, History]:
  """(state, history with its evaluation) after `count` more rounds."""
  more = lifted(lambda s: run.simulation.run(s, count), run.seeds)
  (state, report), seconds = clock.timed(lambda: jax.block_until_ready(more(state)))
  report = jax.tree.map(lambda a: np.asarray(a) if run.seeds else np.asarray(a)[None], report)
  _check_losses(run, report, history, at, count)
  totals = running.add(history.totals[run.name], report, count, seconds)
  return state, _noted(history, run, state, totals)


def _noted(history, run, state, totals) -> History:
  """A history with one more evaluation."""
  row = {'run': run.name, 'round': round_of(state), 'seeds': list(range(run.seeds or 1)), 'turns': totals['turns']}
  row |= _accuracies(run, state) | running.row(totals)
  known = {}
  if run.name not in history.clients:
    known[run.name] = {**_clients(run.simulation, run.test), 'key': keys_of(state.key, run.seeds)}
  return History(
    (*history.rows, row),
    history.clients | known,
    history.states | {run.name: state},
    history.totals | {run.name: {**totals, 'means': {}}},
  )


def _accuracies(run, state) -> dict[str, Any]:
  """The accuracy fields of an evaluation, those of further predictions with their names."""
  if run.test is None:
    return {}
  groups = run.simulation.federation.groups
  owner = evaluated_in(groups, np.arange(clients(groups)))

  x, y, *domains = run.test
  domains = domains[0] if domains else np.zeros(len(y), int)
  rows = np.broadcast_to(np.bincount(domains), (run.seeds or 1, int(np.max(domains)) + 1))

  def correct(name):
    of_one = lambda state: run.simulation.accuracy(state, x, y, name, domains)
    accuracy = np.asarray(lifted(of_one, run.seeds)(state), float).reshape(len(rows), len(owner), -1)
    return np.round(accuracy * rows[:, None])  # a whole number, or NaN

  fields = lambda correct: running.of_domains(correct, rows, owner, len(groups))
  by_name = {name: correct(name) for name in predictions(run.simulation.method)}
  return {'test_rows': len(y), **running.by_prediction(by_name, fields)}


def _check_losses(run, report, history, at, count):
  if (bad := running.first_bad_loss(report, count)) is None:
    return
  seed, t, broken, loss = bad
  of_seed = f' of seed {seed}' if run.seeds else ''
  last = history.states[run.name]
  raise TrainingError(
    f'{run.name}: the loss of client {", ".join(map(str, broken[:5]))}{of_seed} is {loss} in round {at + t}; lower the '
    'learning rate, or look at its examples; `state` and `history` of this error are those after round '
    f'{round_of(last)}',
    last,
    history,
  )


def _clients(simulation, test) -> dict:
  """What a frame says of the clients, as lists in their order; and 'data', a checksum of examples and of their owners,
  by which runs on other data are told apart."""
  federation, groups = simulation.federation, simulation.federation.groups
  owner = evaluated_in(groups, np.arange(clients(groups)))
  numbers = lambda table: zip(np.asarray(table.id).tolist(), np.asarray(table.size).tolist(), strict=True)
  size = [dict(numbers(table)) for table in simulation.federation.private]
  known = {
    'architecture': [groups[g].name for g in owner],
    'examples': [size[g].get(client, 0) for client, g in enumerate(owner)],
  }
  if federation.domain is not None:
    known['domain'] = _domains(federation, len(owner))
  data = jax.tree.leaves((federation.pool, federation.private, federation.public, test))
  return {**known, 'data': hashlib.sha256(b''.join(np.ascontiguousarray(a).tobytes() for a in data)).hexdigest()[:8]}


def _domains(federation, count) -> list:
  """The domain of every client whose training examples have one; None of others."""
  out: list = [None] * count
  for table in federation.private:
    for id, size, index in zip(*(np.asarray(a) for a in (table.id, table.size, table.index)), strict=True):
      domains = np.unique(np.asarray(federation.domain)[index[:size]]).tolist()
      out[id] = domains[0] if len(domains) == 1 else None
  return out


@contextlib.contextmanager
def _bar(run, rounds, show) -> Iterator[Callable]:
  """(rounds, row) -> None, which moves a progress bar where somebody can see one."""
  if not show or not (sys.stderr.isatty() or 'ipykernel' in sys.modules):
    yield lambda count, row: None
    return
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # without ipywidgets the bar is text
    from tqdm.auto import tqdm

  with tqdm(total=rounds, desc=run, unit='round') as bar:

    def update(count, row):
      told = [name for name in ('accuracy', 'loss') if None not in row.get(name, [None])]
      bar.set_postfix({name: f'{np.mean(row[name]):.3f}' for name in told})
      bar.update(count)

    yield update
