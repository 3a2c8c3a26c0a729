"""Training in a notebook: a simulation for some rounds, with a history of its evaluations.

The only entry point that shows anything, and whose results have files.
"""

import contextlib
import os
import pathlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedkd import totals as running
from fedkd.checks import kinds
from fedkd.errors import ConfigError, DivergedError
from fedkd.inference import evaluated_in, predictions
from fedkd.simulation import Simulation, SimulationState
from fedkd.types import clients

if TYPE_CHECKING:
  import pandas as pd

NAME = 'run'  # of a simulation that is trained alone


class History(NamedTuple):
  """The evaluations of one or several simulations, and where they have come to.

  Attributes:
    rows: an evaluation each: 'run', 'round', 'seeds', and metrics as lists over seeds, those of clients as lists of
      lists; names as in the `metrics.jsonl` of a run.
    clients: per run, what is known of its clients: lists of 'architecture' and 'examples' in their order.
    states: per run, the last state.
    totals: per run, what the ledger has counted so far.
  """

  rows: tuple[dict, ...] = ()
  clients: dict[str, dict] = {}  # noqa: RUF012
  states: dict[str, SimulationState] = {}  # noqa: RUF012
  totals: dict[str, dict] = {}  # noqa: RUF012

  def frame(self) -> 'pd.DataFrame':
    """The evaluations as a tidy frame: a line per run, seed, evaluation, client and metric."""
    from fedkd.analysis import frames

    of = lambda run: [row for row in self.rows if row['run'] == run]
    return frames.concatenated(frames.tidy(of(run), known, run=run, method=run) for run, known in self.clients.items())

  def save(self, path: str | os.PathLike) -> None:
    """Saves rows and states in a directory, from which `restore` and `history` read them; what it held is replaced.

    Raises:
      StoreError: if it cannot be written.
    """
    from fedkd.experiment.storage import checkpoint, key_data

    for run, state in self.states.items():
      rows = [row for row in self.rows if row['run'] == run]
      notes = {'rows': rows, 'clients': self.clients[run], 'totals': self.totals[run], 'seeds': _seeds(state)}
      notes['shapes'] = _shapes(state)
      checkpoint.replace(pathlib.Path(path) / run, key_data.unwrapped(state), notes)


def train(
  simulation: Simulation | Mapping[str, Simulation],
  key: jax.Array | SimulationState | Mapping[str, SimulationState],
  *,
  rounds: int = 100,
  test: tuple[Any, Any] | None = None,
  every: int = 10,
  progress: bool = True,
  history: History | None = None,
) -> tuple[Any, History]:
  """Trains a simulation, and evaluates it every few rounds.

  Rounds between evaluations are one compiled program. Ctrl-C ends the training after the rounds that are complete, and
  returns what there is.

  Args:
    simulation: from `fedkd.simulation`; or several by name, which are trained one after the other for a comparison.
    key: one key, `jax.random.key(0)`; several, `jax.random.split(key, 3)`, are the seeds of so many runs, mapped as one
      program. Or a state from which to go on; by name if there are several simulations.
    rounds: further rounds.
    test: (x, y), examples [T, ...] and labels int[T], on which every client's model is evaluated; None: the losses and
      the ledger alone.
    every: rounds between evaluations; the state before the first round and that after the last are evaluated too.
    progress: show a progress bar, in a terminal or a notebook.
    history: of the training that goes on, to which evaluations are added.

  Returns:
    (state, history): the state after the last round, with a leading axis of seeds where there are several keys; or
    states by name.

  Raises:
    ValueError: for a wrong argument, before anything is compiled.
    DivergedError: that names the first client whose loss is not finite; its `state` and `history` are those before.
  """
  several = isinstance(simulation, Mapping)
  simulations = dict(simulation) if isinstance(simulation, Mapping) else {NAME: simulation}
  _check(simulations, rounds, every, test)
  history = history or History()
  for run, one in simulations.items():
    begun = key.get(run) if isinstance(key, Mapping) else key
    history, complete = _trained(run, one, begun, rounds, test, every, progress, history)
    if not complete:
      break
  return (dict(history.states) if several else history.states[NAME]), history


