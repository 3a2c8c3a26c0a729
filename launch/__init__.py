"""Commands: `python -m launch.NAME`."""
