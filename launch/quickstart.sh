#!/usr/bin/env bash
# FedHe beside Private and AGG: ten clients with five different CNNs, 5 000 real MNIST images, three seeds.
source "$(dirname "$0")/setup.sh" "" # no extras; else it would see our own arguments
runs="${1:-runs/quickstart}"
# At once, so that one compiles or evaluates while another trains; on a GPU, each takes the memory it needs.
export XLA_PYTHON_CLIENT_PREALLOCATE=false
printf '%s\n' private fedhe agg | xargs -P "$(nproc)" -I METHOD \
  .venv/bin/python -m launch.main --config=configs/quickstart.py:method=METHOD --workdir="$runs/METHOD" | cat
echo
.venv/bin/python -m launch.compare "$runs/private" "$runs/fedhe" "$runs/agg" --out="$runs/comparison"
cat <<TEXT

figures: $runs/comparison/*.png and $runs/*/figures/*.png

try next:
  .venv/bin/python -m launch.main --config=configs/quickstart.py:method=fedhe --workdir=$runs/fedhe_alpha3 --config.method.alpha=3.0
  .venv/bin/python -m launch.main --config=configs/quickstart.py:method=fedhe --workdir=$runs/fedhe_skewed --config.data.partition=dirichlet
  .venv/bin/python -m launch.compare $runs/private $runs/fedhe $runs/fedhe_alpha3 --out=$runs/comparison
TEXT
