"""Runs while they train, seen from outside: what their files say, and a view of it."""
