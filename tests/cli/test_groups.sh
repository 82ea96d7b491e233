#!/usr/bin/env bash
# labels: small
# `weft info --groups` prints the tables that docs/user/groups.md works out from the definitions; options of the mesh.
. "$(dirname "$0")/lib.sh"
page=$WEFT_SRC/docs/user/groups.md

# The groups of all kinds that have more than one rank: "kind [0,1] [2,3]", a line each.
tables() {
  awk '/^ *weft /        { next }
       /^ *[a-z_]+ +(\[|[0-9]+ groups? of)/ { if (line) print line; line = $1 }
       /\[[0-9]/         { for (i = 1; i <= NF; i++) if ($i ~ /^\[/) line = line " " $i }
       END               { if (line) print line }' "$@" | grep ' '
}

n=0
while read -r first; do
  n=$((n + 1))
  awk -v at="$first" 'NR > at && !/^    /{ exit } NR > at' "$page" >"$tmp/block"
  words=$(sed -n "${first}s/^ *weft //p" "$page")
  good $words
  tables "$tmp/block" >"$tmp/want"
  tables "$tmp/stdout" >"$tmp/got"
  [ "$(wc -l <"$tmp/want")" -ge 4 ] || fail "groups.md, line $first: only $(wc -l <"$tmp/want") kinds of groups"
  diff "$tmp/want" "$tmp/got" >"$tmp/diff" || fail "groups.md, line $first (<) and weft $words (>): $(cat "$tmp/diff")"
done < <(grep -nE '^    weft info --groups' "$page" | cut -d: -f1)
[ $n -ge 8 ] || fail "groups.md has only $n tables"

# fits into a terminal of 80 columns
good info --groups --tp 8 --cp 2 --pp 4
awk 'length > 80' "$tmp/stdout" | grep -q . && fail 'info --groups prints lines above 80 columns'

# parts of tp have heads of their own: 3 heads on 2 parts have head groups of 1 and 2
good info --groups --tp 2 --dcp-size 2 --num-attention-heads 3 --hidden-size 48
tables "$tmp/stdout" | grep -qx 'heads \[0\] \[1,3\] \[2\]' || fail "head groups of uneven parts: $(cat "$tmp/stdout")"
refused 'as many query heads, there are 1 (heads 0 to 0' \
  info --groups --tp 2 --cp 2 --cp-strategy ulysses --num-attention-heads 3 --hidden-size 48
refused 'give one of them' info --groups --plan

# for programs
good info --groups --cp 2 --tp 2 --format jsonl
grep -qxF '{"kind":"cp","group":1,"ranks":[1,3]}' "$tmp/stdout" || fail "no line per group: $(head -3 "$tmp/stdout")"
[ "$(grep -c '^{"kind":"dp","group":[0-3],"ranks":\[[0-3]\]}$' "$tmp/stdout")" = 4 ] || fail 'jsonl leaves out groups'
grep -qv '^{.*}$' "$tmp/stdout" && fail "jsonl with other lines: $(grep -v '^{' "$tmp/stdout")"
refused 'text, or jsonl' info --groups --format md
refused 'is for weft info --groups and --memory' info --format jsonl

# options of the mesh
refused 'did you mean "cp-tp-dp-pp"?' info --groups --rank-order cp-tp-pd-pp
refused 'once each' info --groups --rank-order tp
refused 'at most 65536' info --groups --tp 4096 --cp 4096 --dp 4096 --pp 4096
refused 'give --tp 2 or more' info --groups --sequence-parallel
refused 'of all heads' sim --tp 2 --cp 2
good info --plan --tp 3 --cp 2 --num-attention-heads 8 --num-query-groups 2 --hidden-size 64
grep -q 'H 3/1' "$tmp/stdout" || fail "info --plan --tp: not the heads of the largest part: $(cat "$tmp/stdout")"
finish
