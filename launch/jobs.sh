# Sourced: waits for the background jobs with these numbers until each is gone, also where a signal cuts a wait short.
wait_for() { # PID...
  local status=0 job
  for job in "$@"; do
    wait "$job" || status=$?
    while kill -0 "$job" 2>/dev/null; do wait "$job" || status=$?; done
  done
  return "$status"
}
