#!/usr/bin/env bash
# The documentation: runs the code of its pages and of the notebooks, builds it in docs/_build, and checks its links.
# With arguments, pytest runs the notebooks instead: `-k 03` one of them.
source "$(dirname "$0")/setup.sh" "[docs]"
if [ $# -gt 0 ]; then
  exec .venv/bin/python -m pytest --nbmake -m documentation notebooks "$@"
fi
.venv/bin/sphinx-build -q -W -b html docs docs/_build & # on one core, beside the first notebooks
site=$!
.venv/bin/python -m pytest -n "$(nproc)" --nbmake -m documentation notebooks tests/test_docs.py # the longest first
wait "$site"
.venv/bin/python docs/links.py
