"""What a sweep says of itself while it runs: a line for each run that ends."""

import time

SHOWN = 200  # characters of a reason


class Progress:
  """Lines on the terminal; `show`: whether there are any."""

  def __init__(self, show: bool):
    self.show, self.count, self.at, self.here, self.begun = show, 0, 0, 0, time.monotonic()

  def begin(self, count: int, waiting: int) -> None:
    """`waiting` runs of `count`, the others being finished."""
    self.count, self.at, self.here, self.begun = count, count - waiting, 0, time.monotonic()
    if self.at and waiting:
      self.say(f'{self.at} of {count} runs are finished')

  def done(self, run, said: dict, outcome: dict | None) -> None:
    """One more run has ended."""
    self.at, self.here = self.at + 1, self.here + 1
    left = (time.monotonic() - self.begun) / self.here * (self.count - self.at)
    if outcome:
      text = f'validation {100 * outcome["validation"]:.2f} %, test {100 * outcome["test"]:.2f} %'
    else:
      text = f'FAILED: {said.get("reason", "it left no result")[:SHOWN]}'
    warning = f' ({said["warning"]})' if 'warning' in said else ''
    time_left = f'; about {_duration(left)} left' if self.at < self.count else ''
    self.say(f'[{self.at}/{self.count}] {run.label}: {text}{warning}{time_left}')

  def say(self, text: str) -> None:
    """One line."""
    if self.show:
      print(text, flush=True)


def _duration(seconds) -> str:
  return f'{seconds:.0f} s' if seconds < 120 else f'{seconds / 60:.0f} min'
