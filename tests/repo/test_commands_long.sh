#!/usr/bin/env bash
# Every command that README and docs show ends as the pages say.
# labels: long
# timeout: 1800
set -eu
exec python3 "$(dirname "$0")/doc_commands.py" all
