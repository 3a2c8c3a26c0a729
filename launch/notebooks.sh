#!/usr/bin/env bash
# Runs the notebooks, and stores their outputs and figures in them; without progress bars, which would be stored too.
source "$(dirname "$0")/setup.sh" "[docs]"
TQDM_DISABLE=1 .venv/bin/python -m pytest -n "$(nproc)" --nbmake --overwrite -m documentation notebooks "$@"
