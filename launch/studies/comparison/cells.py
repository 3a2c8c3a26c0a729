"""A method in a setting of a tier: its file, which grows by one run after the other and loses none."""

import json
import pathlib
from typing import NamedTuple

from fedkd import config as base
from fedkd import files, methods
from fedkd.errors import ConfigError, check_known, is_it
from launch.studies.comparison import budget, theirs
from launch.studies.comparison.runs import Place
from launch.studies.comparison.settings import SIZES, TIERS, TUNED_ON, applying, config_of, reason, settings

# Of the runs of a cell: those that choose its hyperparameters, those of the tests, and those of the tests with so many
# fewer rounds that the method has as many examples as Private.
KINDS = ('tuning', 'runs', 'equal')


class Cell(NamedTuple):
  """A method where it meets the others."""

  place: Place
  method: str

  def __str__(self):
    return f'{self.place.suite} {self.place.tier} {self.place.setting} {self.method}'


def cells(suite: str, profile: str, tiers=None, names=None, only=None) -> list:
  """The cells that apply, tier by tier, in these method by method, so that settings share programs.

  Args:
    tiers, names, only: these tiers, settings and methods; None for all. A method may be module:function.

  Raises:
    ConfigError: for an unknown tier, setting or method, or a method that applies nowhere among them.
  """
  places, found = _places(suite, profile, tiers, names), []
  for tier in dict.fromkeys(t for t, _ in places):
    of_tier = [s for t, s in places if t == tier]
    order = dict.fromkeys(m for s in of_tier for m in applying(suite, tier, s))
    for method in only or order:
      own = theirs.is_added(method)  # somebody else's, which applies everywhere
      where = [s for s in of_tier if own or method in applying(suite, tier, s)]
      found += [Cell(Place(suite, profile, tier, s), method) for s in where]
  for method in only or ():
    if not any(cell.method == method for cell in found):
      tier, name = places[0]
      check_known([method], methods.__all__, 'the benchmark', 'method')
      raise ConfigError(f'methods={method!r} has no place in {tier}, {name} ({reason(method, tier, name, suite)})')
  return found


def _places(suite, profile, tiers, names) -> list:
  """[(tier, setting)]; whatever is named has a part in them."""
  known = settings(suite, profile)
  every = [(t, s) for t in TIERS for s in known if t in known[s].tiers]
  tiers_known = list(dict.fromkeys(t for t, _ in every))
  for field, given, there in (('tiers', tiers, tiers_known), ('settings', names, known)):
    if unknown := next((one for one in given or () if one not in there), None):
      known, near = ', '.join(there), is_it(unknown, there)
      raise ConfigError(f'{field}={unknown!r} is unknown; the suite {suite} has {known}{near}')
  found = [(t, s) for t in tiers or tiers_known for s in names or known if (t, s) in every]
  if idle := next((t for t in tiers or () if t not in {t for t, _ in found}), None):
    raise ConfigError(f'tiers={idle!r} has none of the settings {", ".join(names)}; leave one or the other out')
  if idle := next((s for s in names or () if s not in {s for _, s in found}), None):
    raise ConfigError(f'settings={idle!r} is in none of the tiers {", ".join(tiers)}; it is in {known[idle].tiers[0]}')
  return found


def path_of(cell: Cell, out) -> pathlib.Path:
  """The file of a cell's results."""
  suite, profile, tier, setting = cell.place.astuple()
  folder = suite if profile == 'whole' else f'{suite}-{profile}'
  return pathlib.Path(out) / folder / tier / setting / f'{cell.method.replace(":", ".")}.json'


def described(cell: Cell) -> dict:
  """What all runs of a cell have in common, as JSON: what may not change while the file grows."""
  suite, profile, tier, setting = cell.place.astuple()
  config = base.to_json(config_of(suite, profile, tier, setting))
  kept = {name: config[name] for name in ('data', 'groups', 'plan', 'rounds')}
  fields = budget.fields(suite, profile, tier, setting, cell.method)
  plain = {
    'suite': suite,
    'profile': profile,
    'tier': tier,
    'setting': setting,
    'method': cell.method,
    'config': {**kept, 'data': {**kept['data'], 'dir': ''}},
    'fields': base.to_json(fields),
    'rounds': list(budget.lengths(suite, profile, setting, cell.method)),
    'grid': budget.grid(cell.method),
    **({'alone': budget.ALONE} if cell.method in budget.BEFORE else {}),
    'size': {**SIZES[profile]._asdict(), 'seeds': None},  # more of them may follow
  }
  code = theirs.checksum(theirs.factory_of(cell.method)) if theirs.is_added(cell.method) else ''
  return json.loads(json.dumps({**plain, **({'code': code} if code else {})}))


