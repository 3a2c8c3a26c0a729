#!/usr/bin/env bash
# The tests. Arguments go to pytest: `-m slow` runs the longer ones.
source "$(dirname "$0")/setup.sh" "[test]"
if [ $# -gt 0 ]; then
  exec .venv/bin/python -m pytest "$@"
fi
.venv/bin/python -m pytest -n "$(nproc)" --dist=worksteal
