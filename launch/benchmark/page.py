"""docs/benchmark.md and its figures from the results; nothing of them is written by hand."""

import pathlib

import numpy as np
import pandas as pd

from fedkd import analysis, methods
from fedkd.analysis import compare, figures, results
from launch.benchmark import budget, cells, ranks
from launch.benchmark.settings import COMMON, NEVER, PROFILES, SIZES, SUITES, applying, reason, settings

# Few methods apply in the one, and the other is a setting once more.
ALONE = ('asynchronous', 'long')
HEAD = """# Benchmark

Written by `python -m launch.benchmark --report` from the results in `results/benchmark`; nothing here is typed by hand.

All methods meet the same settings, each with the same splits, nets, seeds and client updates of as many mini-batches of
a client's own rows. A fifth of every client's rows is public: methods that learn from predictions of public rows get
these, unlabelled, and do not train on what they share (`fedh2l`, whose seed sets they are, with labels; `agg` trains on
everybody's rows). All others train on all of their rows. What a server trains, and what clients learn from public rows,
is added to that. `fml`, `fedkd` and `fedmrl` share a small common model. Where only some clients take part in a round,
there are more rounds, so that each client has as many updates; one setting has three times the rounds, to show what a
profile's length decides. `fedh2l` exchanges after as many single steps as others take in an update, and takes one step
more in all, since in its first round nobody has heard anything.

Hyperparameters are chosen on held-out rows of all clients, with one seed, after BUDGET runs of full length for every
method: four learning rates of Adam (RATES), or two of them (MIDDLE) with two values of one more
hyperparameter. The choice then runs with all seeds. Differences to `private` are paired over seeds, intervals 95 %
Student t. Own rows: the mean over clients of the accuracy on test rows that are distributed as their own rows.
Megabytes are those of all clients and rounds.
"""
RUN = """```bash
fedkd benchmark --suite=digits --profile=small   # after an interruption again: what is there is not run again
fedkd benchmark --report
```
"""
TIME = """The 26 methods of one setting of `digits` in `small` took 92 minutes on one core while the other was also
busy: at that rate the 158 rows of the seven settings with as many rounds take less than five hours on both, with two
processes side by side that have their own `--settings`. In a run of `private` with one seed, compiling takes almost
half of the time.
"""


def write(out, path) -> None:
  """Writes the page, and beside it a figure for every suite and profile that has results."""
  path = pathlib.Path(path)
  sections = []
  for suite in SUITES:
    for profile in PROFILES:
      if everything := cells.found(out, suite, profile):
        name = f'{path.stem}-{suite}-{profile}.png'
        figures.save(figure(suite, profile, everything), path.parent / name)
        sections += section(suite, profile, everything, name)
  sections = sections or ['## Results', '', 'None yet.', '']
  head = HEAD.replace('BUDGET', str(budget.BUDGET)).replace('RATES', _listed(budget.RATES))
  lines = [head.replace('MIDDLE', _listed(budget.RATES[1:3])), RUN, TIME, '', *_lengths(), *sections, *_absent()]
  path.write_text('\n'.join(lines).rstrip('\n') + '\n')


def _listed(values) -> str:
  return ', '.join(map(str, values))


def _lengths() -> list:
  """A table of the profiles."""
  columns = ('rounds', 'mini-batches of an update', 'examples of one', 'public rows of a round', 'passes over them')
  lines = [{'profile': name, **dict(zip(columns, SIZES[name], strict=False))} for name in PROFILES]
  return [analysis.markdown(pd.DataFrame(lines)), '']


def section(suite, profile, everything, picture) -> list:
  """The ranks, the figure and a table per setting of a suite in a profile."""
  known = settings(suite, profile)
  lines = [
    f'## {suite.capitalize()}, {profile}',
    '',
    *_ranked(everything),
    f'![Accuracy over megabytes]({picture})',
    '',
  ]
  for name, setting in known.items():
    if name in everything:
      lines += [f'### {suite.capitalize()}, {profile}: {setting.title}', '', _nets(setting), '']
      lines += [analysis.markdown(table(everything[name])), '']
      if missing := [method for method in applying(name) if method not in everything[name]]:
        lines += [f'Not run: {", ".join(missing)}.', '']
  minutes = sum(result['seconds'] + sum(t['seconds'] for t in result['tuning']) for s in everything.values()
                for result in s.values()) / 60  # fmt: skip
  return [*lines, f'All of these trained for {minutes:.0f} minutes, without compilation and evaluation.', '']


