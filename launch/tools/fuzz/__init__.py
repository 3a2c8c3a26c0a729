"""Random inputs for every reader of untrusted files and text: `python -m launch.fuzz`."""