def read(cell: Cell, out) -> dict:
  """What is there of a cell: {..., 'tuning': [...], 'runs': [...], 'equal': [...]}, runs by `KINDS`.

  Raises:
    ConfigError: for a file that was made with other settings.
  """
  path = path_of(cell, out)
  if not path.exists():
    return {'grid': budget.grid(cell.method), **{kind: [] for kind in KINDS}}
  wanted, usual = described(cell), base.to_json(base.default())
  try:
    found = json.loads(path.read_text(), parse_constant=_refused)
    changed = [field for field, value in wanted.items() if field != 'config' and found.get(field) != value]
    changed += base.differences({**usual, **found['config']}, {**usual, **wanted['config']})
  except (ValueError, AttributeError, KeyError, TypeError) as error:
    raise ConfigError(f'{path} is not a result of this program ({error}); move it away') from error
  if changed == ['code']:
    raise ConfigError(
      f'{path} was made with other code of {theirs.factory_of(cell.method)}, whose file has changed since; move it '
      'away to run it again, or give the new factory another name'
    )
  if changed:
    raise ConfigError(f'{path} was made with another {changed[0]}; move it away to run it again')
  return {**found, 'equal': found.get('equal', [])}


def _refused(constant):
  raise ValueError(f'{constant} is no accuracy')


def chosen(found: dict) -> dict | None:
  """The choice with the best validation accuracy, the first of equals; None where all diverged or some are missing."""
  if len(found['tuning']) < len(found['grid']):
    return None
  finite = [one for one in found['tuning'] if one['validation'] is not None]
  return max(finite, key=lambda one: one['validation'])['choice'] if finite else None


def left(found: dict, private: dict, seeds) -> list:
  """The next runs of a cell: (kind, choice, seed, share of the rounds); those of `seeds` once the choice is known.

  Args:
    found: what is there of the cell.
    private: what is there of Private in the same place, which says how many examples are equal.
    seeds: of the tests.
  """
  done = len(found['tuning'])
  if done < len(found['grid']):
    return [('tuning', choice, TUNED_ON, 1.0) for choice in found['grid'][done:]]
  best = chosen(found)
  if not best:
    return []
  there = {kind: {one['seed'] for one in found[kind]} for kind in KINDS}
  if missing := [seed for seed in seeds if seed not in there['runs']]:
    return [('runs', best, seed, 1.0) for seed in missing]
  shares = {seed: share for seed, share in equal_shares(found, private).items() if _has_rounds(found, share)}
  return [('equal', best, seed, shares[seed]) for seed in seeds if seed in shares and seed not in there['equal']]


def _has_rounds(found, share) -> bool:
  """Whether a share of a cell's rounds is at least one of the method's own."""
  suite, profile, setting, method = (found[field] for field in ('suite', 'profile', 'setting', 'method'))
  return budget.lengths(suite, profile, setting, method, share)[1] > 0


def equal_shares(found: dict, private: dict) -> dict:
  """{seed: of a cell's rounds, how many have as many examples as Private in all of its own}, where it has fewer; public
  examples count."""
  most = {one['seed']: one['examples'] for one in private['runs']}
  shares = {one['seed']: most[one['seed']] / one['examples'] for one in found['runs'] if one['seed'] in most}
  return {seed: share for seed, share in shares.items() if share < 0.99}


def add(cell: Cell, out, kind: str, one: dict) -> None:
  """Appends a run to those of its kind in a cell's file, unless another process has done so meanwhile."""
  found = {**described(cell), **read(cell, out)}
  runs = found[kind]
  same = lambda other: (other['choice'], other['seed']) == (one['choice'], one['seed'])
  if not any(map(same, runs)):
    runs.append(one)
    path = path_of(cell, out)
    files.make(path.parent)
    files.write(path, text(found).encode())


def text(found: dict) -> str:
  """A cell as JSON, a run on each line."""
  line = lambda key, value: f'{json.dumps(key)}: {json.dumps(value)}'
  listed = lambda runs: '[' + ','.join(f'\n  {json.dumps(one)}' for one in runs) + '\n ]'
  plain = [line(key, value) for key, value in found.items() if key not in KINDS]
  kinds = [kind for kind in KINDS if found[kind] or kind != 'equal']
  return '{\n ' + ',\n '.join([*plain, *(f'"{key}": {listed(found[key])}' for key in kinds)]) + '\n}\n'
