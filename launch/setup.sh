# Sourced by the other scripts: makes .venv with fedkd and the extras in $1, once for each state of pyproject.toml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
extras="${1:-}"
state="$(sha256sum pyproject.toml | cut -c1-16)"
stamps=()
for part in fedkd ${extras//[\[\],]/ }; do
  stamps+=(".venv/fedkd-$state-$part")
done
if ! ls "${stamps[@]}" > /dev/null 2>&1; then
  python="${PYTHON:-python3}"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "fedkd needs Python 3.11 or newer; set PYTHON to one" >&2; exit 2; }
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  echo "installing into .venv (once) ..."
  .venv/bin/pip install --quiet --disable-pip-version-check --no-compile --editable ".${extras}"
  # On all cores, where pip compiles on one; like pip, past files that this Python cannot compile.
  .venv/bin/python -m compileall -qq -j 0 .venv/lib || true
  touch "${stamps[@]}"
fi
