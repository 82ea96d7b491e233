# train_lib.sh — a text, a small model and its losses, for the tests of `weft train`; sourced.
. "$(dirname "$0")/lib.sh"
for i in $(seq 1 3000); do echo "line $i of a text that a small model can learn: $((i * i % 97))"; done >"$tmp/data.txt"
model="--hidden-size 32 --num-layers 2 --num-attention-heads 4 --num-query-groups 2"
common="$model --data data.txt --seq-length 257 --steps 6 --lr 3e-3 --warmup-steps 2 --global-batch-size 4 --threads 1"
# Without an interpreter where a stream editor will do: to start one takes as long as the run that it looks at.
# values KEY FILE: of a key of every line of JSON as Weft writes it
values() { sed -n 's/.*"'"$1"'": *\([^,}]*\).*/\1/p' "$2"; }
losses() { values loss "$tmp/runs/$1/metrics.jsonl"; }
# within A B LIMIT: three numbers
within() {
  local number='^[-+0-9.eE]+$'
  [[ $1 =~ $number && $2 =~ $number ]] &&
    awk -v a="$1" -v b="$2" -v l="$3" 'BEGIN { d = a - b; exit !(d <= l && -d <= l) }'
}
# close A B LIMIT WHAT: the losses of six steps
close() {
  local a=($1) b=($2) i
  [ ${#a[@]} = 6 ] && [ ${#b[@]} = 6 ] || fail "losses of $4: not six of both"
  for i in "${!a[@]}"; do within "${a[i]}" "${b[i]}" "$3" || fail "losses of $4 differ: ${a[i]}, ${b[i]}"; done
}
