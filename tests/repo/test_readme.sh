#!/usr/bin/env bash
# README.md and README.zh.md exist, name the same commands in the same order, and link to files that are there. That the
# commands do what they say is repo.commands.
# labels: small noasan
set -euo pipefail
cd "$WEFT_SRC"
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT

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
