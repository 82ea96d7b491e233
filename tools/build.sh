#!/usr/bin/env bash
# build.sh FOLDER CMAKE-ARGUMENTS — cmake --build without its noise: progress while something is built (on a terminal
# one line that is written over), every word of compilers, nothing when there is nothing to do.
set -o pipefail
folder=$1
shift
columns=0 shown=
if [ -t 1 ]; then
  exec 3>&1 # the terminal, for stty: its own output is read here
  columns=$(stty size <&3 2>/dev/null | cut -d' ' -f2)
  exec 3>&-
fi
columns=${columns:-0}

clear_line() { if [ -n "$shown" ]; then printf '\r\033[K'; fi; shown=; }

step='^\[ *[0-9]+(%|/[0-9]+)\] '
noise='^ninja: (no work to do|Entering directory)|^g?make(\[[0-9]+\])?: [^*]*$'
noise+='|Re-checking globbed directories|Re-running CMake|^-- '
noise+='|\] Built target |^Consolidate compiler|^Scanning dependencies'
cmake --build "$folder" "$@" 2>&1 | {
  while IFS= read -r line; do
    if [[ $line =~ $noise ]]; then continue; fi
    if [ "$columns" -gt 1 ] && [[ $line =~ $step ]]; then
      printf '\r%s\033[K' "${line:0:columns-1}"
      shown=1
    else
      clear_line
      printf '%s\n' "$line"
    fi
  done
  clear_line
}
