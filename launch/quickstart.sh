#!/usr/bin/env bash
# FedHe beside Private and AGG: ten clients with five different CNNs, 5 000 real MNIST images, three seeds.
source "$(dirname "$0")/setup.sh"
runs="${1:-runs/quickstart}"
for method in private fedhe agg; do
  .venv/bin/python -m launch.main --config="configs/quickstart.py:method=$method" --workdir="$runs/$method"
done
echo
.venv/bin/python -m launch.compare "$runs/private" "$runs/fedhe" "$runs/agg" --out="$runs/comparison"
cat <<TEXT

figures: $runs/comparison/*.png and $runs/*/figures/*.png

try next:
  .venv/bin/python -m launch.main --config=configs/quickstart.py:method=fedhe --workdir=$runs/fedhe_alpha3 --config.method.alpha=3.0
  .venv/bin/python -m launch.main --config=configs/quickstart.py:method=fedhe --workdir=$runs/fedhe_skewed --config.data.partition=dirichlet
  .venv/bin/python -m launch.compare $runs/private $runs/fedhe $runs/fedhe_alpha3 --out=$runs/comparison
TEXT