def restore(path: str | os.PathLike, simulation: Simulation | Mapping[str, Simulation]) -> Any:
  """The state that `History.save` has written, bit for bit; of several simulations their states by name.

  Raises:
    ConfigError: if nothing is saved there, it is damaged, or it is the state of another simulation.
  """
  if isinstance(simulation, Mapping):
    return {run: _restored(pathlib.Path(path) / run, one)[0] for run, one in simulation.items()}
  return _restored(pathlib.Path(path) / NAME, simulation)[0]


def history(path: str | os.PathLike, simulation: Simulation | Mapping[str, Simulation]) -> History:
  """The history that `History.save` has written; arguments and errors as of `restore`."""
  simulations = simulation if isinstance(simulation, Mapping) else {NAME: simulation}
  read = {run: _restored(pathlib.Path(path) / run, one) for run, one in simulations.items()}
  rows = tuple(row for _, notes in read.values() for row in notes['rows'])
  of = lambda field: {run: notes[field] for run, (_, notes) in read.items()}
  return History(rows, of('clients'), {run: state for run, (state, _) in read.items()}, of('totals'))


def _restored(path, simulation) -> tuple[SimulationState, dict]:
  from fedkd.experiment.storage import checkpoint, key_data

  if not path.is_dir():
    raise ConfigError(
      f'path={str(path.parent)!r} holds no {path.name!r}; give a directory that History.save has written'
    )

  def like(notes):
    key = jax.random.key(0)
    keys = jax.random.split(key, notes['seeds']) if notes['seeds'] else key
    wanted = jax.eval_shape(_lifted(simulation.init, notes['seeds']), keys)
    if _shapes(wanted) != notes['shapes']:
      raise ConfigError(
        f'path={str(path.parent)!r} holds a state of another simulation than this {path.name!r}; make that one'
      )
    return jax.eval_shape(key_data.unwrapped, wanted)

  state, notes = checkpoint.only(path, like)
  return key_data.wrapped(jax.tree.map(jnp.asarray, state)), notes


def _check(simulations, rounds, every, test):
  if not simulations:
    raise ValueError('simulation is an empty dict; give at least one, by name')
  for run, one in simulations.items():
    kinds.check_is(f'simulation[{run!r}]', one, Simulation, 'what fedkd.simulation returns')
  kinds.whole_number('rounds', rounds)
  kinds.whole_number('every', every)
  if test is not None and (not isinstance(test, tuple | list) or len(test) != 2):
    raise ValueError(f'test is {kinds.what_is(test)}; give (x, y), test examples and their labels')


def _begun(run, simulation, begun, history) -> tuple[SimulationState, int]:
  """(state to go on from, number of seeds, 0 without an axis of them)."""
  if isinstance(begun, SimulationState):
    seeds = _seeds(begun)
    wanted = jax.eval_shape(_lifted(simulation.init, seeds), begun.key)
    if jax.tree.structure(wanted) != jax.tree.structure(begun) or _shapes(wanted) != _shapes(begun):
      raise ValueError(f'key is a state of another simulation than {run!r}; give a state of this one, or a key')
    return begun, seeds
  if begun is None:
    raise ValueError(f'key has nothing for {run!r}; give a key, or the state of every simulation by name')
  if isinstance(begun, list | tuple):
    begun = jnp.stack(begun)
  seeds = begun.shape[0] if begun.ndim > (not jnp.issubdtype(begun.dtype, jax.dtypes.prng_key)) else 0
  kinds.check_key(begun[0] if seeds else begun)
  if run in history.states:
    raise ValueError(f'history has {run!r} already; give its state instead of a key, or leave out history')
  return _lifted(simulation.init, seeds)(begun), seeds


def _seeds(state: SimulationState) -> int:
  """How many are mapped; 0 for a state without an axis of them."""
  return state.round.shape[0] if state.round.ndim else 0


def _shapes(state: SimulationState) -> list[str]:
  return [
    f'{jax.tree_util.keystr(path)} {a.dtype}{list(a.shape)}' for path, a in jax.tree_util.tree_leaves_with_path(state)
  ]


def _lifted(function: Callable, seeds: int) -> Callable:
  return jax.vmap(function) if seeds else function


