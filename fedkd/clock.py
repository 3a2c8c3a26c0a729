"""How long work takes besides what JAX needs to trace, lower and compile its programs."""

import time
from collections.abc import Callable
from typing import Any

from jax import monitoring

COMPILING = '/jax/core/compile/'  # how the names of JAX's events for the three begin


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
  """(what `work` returns, the seconds that it took without compilation)."""
  spans: list[tuple[float, float]] = []

  def note(event: str, start_time: float, end_time: float, **about: str | int) -> None:
    if event.startswith(COMPILING):
      spans.append((start_time, end_time))

  monitoring.register_event_time_span_listener(note)
  begun = time.monotonic()
  try:
    out = work()
  finally:
    seconds = time.monotonic() - begun
    monitoring.unregister_event_time_span_listener(note)
  return out, max(0.0, seconds - covered(spans))


def covered(spans: list[tuple[float, float]]) -> float:
  """The length of the union of spans (begin, end): a program that is traced inside another counts once."""
  total, last = 0.0, float('-inf')
  for begin, end in sorted(spans):
    total, last = total + max(0.0, end - max(begin, last)), max(last, end)
  return total
