"""Mutants that no test can notice, and why."""

EQUIVALENT: dict[str, str] = {}
