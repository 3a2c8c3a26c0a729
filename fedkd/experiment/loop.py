"""The loop over the rounds of a phase: between evaluations, segments of rounds, each one call of one compiled program.

After a segment the losses are checked, the state can be saved, and the run can be stopped. How a phase is cut into
segments does not change a bit.
"""

import pathlib
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from fedkd import files
from fedkd import totals as running
from fedkd.config import to_json
from fedkd.errors import DivergedError, StoppedError
from fedkd.experiment import early_stopping, progress, scoring, warm_up
from fedkd.experiment.build.assembly import Experiment
from fedkd.experiment.hosts import hosts
from fedkd.experiment.storage import checkpoint
from fedkd.experiment.trackers import Tracker
from fedkd.local import Learner

SEGMENT_SECONDS = 10  # of work between two looks at the signals and the clock
TRAINING_ROWS = 2000  # of all clients together, on which the last round's models are evaluated too
SAVING = 0.1  # at most so large a share of the time goes into checkpoints


class Loop(NamedTuple):
  """What the loop over the rounds of a phase needs."""

  parts: Experiment
  number: int  # of the phase
  start: int  # rounds of the phases before
  workdir: pathlib.Path
  saved: Any
  display: progress.Display
  tracker: Tracker
  stop: list

  @property
  def phase(self):
    return self.parts.phases[self.number]


class Progress(NamedTuple):
  """How far a phase has come."""

  at: int  # rounds of the phase
  state: Any
  totals: dict  # `totals`
  pace: float = 0.0  # seconds a round, 0: not known yet
  safe_at: int = 0  # the round of the last checkpoint
  safe: float = 0.0  # when that was
  saving: float = 0.0  # seconds that it took


def rounds(loop, state, totals, at, fresh):
  """The loop over the segments of a phase, from round `at`; returns the final (State, totals)."""
  now = _begin(loop, state, totals, at, fresh)
  while now.at < loop.phase.rounds:
    now, rate = _train(loop, now)
    now, row = _evaluate_if_due(loop, now)
    loop.display.update(loop.start + now.at, rate, row)
    stops = signals(loop.stop)
    if now.at == loop.phase.rounds or stops or hosts.broadcast_from_primary(_save_due(loop, now)):
      now = _save(loop, now)
    if stops and loop.start + now.at < sum(p.rounds for p in loop.parts.phases):
      reached = f'stopped by a signal after round {loop.start + now.at}, which is saved; start again to continue'
      raise StoppedError(stops[0], reached)
  return now.state, now.totals


def _begin(loop, state, totals, at, fresh) -> Progress:
  """Where the loop starts, the program being loaded; a fresh phase is evaluated before its first round."""
  state, _ = jax.block_until_ready(loop.phase.run(state, at, 0))  # no round: what the first call alone costs
  totals = running.begun(totals, len(loop.parts.config.seeds), None if fresh else loop.phase.plan, at)
  now = Progress(at, state, totals, safe_at=at, safe=time.monotonic())
  if fresh:
    now, row = _evaluate(loop, now)
    loop.display.update(loop.start, 0, row)
  return now


def _train(loop, now) -> tuple:
  """(Progress, examples per second) after one more segment: up to the next evaluation, about SEGMENT_SECONDS long."""
  count = min(_due(loop, now.at) - now.at, loop.phase.length)
  count = hosts.broadcast_from_primary(min(count, max(1, int(SEGMENT_SECONDS / now.pace)) if now.pace else 1))
  begun = time.monotonic()
  state, report = loop.phase.run(now.state, now.at, count, _stopped(loop, now))
  report = jax.device_get(report)
  seconds = time.monotonic() - begun
  _check_loss(loop, report, now.at, count, now.safe_at)
  totals = running.add(now.totals, report, count, seconds)
  examples = np.sum(totals['examples']) - np.sum(now.totals['examples'])
  return now._replace(at=now.at + count, state=state, totals=totals, pace=seconds / count), examples / seconds


def _due(loop, at) -> int:
  """The round of the next evaluation."""
  every = loop.parts.config.eval_every
  return min(at + every - at % every, loop.phase.rounds)


def _stopped(loop, now):
  """Who has stopped early, bool[seeds, clients]; None where nothing is known."""
  return early_stopping.stopped(loop.parts.stops[loop.number], now.totals['stop'])


def _evaluate_if_due(loop, now) -> tuple:
  """(Progress, row of metrics.jsonl or None). Where every client has stopped, the phase is at its end."""
  early, every, row = loop.parts.stops[loop.number], loop.parts.config.eval_every, None
  if now.at % every == 0 or now.at == loop.phase.rounds:
    now, row = _evaluate(loop, now)
  if early and row and now.at % every == 0:  # a run that ends in between may be prolonged
    # And then as if it had not ended: by as many rows as in all other evaluations.
    seen = row
    if now.at == loop.phase.rounds:
      seen = _accuracies(loop, loop.phase.ready(now.state), now.at, loop.parts.config.eval_rows)
    patience = early_stopping.update(early, now.totals['stop'], seen[f'{early.watch}_per_client'])
    now = now._replace(totals={**now.totals, 'stop': patience})
  stopped = None if loop.phase.method.server.alone else _stopped(loop, now)
  if now.at < loop.phase.rounds and stopped is not None and stopped.all():
    loop.display.say(f'{loop.phase.label}: every client has stopped after round {now.at}')
    now, row = _evaluate(loop, now._replace(at=loop.phase.rounds))  # what is left would change nobody
  return (now._replace(totals={**now.totals, 'means': {}}) if row else now), row


