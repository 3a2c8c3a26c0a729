"""The state of a run in files, and back: checkpoints, client states on disk, warm starts, finished runs."""
