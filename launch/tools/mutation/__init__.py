"""Small changes of the library that no test notices: `python -m launch.mutate`."""