def _nets(setting) -> str:
  named = [' '.join(str(value) for value in entry.values()) for entry in setting.groups]
  return f'{setting.data["clients"]} clients; {" and ".join(named)}; {setting.data["name"]}.'


def _ranked(everything) -> list:
  """Average ranks over the settings that most methods have in common, and the critical difference."""
  accuracy = ranks.shared(everything, ALONE)
  count = len([name for name in everything if name not in ALONE])
  if len(accuracy) < 2 or count < 2:
    return []
  difference = ranks.critical_difference(len(accuracy), count)
  if difference >= len(accuracy) - 1:  # not even the first and the last
    return [f'{count} settings are too few for ranks of {len(accuracy)} methods to differ significantly.', '']
  average = ranks.average_ranks(accuracy)
  best = min(average.values())
  lines = [
    {
      'method': name,
      'average rank': f'{rank:.2f}',
      'not significantly worse than the best': 'yes' if rank - best < difference else 'no',
    }
    for name, rank in average.items()
  ]
  others = '` and `'.join(ALONE)
  said = (
    f'Average ranks by accuracy over {count} settings (all but `{others}`), of the {len(accuracy)} methods that '
    f"have a result in each. The critical difference of Nemenyi's test at 5 % is {difference:.2f}: average ranks that "
    'are less apart do not differ significantly.'
  )
  return [said, '', analysis.markdown(pd.DataFrame(lines)), '']


def table(found) -> pd.DataFrame:
  """A line per method, the most accurate first; `found` is {method: result} of a setting."""
  mean = lambda name: float(np.mean(found[name]['per_seed']['final']))
  ordered = sorted(found, key=mean, reverse=True)
  # Further predictions of a method are in its result; columns of them would be empty for all others.
  plain = lambda result: {k: v for k, v in result['per_seed'].items() if not k.startswith('worst_client_')}
  frame = compare.table({name: {**plain(found[name]), **found[name]} for name in ordered}, 'private')
  own = [found[name]['per_seed'].get('final_local') for name in ordered]
  frame.insert(3, 'own rows %', ['-' if v is None else analysis.spread(100 * np.array(v)) for v in own])
  frame['chosen'] = [_choice(found[name]['chosen']) for name in ordered]
  return frame.rename(columns={'run': 'method'}).drop(columns='seconds')


def _choice(chosen) -> str:
  return ', '.join(f'{field.replace("learning_rate", "rate")} {value}' for field, value in chosen.items())


def figure(suite, profile, everything):
  """Accuracy over megabytes, a panel per setting."""
  titles = {name: setting.title for name, setting in settings(suite, profile).items()}
  sent = lambda result: sum(results.sent(result, 'bytes').values()) / 1e6
  point = lambda result: (sent(result), 100 * np.array(result['per_seed']['final']))
  return figures.against_megabytes(
    {titles[name]: {method: point(result) for method, result in each.items()} for name, each in everything.items()}
  )


def _absent() -> list:
  """Which methods do not apply where, and why."""
  said = [f'* Everywhere: {why}: `{method}`.' for method, why in NEVER.items()]
  for name, setting in settings('digits', 'small').items():
    whys = {}
    for method in methods.__all__:
      if method not in NEVER and (why := reason(method, name)):
        whys.setdefault(why, []).append(f'`{method}`')
    said += [f'* {setting.title}: {why}: {", ".join(names)}.' for why, names in whys.items()]
  common = ', '.join(f'{net["model"]} for {suite}' for suite, net in COMMON.items())
  return ['## What does not apply, and why', '', *said, '', f'The small common model is {common}.', '']
