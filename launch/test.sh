#!/usr/bin/env bash
# The tests. Arguments go to pytest: `-m documentation` runs the code that the pages and the first notebook show, `-m slow`
# the longer tests and notebooks.
source "$(dirname "$0")/setup.sh" "[test]"
if [ $# -gt 0 ]; then
  exec .venv/bin/python -m pytest "$@"
fi
.venv/bin/python -m pytest -n "$(nproc)" --dist=worksteal
