"""What a report says, before it has a format."""

from typing import NamedTuple

import numpy as np

from fedkd import analysis
from fedkd.analysis import compare, results
from fedkd.config.trees import at
from fedkd.report import rerun, tables
from fedkd.report.chosen import Runs, levels


class Content(NamedTuple):
  """The parts of a report."""

  question: str
  setting: str
  answer: list[str]  # sentences
  accuracies: tables.Table
  details: list[tables.Table]  # clients, architectures, bytes
  configs: tables.Table
  environment: tables.Table
  reruns: list[rerun.Rerun]
  runs: Runs


def of(runs: Runs, question: str = '') -> Content:
  """All but the figures."""
  return Content(
    question or _question(runs),
    _setting(runs),
    _answer(runs),
    tables.accuracies(runs),
    tables.every(runs, (tables.architectures, tables.clients, tables.ledger)),
    tables.configs(runs),
    tables.environment(runs),
    rerun.of(runs),
    runs,
  )


def _question(runs) -> str:
  methods = list(dict.fromkeys(summary['method'] for summary in runs.summaries.values()))
  if len(runs.summaries) == 1:
    return f'How accurate is {methods[0]}?'
  if len(methods) == 1:
    return f'Which setting of {methods[0]} is the most accurate?'
  return f'Which is the most accurate: {", ".join(methods[:-1])} or {methods[-1]}?'


def _setting(runs) -> str:
  """A sentence on data, clients, rounds and seeds; numbers in which runs differ are ranges."""
  configs = [tables.stored_config(path) for path in runs.paths.values()]
  summaries = list(runs.summaries.values())
  clients = _count([config['data']['clients'] for config in configs], 'client')
  rounds = _count([_rounds(config) for config in configs], 'round')
  most = ' at most, as clients stop early' if any(map(_stops_early, configs)) else ''
  seeds = _count([len(summary['seeds']) for summary in summaries], 'seed')
  runs_ = _count([len(summaries)], 'run')
  nets = _count([len({group['name'] for group in summary['groups']}) for summary in summaries], 'architecture')
  sample = [config.get('eval_clients', 0) for config in configs]
  some = f' Only {_count(sample, "client")} of each are evaluated, a fixed random sample.' if all(sample) else ''
  return f'{runs_} of {clients} with {nets} on {at(configs[0], "data.name")}: {rounds}{most}, {seeds} each.{some}'


def _rounds(config) -> int:
  """Of all phases."""
  return config['rounds'] + sum(phase.get('rounds', 1) for phase in config.get('before', ()))


def _stops_early(config) -> bool:
  """Whether clients may stop before the last round of a phase."""
  phases = [config, *config.get('before', ())]
  return any((phase.get('early_stop') or {}).get('watch') for phase in phases)


def _count(numbers, what) -> str:
  low, high = min(numbers), max(numbers)
  return f'{low} {what}' + 's' * (low != 1) if low == high else f'{low} to {high} {what}s'


def _answer(runs) -> list[str]:
  """The most accurate run, what it gains over the reference, and what it costs."""
  if len(runs.summaries) == 1:
    return [f'{runs.base}: {_final(runs, runs.base)}.', _cost(runs, runs.base)]
  level = levels(runs)
  best = runs.base if level.max() == level[runs.base] else str(level.idxmax())
  second = str(level.drop(best).idxmax()) if best == runs.base else runs.base
  one, other = (_final(runs, run, again) for run, again in ((best, second), (second, best)))
  first = f'{best} is the most accurate on average: {one}'
  if best != runs.base:
    return [f'{first}, against {other} of {runs.base}. {_gain(runs, best)}', _cost(runs, best)]
  return [f'{first}. Next is {second} with {other}. {_gain(runs, second)}', _cost(runs, second)]


def _final(runs, run, other=None) -> str:
  """The accuracy of a run, over the seeds that another one has, too, if they differ in some."""
  final = {name: dict(zip(one['seeds'], one['final'], strict=True)) for name, one in runs.summaries.items()}
  common = [seed for seed in final[run] if seed in final[other or run]]
  said = analysis.spread([100 * final[run][seed] for seed in common], ' %')
  if set(final[run]) == set(final[other or run]):
    return said
  return f'{said} over {_count([len(common)], "common seed")}'


def _gain(runs, run) -> str:
  """The paired difference to the reference, and whether it says anything."""
  line = runs.table.loc[run]
  common = len(set(runs.summaries[run]['seeds']) & set(runs.summaries[runs.base]['seeds']))
  if np.isnan(line['gain']):
    return f'{run} has no difference to {runs.base}: in one of them a client has no value at the end.'
  said = f'The difference of {run} to {runs.base} is {100 * line["gain"]:+.2f} points'
  if common < 3:
    return f'{said} over {common} common seed{"s" * (common > 1)}, too few for a test.'
  if np.isnan(line['p']):
    return f'{said} in each of {common} common seeds.'
  limits = f'[{100 * line["gain_low"]:+.2f}, {100 * line["gain_high"]:+.2f}]'
  verdict = 'significant' if line['p'] < 0.05 else 'not significant'
  return f'{said}, 95 % interval {limits}, p = {line["p"]:.3f} after Holm: {verdict} at 5 %.'


def _cost(runs, run) -> str:
  sent = results.sent(runs.summaries[run], 'bytes')
  total = float(np.mean(sent['up']) + np.mean(sent['down']))
  return f'{run} sends and receives {compare.megabytes(total)} MB.' if total else f'{run} sends nothing.'
