#!/usr/bin/env bash
# The order of the rooms (src/LAYERS): a file includes its own room, the doors <room>/<room>.h of rooms above it, public
# headers and system headers, and nothing else. Each kind of violation is planted in a copy first and must be found.
# labels: small noasan
set -u
root=${WEFT_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}

# check TREE: prints one line per violation.
check() {
  (cd "$1" && find src -name '*.[ch]' -o -name '*.inl' -o -name '*.inc' | sort | xargs -r awk '
    BEGIN {
      while ((getline line < "src/LAYERS") > 0)
        if (line !~ /^#/ && line ~ /[^ \t]/) { gsub(/[ \t]/, "", line); order[line] = ++rooms }
      if (!rooms) print "src/LAYERS names no room"
    }
    FNR == 1 {
      split(FILENAME, part, "/"); mine = part[2]
      if (!(mine in order)) print FILENAME ": room " mine " is not in src/LAYERS"
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
      name = $0; sub(/^[^"]*"/, "", name); sub(/".*/, "", name)
      n = split(name, p, "/"); room = p[1]
      where = FILENAME ":" FNR ": includes \"" name "\""
      if (name ~ /\.\./) print where ", a path with .."
      else if (n < 2) print where ", not a path from src or include"
      else if (room == "weft" || room == mine) next
      else if (!(room in order)) print where ", which is in no room"
      else if (order[room] > order[mine]) print where ", a room below " mine
      else if (name != room "/" room ".h") print where ", which is not the door " room "/" room ".h"
    }')
}

plant() { # plant FILE LINE EXPECTED
  local copy found
  copy=$(mktemp -d) || exit 1
  mkdir -p "$copy/src/base" "$copy/src/comm" "$copy/src/train"
  cp "$root/src/LAYERS" "$copy/src/"
  mkdir -p "$copy/$(dirname "$1")"
  printf '#include <stdio.h>\n#include "weft/weft.h"\n%s\n' "$2" >"$copy/$1"
  found=$(check "$copy")
  rm -rf "$copy"
  case "$found" in
  *"$3"*) ;;
  *) echo "self-check: $1 with '$2': expected '$3', got '$found'"; bad=1 ;;
  esac
}

bad=0
plant src/base/x.c '#include "comm/comm.h"' 'src/base/x.c:3: includes "comm/comm.h", a room below base'
plant src/comm/x.h '  #  include "base/mem.h"' 'which is not the door base/base.h'
plant src/comm/sub/x.c '#include "train/train.h"' 'a room below comm'
plant src/train/x.inl '#include "nowhere/nowhere.h"' 'which is in no room'
plant src/train/x.c '#include "../base/base.h"' 'a path with ..'
plant src/train/x.c '#include "x.h"' 'not a path from src or include'
plant src/attic/x.c '#include "base/base.h"' 'room attic is not in src/LAYERS'
clean=$(copy=$(mktemp -d) && mkdir -p "$copy/src/train" && cp "$root/src/LAYERS" "$copy/src/" &&
  printf '#include "base/base.h"\n#include "train/own.h"\n#include "weft/weft.h"\n' >"$copy/src/train/x.c" &&
    check "$copy"; rm -rf "$copy")
[ -z "$clean" ] || { echo "self-check: a clean file is refused: $clean"; bad=1; }

violations=$(check "$root")
[ -z "$violations" ] || { echo "$violations"; bad=1; }
exit $bad
