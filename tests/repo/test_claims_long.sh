#!/usr/bin/env bash
# What docs/claims.md predicts is what its commands print.
# labels: long noasan
# timeout: 600
set -eu
exec python3 "$(dirname "$0")/claims.py" figures
