#!/usr/bin/env bash
# The tests of models and of the entry points with the newest JAX and Flax, past the upper bounds of pyproject.toml, in
# an environment of their own: FOLDER, which is kept, or a temporary one. PYTHON: 3.12 or newer. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' || {
  echo "the newest JAX needs Python 3.12 or newer; set PYTHON to one" >&2; exit 2; }
if [ -z "${FOLDER:-}" ]; then
  FOLDER="$(mktemp -d)"
  trap 'rm -rf "$FOLDER"' EXIT
fi
"$python" -m venv "$FOLDER"
mapfile -t packages < <("$python" - <<'EOF'
import re
import tomllib

project = tomllib.load(open('pyproject.toml', 'rb'))['project']
extras = project['optional-dependencies']
for package in [*project['dependencies'], *extras['test'], *extras['report']]:
  if not package.startswith('fedkd['):  # itself, with an extra that is named here
    print(re.sub(r',<[\d.]+', '', package) if re.match('jax|flax', package) else package)
EOF
)
"$FOLDER/bin/pip" install --quiet --disable-pip-version-check --upgrade "${packages[@]}"
"$FOLDER/bin/pip" install --quiet --disable-pip-version-check --no-deps --editable .
"$FOLDER/bin/python" - <<'EOF'
import platform
from importlib.metadata import version

print(f'Python {platform.python_version()},', ', '.join(f'{name} {version(name)}' for name in ('jax', 'flax', 'optax')))
EOF
[ $# -gt 0 ] || set -- tests/models tests/test_simulation.py tests/experiment/test_nnx_models.py
"$FOLDER/bin/python" -m pytest "$@"
