"""From a config to the parts of a run: the only place that reads configs."""
