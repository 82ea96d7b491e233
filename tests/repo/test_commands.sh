#!/usr/bin/env bash
# The commands of README.md, and those of the docs that only print, end as the pages say; every other one stands in a
# table or is left to repo.commands_long.
# labels: small noasan
set -eu
exec python3 "$(dirname "$0")/doc_commands.py" quick
