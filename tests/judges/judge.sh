#!/usr/bin/env bash
# judge.sh SCRIPT.py MODULE... — runs a judge with the Python that has its modules: WEFT_PEER_PYTHON, or python3. Where
# they are missing it says so and exits with 77, which ctest shows as skipped.
set -u
script=$1 python=${WEFT_PEER_PYTHON:-python3}
shift
for module in "$@"; do
  why=$("$python" -c "import $module" 2>&1 >/dev/null) && continue
  echo "SKIPPED: nothing was judged: $python cannot import $module (${why##*$'\n'})"
  echo "Give a Python that has $*: WEFT_PEER_PYTHON=/path/to/venv/bin/python ctest -L judges"
  exit 77
done
exec "$python" "$script"
