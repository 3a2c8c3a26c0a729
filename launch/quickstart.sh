#!/usr/bin/env bash
# FedH2L beside Private and AGG: four clients with four networks, real MNIST digits at four angles, three seeds.
source "$(dirname "$0")/setup.sh" "" # no extras; else it would see our own arguments
runs="${1:-runs/quickstart}"
# On the CPU, and with plain lines instead of progress bars. Private and AGG share small programs too, if they are kept.
export JAX_PLATFORMS=cpu TTY_COMPATIBLE=0 JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
source launch/jobs.sh
run() {
  local summary="$runs/$1/summary.json"
  # What is finished is not even started: this alone takes seconds.
  [ "$summary" -nt configs/quickstart.py ] && [ "$summary" -nt configs/fedh2l.py ] && exit
  exec .venv/bin/python -m launch.main --config="configs/quickstart.py:method=$1" --workdir="$runs/$1"
}
jobs=() status=0
trap 'kill -TERM "${jobs[@]}" 2>/dev/null || true' INT TERM # each saves and stops
# FedH2L takes as long as the other two together.
run fedh2l &
jobs=($!)
for method in private agg; do
  run "$method" &
  jobs[1]=$!
  wait_for "${jobs[1]}" || { status=$?; break; }
done
wait_for "${jobs[0]}" || status=$?
[ "$status" = 0 ] || exit "$status"
echo
.venv/bin/python -m launch.compare "$runs/private" "$runs/agg" "$runs/fedh2l" --out="$runs/comparison"
cat <<TEXT

figures: $runs/comparison/*.png and $runs/*/figures/*.png

try next:
  .venv/bin/python -m launch.main --config=configs/quickstart.py:method=agg --workdir=$runs/agg_4_batches --config.method.steps=4
  .venv/bin/python -m launch.main --config=configs/quickstart.py:method=fedh2l --workdir=$runs/fedh2l_no_soft_labels --config.method.kl=False
  .venv/bin/python -m launch.compare $runs/private $runs/agg $runs/fedh2l $runs/agg_4_batches $runs/fedh2l_no_soft_labels --out=$runs/comparison
TEXT