def _save(loop, now) -> Progress:
  """Saves the state, on one host; a state with weights that are not finite is refused instead."""
  begun = time.monotonic()
  packed = loop.phase.pack(now.state)
  _check_weights(loop, packed, now.at, now.safe_at)
  if hosts.is_primary():
    checkpoint.save(loop.saved, loop.start + now.at, packed, now.totals)
  safe = time.monotonic()
  return now._replace(safe=safe, safe_at=now.at, saving=safe - begun)


def signals(stop) -> list:
  """The numbers of the signals that all hosts have got; `stop` holds this one's."""
  return [signum for each in hosts.gather(stop) for signum in each]


def _save_due(loop, now) -> bool:
  every = loop.parts.config.checkpoint_every
  if every:
    return now.at // every > now.safe_at // every
  return time.monotonic() - now.safe >= max(SEGMENT_SECONDS, now.saving / SAVING)


def _check_loss(loop, report, at, count, safe_at):
  bad = running.first_bad_loss(report, count)
  if bad:
    seed, t, clients, loss = bad
    where = f'in round {at + t} of {loop.phase.label} (seed {loop.parts.config.seeds[seed]})'
    found = f'the loss of client {clients[0]} became {loss} {where}'
    if len(clients) > 1:
      is_first = not loop.start + at + t
      rule = None if is_first else loop.parts.config.method.get('rule')
      rule = f', or in what method.rule={to_json(rule)!r} made of the uploads' if rule else ''
      who = f'{len(clients)} clients ({", ".join(map(str, clients[:5]))}{", ..." * (len(clients) > 5)})'
      where_else = 'in their examples' if is_first else 'in an earlier round, in one of them'
      cause = f'look for the cause {where_else}{rule}'
      found = f'the losses of {who} became {loss} {where}: {cause}'
    raise DivergedError(f'{found}; {_remedy(loop, safe_at)}')


def _check_weights(loop, packed, at, safe_at):
  """A step after the last loss may have been the bad one: no such weights are saved."""
  learners = jax.tree.leaves(packed.client, is_leaf=lambda node: isinstance(node, Learner))
  weights = jax.tree.leaves([node.params for node in learners if isinstance(node, Learner)])
  if not all(np.isfinite(np.asarray(leaf)).all() for leaf in weights):
    raise DivergedError(
      f'a weight became infinite or NaN by round {at} of {loop.phase.label}; {_remedy(loop, safe_at)}'
    )


def _remedy(loop, safe_at) -> str:
  rate, safe = loop.parts.config.optimizer.get('learning_rate'), loop.start + safe_at
  lower = 'lower the learning rate' if rate is None else f'lower optimizer.learning_rate={rate}'
  return f'{lower}; ' + (f'the checkpoint of round {safe} is kept' if safe else 'there is no checkpoint yet')


def _evaluate(loop, now) -> tuple:
  """(Progress, row) after an evaluation, whose row is written. A phase's last one is of all rows."""
  parts, phase, at = loop.parts, loop.phase, now.at
  last, state = at == phase.rounds, phase.ready(now.state)
  row = {
    'phase': loop.number,
    'method': phase.label,
    'round': at,
    'turns': now.totals['turns'],
    **_accuracies(loop, state, at, 0 if last else parts.config.eval_rows),
    **(scoring.training(parts, phase, state, TRAINING_ROWS) if last else {}),
    **running.row(now.totals),
  }
  if loop.number == 0 and at == _due(loop, 0):
    _warn_of_initial_statistics(loop, at, now.totals)
  written = files.append(loop.workdir / 'metrics.jsonl', row, now.totals['metrics'])
  loop.tracker.log(row, loop.start + at)
  return now._replace(totals={**now.totals, 'metrics': written}), row


def _accuracies(loop, state, at, limit) -> dict:
  """Of a state that is ready, in round `at`: on `limit` rows of each kind (tested, held out, public), 0 for all."""
  parts, phase, early = loop.parts, loop.phase, loop.parts.stops[loop.number]
  # After a phase that prepares the last one, also what it has learned about the public images.
  prepared = at == phase.rounds and phase is not parts.phases[-1] and parts.source.public_test is not None
  on_public = prepared or (early is not None and early.watch == 'accuracy_public')
  return {
    **scoring.accuracy(parts, phase, state, limit),
    **scoring.validation(parts, phase, state, limit),
    **(scoring.public(parts, phase, state, limit) if on_public else {}),
  }


def _warn_of_initial_statistics(loop, at, totals):
  """At the first evaluation of a run that has trained."""
  config = loop.parts.config
  batch = [*config.before, config.method][0].get('batch')
  if loop.parts.decay and batch and not loop.phase.method.calibrate:
    share = warm_up.initial_share(loop.parts.decay, totals, at, config.data.clients, batch)
    if sentence := warm_up.warning(share):
      loop.display.say(f'warning: {sentence}')
