#!/usr/bin/env bash
# configure.sh FOLDER [CMAKE-ARGUMENTS] — makes a build folder once; a folder that exists keeps its settings.
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift
cache=$folder/CMakeCache.txt

if [ -f "$cache" ]; then
  # A compiler that is asked for and not taken would be a silent replacement.
  [ -n "${WEFT_CC:-}" ] || exit 0
  have=$(sed -n 's/^CMAKE_C_COMPILER:[^=]*=//p' "$cache")
  [ "$(basename "$have")" != "$(basename "$WEFT_CC")" ] || exit 0
  [ "$(readlink -f "$have")" != "$(readlink -f "$(command -v "$WEFT_CC")")" ] || exit 0
  echo "configure: $folder was made for $have, not $WEFT_CC:" \
    "add BUILD=build-$(basename "$WEFT_CC"), or make clean first" >&2
  exit 2
fi

generator="Unix Makefiles"
if command -v ninja >/dev/null; then generator=Ninja; fi
compiler=()
if [ -n "${WEFT_CC:-}" ]; then compiler=("-DCMAKE_C_COMPILER=$WEFT_CC"); fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake -S . -B "$folder" -G "$generator" "${compiler[@]}" "$@" >"$log" 2>&1; then
  cat "$log" >&2
  rm -f "$cache" # so that the next try starts anew
  exit 1
fi
