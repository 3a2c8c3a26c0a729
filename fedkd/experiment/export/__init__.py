"""A client's model as files that others can use: without the run, without its data, or without fedkd."""
