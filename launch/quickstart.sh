#!/usr/bin/env bash
# FedHe beside Private and AGG: ten clients with five different CNNs, 5 000 real MNIST images, three seeds.
source "$(dirname "$0")/setup.sh" "" # no extras; else it would see our own arguments
runs="${1:-runs/quickstart}"
# Side by side, so that one compiles while another trains: on the CPU, and with plain lines instead of progress bars.
export JAX_PLATFORMS=cpu TTY_COMPATIBLE=0
source launch/jobs.sh
jobs=()
trap 'kill -TERM "${jobs[@]}" 2>/dev/null || true' INT TERM # each saves and stops
for method in private fedhe agg; do
  .venv/bin/python -m launch.main --config="configs/quickstart.py:method=$method" --workdir="$runs/$method" &
  jobs+=($!)
done
wait_for "${jobs[@]}"
echo
.venv/bin/python -m launch.compare "$runs/private" "$runs/fedhe" "$runs/agg" --out="$runs/comparison"
cat <<TEXT

figures: $runs/comparison/*.png and $runs/*/figures/*.png

try next:
  .venv/bin/python -m launch.main --config=configs/quickstart.py:method=fedhe --workdir=$runs/fedhe_alpha3 --config.method.alpha=3.0
  .venv/bin/python -m launch.main --config=configs/quickstart.py:method=fedhe --workdir=$runs/fedhe_skewed --config.data.partition=dirichlet
  .venv/bin/python -m launch.compare $runs/private $runs/fedhe $runs/fedhe_alpha3 --out=$runs/comparison
TEXT
