#!/usr/bin/env bash
# One run on several hosts that see the same files:
#   SLURM: srun --nodes=4 --ntasks-per-node=1 launch/cluster.sh --config=... --workdir=... --config.devices=N
#   ssh:   HOSTS="alpha beta" launch/cluster.sh --config=... --workdir=... --config.devices=N
# N counts the devices of all hosts. PORT (default 12321) must be free on the first host.
set -euo pipefail
cd "$(dirname "$0")/.."
port=${PORT:-12321}
refuse() { # SENTENCE
  echo "fedkd: $1" >&2
  exit 2
}
run() { # INDEX COUNT FIRST ARGUMENTS...
  local index=$1 count=$2 first=$3
  shift 3
  exec .venv/bin/python -m launch.main --hosts="$first:$port,$count,$index" "$@"
}
if [ -n "${FEDKD_HOST:-}" ]; then # started by the ssh branch below
  read -r index count first <<<"$FEDKD_HOST"
  run "$index" "$count" "$first" "$@"
elif [ -n "${SLURM_PROCID:-}" ]; then
  [ -n "${SLURM_NTASKS:-}" ] || refuse "SLURM_NTASKS is unset; start it by srun --ntasks-per-node=1 launch/cluster.sh"
  command -v scontrol >/dev/null || refuse "scontrol is not on the PATH; add the folder of SLURM's programs to it"
  nodes=${SLURM_STEP_NODELIST:-${SLURM_JOB_NODELIST:-}} # a step may be on some of the nodes of its job
  names=$(scontrol show hostnames "$nodes") || refuse "scontrol does not know the nodes '$nodes'; start it by srun"
  run "$SLURM_PROCID" "$SLURM_NTASKS" "${names%%$'\n'*}" "$@"
elif [ -n "${HOSTS:-}" ]; then
  read -r -a names <<<"$HOSTS"
  words=$(printf '%q ' "$@")
  source launch/jobs.sh
  jobs=()
  for i in "${!names[@]}"; do
    ${SSH:-ssh} "${names[i]}" "FEDKD_HOST='$i ${#names[@]} ${names[0]}' PORT=$port $(printf %q "$PWD")/launch/cluster.sh $words" &
    jobs+=($!)
  done
  # A signal here is one there: every host saves and stops.
  stop() { for name in "${names[@]}"; do ${SSH:-ssh} "$name" "pkill -TERM -f -- [-]-hosts=${names[0]}:$port," || true; done; }
  trap stop INT TERM
  wait_for "${jobs[@]}"
else
  refuse "neither SLURM nor HOSTS says where to run; set HOSTS=\"name name ...\""
fi
