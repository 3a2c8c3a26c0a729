"""The loop over the rounds of a phase: between evaluations, chunks of rounds, each one call of one compiled program.

After a chunk the losses are looked at, the state can be saved, and the run can be stopped. Chunking does not change a
bit.
"""

import pathlib
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from fedkd import files
from fedkd import plan as plans
from fedkd.errors import DivergedError, StoppedError
from fedkd.experiment import checkpoint, early_stopping, hosts, progress, scoring
from fedkd.experiment import totals as running
from fedkd.experiment.build import Experiment
from fedkd.local import Learner

CHUNK_SECONDS = 10  # of work between two looks at the signals and the clock
SAVING = 0.1  # at most so large a share of the time goes into checkpoints


class Loop(NamedTuple):
  """What the loop over the rounds of a phase needs."""

  parts: Experiment
  number: int  # of the phase
  start: int  # rounds of the phases before
  workdir: pathlib.Path
  saved: Any
  display: progress.Display
  writer: Any
  stop: list

  @property
  def phase(self):
    return self.parts.phases[self.number]


def rounds(loop, state, totals, at, fresh):
  """The loop over chunks of rounds of one phase, from round `at`; returns the final (State, totals)."""
  phase, config, display = loop.phase, loop.parts.config, loop.display
  state, _ = jax.block_until_ready(phase.run(state, at, 0))  # no round: what the first call alone costs
  # A checkpoint that is older than these counts went by the plan.
  planned = [int(plans.client_updates(phase.plan)[:at].sum())] * len(config.seeds)
  totals = (
    {**totals, **running.of_phase(len(config.seeds))}
    if fresh
    else {'turns': planned, 'stop': {}, 'means': {}, **totals}
  )
  if fresh:
    display.update(loop.start, 0, _evaluate(loop, 0, state, totals))
  early = loop.parts.stops[loop.number]
  stopped = early_stopping.stopped(early, totals['stop'])
  pace, safe, safe_at, saving = 0.0, time.monotonic(), at, 0.0
  while at < phase.rounds:
    due = min(at + config.eval_every - at % config.eval_every, phase.rounds)
    count = hosts.broadcast_from_primary(min(due - at, phase.length, max(1, int(CHUNK_SECONDS / pace)) if pace else 1))
    begun = time.monotonic()
    state, report = phase.run(state, at, count, stopped)
    report = jax.device_get(report)
    seconds = time.monotonic() - begun
    _check_loss(loop, report, at, count, safe_at)
    examples, pace = np.sum(totals['examples']), seconds / count
    totals = running.add(totals, report, count, seconds)
    rate = (np.sum(totals['examples']) - examples) / seconds
    at += count
    row = _evaluate(loop, at, state, totals) if at == due else None
    if early and row and at % config.eval_every == 0:  # a run that ends in between may be prolonged
      totals = {**totals, 'stop': early_stopping.update(early, totals['stop'], row[f'{early.watch}_per_client'])}
      stopped = early_stopping.stopped(early, totals['stop'])
    if at < phase.rounds and stopped is not None and stopped.all():
      display.say(f'{phase.label}: every client has stopped after round {at}')
      at = phase.rounds  # what is left would change nobody
      row = _evaluate(loop, at, state, totals)
    totals = {**totals, 'means': {}} if row else totals
    display.update(loop.start + at, rate, row)
    stops = signals(loop.stop)
    if at == phase.rounds or stops or hosts.broadcast_from_primary(_save_due(config, at, safe_at, safe, saving)):
      begun = time.monotonic()
      packed = phase.pack(state)
      _check_weights(loop, packed, at, safe_at)
      if hosts.is_primary():
        checkpoint.save(loop.saved, loop.start + at, packed, totals)
      safe, safe_at = time.monotonic(), at
      saving = safe - begun
    if stops and loop.start + at < sum(p.rounds for p in loop.parts.phases):
      reached = f'stopped by a signal after round {loop.start + at}, which is saved; start again to continue'
      raise StoppedError(stops[0], reached)
  return state, totals


def signals(stop) -> list:
  """The numbers of the signals that all hosts have got; `stop` holds this one's."""
  return [signum for each in hosts.gather(stop) for signum in each]


def _save_due(config, at, safe_at, safe, saving) -> bool:
  if config.checkpoint_every:
    return at // config.checkpoint_every > safe_at // config.checkpoint_every
  return time.monotonic() - safe >= max(CHUNK_SECONDS, saving / SAVING)


def _check_loss(loop, report, at, count, safe_at):
  bad = running.first_bad_loss(report, count)
  if bad:
    seed, t, client, loss = bad
    where = f'in round {at + t} of {loop.phase.label} (seed {loop.parts.config.seeds[seed]})'
    raise DivergedError(f'the loss of client {client} became {loss} {where}; {_remedy(loop, safe_at)}')


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


def _evaluate(loop, at, state, totals) -> dict:
  """Evaluates after `at` rounds of a phase and writes the row. Its last round uses the whole test set."""
  parts, phase, early = loop.parts, loop.phase, loop.parts.stops[loop.number]
  # After a phase that prepares the last one, also what it has learned about the public images.
  prepared = at == phase.rounds and phase is not parts.phases[-1] and parts.source.public_test is not None
  on_public = prepared or (early is not None and early.watch == 'accuracy_public')
  limit, state = parts.config.eval_rows, phase.ready(state)
  row = {
    'phase': loop.number,
    'method': phase.label,
    'round': at,
    'turns': totals['turns'],
    **scoring.accuracy(parts, phase, state, 0 if at == phase.rounds else limit),
    **scoring.validation(parts, phase, state, limit),
    **(scoring.public(parts, phase, state, limit) if on_public else {}),
    **running.row(totals),
  }
  files.append(loop.workdir / 'metrics.jsonl', row)
  progress.events(loop.writer, row, loop.start + at)
  return row
