"""One run of a method: a setting, a choice of hyperparameters, a seed; in this process, with shared programs."""

import dataclasses

import jax
import numpy as np

from fedkd import totals as running
from launch.studies.comparison import budget, problem, programs, settings

BLOCK = 1000  # rows of one call of the evaluation


@dataclasses.dataclass(frozen=True)
class Place:
  """Where methods meet: a setting of a suite in a tier."""

  suite: str
  profile: str
  tier: str
  setting: str

  def astuple(self) -> tuple[str, str, str, str]:
    """The four of them."""
    return dataclasses.astuple(self)


def run(place: Place, method: str, choice: dict, seed: int, tuning: bool = False, share: float = 1.0) -> dict:
  """Trains and evaluates once.

  Args:
    place: where.
    method: of `fedkd.methods`, or module:function.
    choice: of hyperparameters, an entry of `budget.grid`.
    seed: of split, initial weights and batches.
    tuning: whether only validation rows are looked at, at the end.
    share: of the rounds; with less than 1 the test rows are looked at once, at the end.

  Returns:
    JSON: `curve`, an entry per evaluation with accuracies on own and on all clients' test rows of every client, and
    what had been sent and trained on by then; `validation`, the mean over clients and over own and all validation
    rows; `seconds` of the processor without `compiling`; `diverged`, whether a loss was not finite.
  """
  world, size = problem.make(place.astuple(), seed), settings.SIZES[place.profile]
  clock = programs.Clock()  # without loading the data
  alone, rounds = budget.lengths(place.suite, place.profile, place.setting, method, share)
  totals, variables = running.start(1), world.variables
  if alone:
    before = world._replace(key=world.key_alone)  # else its first rounds had the mini-batches of the method's
    runner = runner_of(clock, place, 'private', budget.alone(choice), before, variables, (0, alone, rounds))
    state, totals, _ = runner.train(runner.begin(), totals, 0, alone)
    variables = runner.variables(state)
  runner = runner_of(clock, place, method, choice, world, variables, (alone, rounds, 0))
  state, curve, every = runner.begin(), [], -(-rounds // settings.EVALUATIONS) if share == 1 else rounds
  healthy = True
  for start in range(0, rounds, every):
    end = min(start + every, rounds)
    state, totals, finite = runner.train(state, totals, start, end)
    healthy = healthy and finite
    if not tuning:
      rows = size.own_rows if end == rounds else size.at_most
      curve.append({**_point(totals, alone + end), **_accuracies(runner.correct(state, _some(world.own, rows)))})
  validation = _accuracies(runner.correct(state, _some(world.held, size.own_rows))) if tuning else None
  done = {'seed': seed, 'choice': choice, 'diverged': not healthy, 'examples': totals['examples'][0]}
  spent = {'seconds': round(clock.running(), 2), 'compiling': round(clock.compiling, 2)}
  if tuning:
    both = float(np.mean([validation['own'], validation['all']]))
    return {**done, **spent, 'validation': round(both, 5) if healthy else None}
  return {**done, **spent, 'public_bytes': public_bytes(method, world), 'curve': curve}


def _point(totals, at) -> dict:
  """What had been sent and trained on by round `at`."""
  sent = {f'bytes_{way}': int(running.total(totals, way)[1, 0]) for way in ('up', 'down')}
  return {'round': at, 'examples': totals['examples'][0], **sent}


def public_bytes(method: str, world: problem.Problem) -> dict:
  """{'up', 'down'}: of the raw public images that clients give away once, and then hold or not."""
  public = int(world.arrays[-3].size) if world.arrays[-3] is not None else 0
  users = budget.learns_on_public(method)
  up = public * world.image_bytes * (users or method in budget.PUBLIC_SERVER)
  return {'up': up, 'down': (len(world.own) - 1) * up * users}  # nobody downloads its own


def _some(lists, most) -> list:
  """At most `most` rows of each client, always the same ones."""
  return [rows[np.sort(np.random.default_rng(0).permutation(len(rows))[:most])] for rows in lists]


def _accuracies(correct: dict) -> dict:
  """{'own', 'all'}: per client; those of a method's further predictions under their names, means over clients."""
  out = {}
  for name, (own, everything) in correct.items():
    numbers = {'own': [round(float(a), 4) for a in own], 'all': [round(float(a), 4) for a in everything]}
    out |= {f'{name}_{key}': float(np.mean(value)) for key, value in numbers.items()} if name else numbers
  return out


@dataclasses.dataclass(frozen=True)
class _Runner:
  """The compiled programs of a method, with what they are called with."""

  clock: programs.Clock
  identity: tuple
  programs: programs.Programs
  values: dict
  world: problem.Problem
  initial: tuple

  def _call(self, name, *arguments, **how):
    function = getattr(self.programs, name)
    return programs.call(self.clock, self.identity, function, self.values, self.world.arrays, *arguments, **how)

  def trace(self) -> None:
    """Goes through the programs of a run without training: what cannot be compiled fails here."""
    tables, at = tuple(_segment(table, 0) for table in self.world.plan.participants), np.int32(0)
    world = self.world.arrays, self.world.key
    state = jax.eval_shape(self.programs.begin, self.values, *world, self.initial)
    state, _ = jax.eval_shape(self.programs.train, self.values, *world, tables, at, at, state)
    jax.eval_shape(self.programs.correct, self.values, self.world.arrays, state, *np.zeros((2, BLOCK), np.int32))

  def begin(self):
    return self._call('begin', self.world.key, self.initial)

  def variables(self, state):
    return self._call('variables', state)

  def train(self, state, totals, start, end) -> tuple:
    """(state, totals, whether all losses were finite) after the rounds from `start` to below `end`."""
    finite = True
    for at in range(start, end, programs.SEGMENT):
      count = min(programs.SEGMENT, end - at)
      tables = tuple(_segment(table, at) for table in self.world.plan.participants)
      arguments = self.world.key, tables, np.int32(at), np.int32(count), state
      state, report = self._call('train', *arguments, donated=(6,))
      report = jax.tree.map(lambda a: np.asarray(a)[None], report)
      totals = running.add(totals, report, count, 0.0)
      finite = finite and running.first_bad_loss(report, count) is None
    return state, totals, finite

  def correct(self, state, lists) -> dict:
    """{prediction: (accuracy on own rows, on all rows)}, each [K]; a prediction that is not a number is wrong."""
    rows, owner = np.concatenate(lists), np.repeat(np.arange(len(lists)), [len(each) for each in lists])
    blocks = range(0, len(rows), BLOCK)
    fill = lambda a: np.pad(a, (0, -len(a) % BLOCK)).astype(np.int32)
    found: dict = {}
    for at in blocks:
      some = rows[at : at + BLOCK]
      label = np.where(np.arange(BLOCK) < len(some), np.asarray(self.labels)[fill(some)], -1).astype(np.int32)
      for name, right in self._call('correct', state, fill(some), label).items():
        found.setdefault(name, []).append(np.nan_to_num(np.asarray(right))[:, : len(some)])
    whole = {name: np.concatenate(parts, 1) for name, parts in found.items()}
    mine = owner == np.arange(len(lists))[:, None]
    return {name: ((right * mine).sum(1) / mine.sum(1), right.mean(1)) for name, right in whole.items()}

  @property
  def labels(self):
    return self.world.arrays[0].label


def _segment(table, at):
  rows = table[at : at + programs.SEGMENT]
  return np.pad(rows, [(0, programs.SEGMENT - len(rows)), (0, 0)], constant_values=-1)


def runner_of(clock, place: Place, method: str, choice: dict, world, initial, phases=(0, 1, 0)) -> _Runner:
  """`phases`: rounds before, of and after this one, over all of which the learning rate falls once."""
  values, constants = budget.split_choice(choice)
  drop_at = 2 * sum(phases) // 3 - phases[0]
  given = {key: np.float32(value) for key, value in {**values, 'drop_at': drop_at}.items()}
  fields = {**budget.fields(*place.astuple(), method), **constants}
  made = programs.make(method, fields, world.groups, initial)
  identity = (method, str(sorted(fields.items())), place.suite, place.tier)
  return _Runner(clock, identity, made, given, world, initial)