def _trained(run, simulation, begun, rounds, test, every, progress, history) -> tuple[History, bool]:
  """The history with the evaluations of one more simulation; and whether all rounds are in it."""
  state, seeds = _begun(run, simulation, begun, history)
  first = _round_of(state)
  totals = history.totals.get(run) or running.start(seeds or 1)
  known = [row['round'] for row in history.rows if row['run'] == run]
  if known and known[-1] != first:
    raise ValueError(
      f'history ends at round {known[-1]} of {run!r}, and the state is after round {first}; give the state that was '
      'returned with it'
    )
  if not known:
    history = history._replace(clients={**history.clients, run: _clients(simulation)})
    history = _noted(history, run, simulation, state, seeds, totals, test)
  at = first
  try:
    with _bar(run, rounds, progress) as show:
      while at < first + rounds:
        count = min(every - at % every, first + rounds - at)
        before = time.monotonic()
        state, report = jax.block_until_ready(_lifted(lambda s, count=count: simulation.run(s, count), seeds)(state))
        report = jax.tree.map(lambda a: np.asarray(a) if seeds else np.asarray(a)[None], report)
        _check_losses(report, count, run, at, seeds, history)
        totals = running.add(totals, report, count, time.monotonic() - before)
        at += count
        history = _noted(history, run, simulation, state, seeds, totals, test)
        totals = {**totals, 'means': {}}
        show(count, history.rows[-1])
  except KeyboardInterrupt:
    warnings.warn(f'{run} was interrupted, and is returned as of round {_round_of(history.states[run])}', stacklevel=3)
    return history, False
  return history, True


def _round_of(state) -> int:
  return int(np.max(state.round))


def _noted(history, run, simulation, state, seeds, totals, test) -> History:
  """A history with one more evaluation."""
  row = {'run': run, 'round': _round_of(state), 'seeds': list(range(seeds or 1)), 'turns': totals['turns']}
  row |= _accuracies(simulation, state, seeds, test) | running.row(totals)
  return history._replace(
    rows=(*history.rows, row),
    states={**history.states, run: state},
    totals={**history.totals, run: {**totals, 'means': {}}},
  )


def _accuracies(simulation, state, seeds, test) -> dict:
  if test is None:
    return {}
  groups, fields = simulation.federation.groups, {}
  owner = evaluated_in(groups, np.arange(clients(groups)))
  for name in predictions(simulation.method):
    accuracy = np.asarray(_lifted(lambda s, name=name: simulation.accuracy(s, *test, name), seeds)(state), float)
    own = running.accuracies(np.atleast_2d(accuracy), np.ones(seeds or 1), owner, len(groups))
    fields |= {field.replace('accuracy', f'accuracy_{name}', 1) if name else field: v for field, v in own.items()}
  return fields


def _check_losses(report, count, run, at, seeds, history):
  bad = running.first_bad_loss(report, count)
  if bad is None:
    return
  seed, t, broken, loss = bad
  of_seed = f' of seed {seed}' if seeds else ''
  error = DivergedError(
    f'{run}: the loss of client {", ".join(map(str, broken[:5]))}{of_seed} is {loss} in round {at + t}; lower the '
    'learning rate, or look at its examples. `state` and `history` of this error are those after '
    f'round {_round_of(history.states[run])}'
  )
  error.state, error.history = history.states[run], history
  raise error


def _clients(simulation) -> dict:
  """What a frame says of the clients, as lists in their order."""
  groups = simulation.federation.groups
  owner = evaluated_in(groups, np.arange(clients(groups)))
  size = [
    dict(zip(np.asarray(t.id).tolist(), np.asarray(t.size).tolist(), strict=True))
    for t in simulation.federation.private
  ]
  return {
    'architecture': [groups[g].name for g in owner],
    'examples': [size[g].get(client, 0) for client, g in enumerate(owner)],
  }


@contextlib.contextmanager
def _bar(run, rounds, show) -> Iterator[Callable]:
  """(rounds, row) -> None, which moves a progress bar where somebody can see one."""
  if not show or not (sys.stderr.isatty() or 'ipykernel' in sys.modules):
    yield lambda count, row: None
    return
  from tqdm.auto import tqdm

  with tqdm(total=rounds, desc=run, unit='round') as bar:

    def update(count, row):
      bar.set_postfix(
        {name: f'{np.nanmean(row[name]):.3f}' for name in ('accuracy', 'loss') if None not in row.get(name, [None])}
      )
      bar.update(count)

    yield update
