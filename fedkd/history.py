"""What a training in a notebook leaves: evaluations and states, as a frame and in files."""

import os
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedkd.errors import ConfigError
from fedkd.simulation import Simulation, SimulationState

if TYPE_CHECKING:
  import pandas as pd

NAME = 'run'  # of a simulation that is trained alone


class History(NamedTuple):
  """The evaluations of one or several simulations, and where they have come to.

  Attributes:
    rows: an evaluation each: 'run', 'round', 'seeds', and metrics as lists over seeds, those of clients as lists of
      lists; names as in the `metrics.jsonl` of a run.
    clients: per run, what is known of its clients: lists of 'architecture', 'examples' and 'domain', where there are
      domains, in their order; 'data', a checksum of their examples; 'key', that of every seed; and 'id', by which a
      tracker knows the run.
    states: per run, the last state.
    totals: per run, what the ledger has counted so far.
  """

  rows: tuple[dict, ...] = ()
  clients: dict[str, dict] = {}  # noqa: RUF012
  states: dict[str, SimulationState] = {}  # noqa: RUF012
  totals: dict[str, dict] = {}  # noqa: RUF012

  def frame(self) -> 'pd.DataFrame':
    """The evaluations as a tidy frame: a line per run, seed, evaluation, client and metric."""
    from fedkd.analysis import tidy

    def of(run, known):
      rows = [row for row in self.rows if row['run'] == run]
      clients = {name: known[name] for name in known if name not in ('data', 'id', 'key')}
      frame = tidy.tidy(rows, clients, run=run, method=run, data=known.get('data'))
      return frame.assign(key=frame['seed'].map(dict(enumerate(known.get('key', ())))))

    return tidy.concatenated(of(run, known) for run, known in self.clients.items())

  def save(self, path: str | os.PathLike) -> None:
    """Saves rows and states in a directory, from which `restore` and `read` read them; what it held is replaced.

    Raises:
      StoreError: if it cannot be written.
    """
    from fedkd.experiment.storage import checkpoint, key_data

    for run, state in self.states.items():
      rows = [row for row in self.rows if row['run'] == run]
      notes = {'rows': rows, 'clients': self.clients[run], 'totals': self.totals[run], 'seeds': seeds_of(state)}
      notes['shapes'] = shapes_of(state)
      checkpoint.replace(pathlib.Path(path) / run, key_data.unwrapped(state), notes)

  @classmethod
  def read(cls, path: str | os.PathLike, simulation: Simulation | Mapping[str, Simulation]) -> 'History':
    """The history that `save` has written; arguments and errors as of `restore`."""
    simulations = simulation if isinstance(simulation, Mapping) else {NAME: simulation}
    found = {name: _restored(pathlib.Path(path) / name, one) for name, one in simulations.items()}
    rows = tuple(row for _, notes in found.values() for row in notes['rows'])
    of = lambda field: {name: notes[field] for name, (_, notes) in found.items()}
    return cls(rows, of('clients'), {name: state for name, (state, _) in found.items()}, of('totals'))


def restore(path: str | os.PathLike, simulation: Simulation | Mapping[str, Simulation]) -> Any:
  """The state that `History.save` has written, bit for bit; of several simulations their states by name.

  Raises:
    ConfigError: if nothing is saved there, it is damaged, or it is the state of another simulation.
  """
  states = History.read(path, simulation).states
  return states if isinstance(simulation, Mapping) else states[NAME]


def _restored(path, simulation) -> tuple[SimulationState, dict]:
  from fedkd.experiment.storage import checkpoint, key_data

  def like(notes):
    key = jax.random.key(0)
    keys = jax.random.split(key, notes['seeds']) if notes['seeds'] else key
    wanted = jax.eval_shape(lifted(simulation.init, notes['seeds']), keys)
    if shapes_of(wanted) != notes['shapes']:
      raise ConfigError(
        f'path={str(path.parent)!r} holds a state of another simulation than {path.name!r}; make that one'
      )
    return jax.eval_shape(key_data.unwrapped, wanted)

  state, notes = checkpoint.only(path, like)
  return key_data.wrapped(jax.tree.map(jnp.asarray, state)), notes


def keys_of(key: jax.Array, seeds: int) -> list[str]:
  """The key of every seed as hexadecimal digits; seeds: as of `seeds_of`."""
  data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
  return [np.asarray(one).tobytes().hex() for one in (data if seeds else [data])]


def seeds_of(state: SimulationState) -> int:
  """How many are mapped; 0 for a state without an axis of them."""
  return state.round.shape[0] if state.round.ndim else 0


def round_of(state: SimulationState) -> int:
  """The rounds so far."""
  return int(np.max(state.round))


def shapes_of(state: SimulationState) -> list[str]:
  """Name, dtype and shape of every array."""
  leaves = jax.tree_util.tree_leaves_with_path(state)
  return [f'{jax.tree_util.keystr(path)} {leaf.dtype}{list(leaf.shape)}' for path, leaf in leaves]


def lifted(function: Callable, seeds: int) -> Callable:
  """A function of one state as one of `seeds` stacked states; itself for 0."""
  return jax.vmap(function) if seeds else function
