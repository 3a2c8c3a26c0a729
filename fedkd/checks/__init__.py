"""Checks before use: arguments of the public entry points, user-supplied functions, untrusted files."""
