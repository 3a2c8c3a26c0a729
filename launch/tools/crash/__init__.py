"""The crash harness: `python -m launch.crash`."""
