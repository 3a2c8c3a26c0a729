"""Results that a later change of their method has made stale: marked in the reports until they are run again."""

from typing import NamedTuple

from fedkd.analysis import results


class Change(NamedTuple):
  """What has changed in a method since some of its results were made.

  A result by the code of another commit, as one that is made from now on, is not stale.
  """

  method: str  # of the result's config
  what: str  # has changed, as the end of 'since then ...'
  commits: tuple  # by whose code the stale results were made
  settings: tuple = ()  # ((field, value), ...) of the method that the stale results have in common; () for all


CHANGES: tuple[Change, ...] = ()


def changes(result: dict) -> list:
  """What has changed since a result was made, a clause for each of `CHANGES` that concerns it."""
  own = result['config'].get('method', {})
  concerns = lambda change: (
    own.get('name') == change.method
    and not set(results.commits(result)).isdisjoint(change.commits)
    and all(field in own and own[field] == value for field, value in change.settings)
  )
  return [change.what for change in CHANGES if concerns(change)]


def marked(name: str, *results: dict) -> str:
  """A row's name as reports print it: with a mark where one of its results is stale."""
  return f'{name} (stale)' if any(map(changes, results)) else name


def note(done: dict) -> str:
  """Which of {row: result} are stale and why, in a sentence; '' where none is."""
  whys = {}
  for name, result in done.items():
    if found := changes(result):
      whys.setdefault('; '.join(found), []).append(name)
  told = '; '.join(f'{", ".join(names)}: since then {why}' for why, names in whys.items())
  return f'Stale, to be run again: {told}.' if told else ''
