#!/usr/bin/env bash
# A room includes only rooms above it in src/LAYERS, and only through their doors (src/<room>/<room>.h); nothing but
# cli prints, exits or aborts.
set -eu
cd "$WEFT_SRC/src"
mapfile -t rooms < <(grep -v '^#' LAYERS)
bad=0

place() { for i in "${!rooms[@]}"; do [ "${rooms[$i]}" = "$1" ] && { echo "$i"; return; }; done; echo -1; }

check_include() { # file, included path
  local room=${1%%/*} other=${2%%/*}
  [ "$other" = weft ] || [ "$room" = "$other" ] && return 0
  if [ "$(place "$other")" -lt 0 ]; then echo "src/$1: \"$2\" is in no room of LAYERS"; bad=1
  elif [ "$(place "$other")" -gt "$(place "$room")" ]; then echo "src/$1: $room includes $2, a room below it"; bad=1
  elif [ "$2" != "$other/$other.h" ]; then echo "src/$1: includes $2, which is not the door of $other"; bad=1
  fi
}

[ "${#rooms[@]}" -ge 10 ] || { echo "src/LAYERS lists ${#rooms[@]} rooms"; exit 1; }
for dir in */; do
  [ "$(place "${dir%/}")" -ge 0 ] || { echo "src/$dir is not in LAYERS"; bad=1; }
done
while IFS=: read -r file line; do
  path=${line#*\"}
  check_include "$file" "${path%%\"*}"
done < <(grep -rEo --include='*.[ch]' --include='*.inl' '^ *# *include *"[^"]+"' -- */ | grep -v '^cli/')

# _exit is another matter: fault injection, and a child that could not become the program.
if grep -rnE --include='*.[ch]' --include='*.inl' '(^|[^>._[:alnum:]])(printf|puts|putchar|abort|exit)\(' -- */ | grep -v '^cli/'; then
  echo "only cli may print, exit or abort"; bad=1
fi
exit $bad
