#!/usr/bin/env bash
# README.md and README.zh.md exist, name the same commands in the same order, link to files that are there, and every
# command of README.md's code blocks does what it says: exit 0, or the code N of a remark "# exit N".
# labels: small noasan
set -euo pipefail
cd "$WEFT_SRC"
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
bad=0

# The command lines of a file: in code blocks, without prompt and remark.
commands() { awk '/^```/ { inside = !inside; next } inside' "$1" | sed 's/^\$ //' | grep -E '^(make|build/weft)( |$)'; }

for file in README.md README.zh.md; do
  [ -s "$file" ] || { echo "$file is missing"; exit 1; }
  commands "$file" | sed 's/ *#.*//' >"$tmp/$file.list"
  grep -oE '\]\([^)#: ]+' "$file" | cut -c3- | sort -u | while read -r link; do
    [ -e "$link" ] || { echo "$file links to $link, which is not there"; exit 1; }
  done
done
[ "$(wc -l <"$tmp/README.md.list")" -ge 5 ] || { echo "README.md shows fewer than 5 commands"; exit 1; }
diff "$tmp/README.md.list" "$tmp/README.zh.md.list" ||
  { echo "README.md (<) and README.zh.md (>) show different commands"; exit 1; }

# A copy of the tree by links, so that run folders do not land in the repository.
for entry in *; do [ "$entry" = build ] || [ "$entry" = runs ] || ln -s "$WEFT_SRC/$entry" "$tmp/"; done
mkdir "$tmp/build"; ln -s "$WEFT" "$tmp/build/weft"
commands README.md >"$tmp/all.list"
cd "$tmp"
while read -r line; do
  case "$line" in make*) continue ;; esac # they build the tree that this test is part of
  want=$(sed -n 's/.*# exit \([0-9]*\).*/\1/p' <<<"$line")
  got=0; bash -c "${line%%#*}" >out 2>&1 </dev/null || got=$?
  if [ "$got" -ne "${want:-0}" ]; then echo "exit $got, not ${want:-0}: $line"; tail -n 5 out; bad=1; fi
done <all.list
exit $bad
