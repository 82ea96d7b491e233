#!/usr/bin/env bash
# labels: small
# stories260K is a real pretrained model; its greedy continuation of token 1 is in its case file.
. "$(dirname "$0")/lib.sh"
dir=$WEFT_GOLDEN/models/stories260K
want=$(python3 - "$dir/case.safetensors" <<'P'
import json, struct, sys
raw = open(sys.argv[1], 'rb').read()
n = struct.unpack('<Q', raw[:8])[0]
head = json.loads(raw[8:8 + n])
def ids(name):
    a, b = head[name]['data_offsets']
    return struct.unpack('<%dq' % ((b - a) // 8), raw[8 + n + a:8 + n + b])
print(*(list(ids('tokens'))[1:] + [ids('targets')[-1]]))
P
)
count=$(wc -w <<<"$want")
for how in "--isa ref" "--isa best" "--precision fp16"; do
  good generate "$dir" --prompt-ids 1 --max-new-tokens "$count" $how
  [ "$(cat "$tmp/stdout")" = "$want" ] || fail "greedy continuation differs with $how: $(cat "$tmp/stdout")"
done
# a prompt fed at once continues as one fed token by token
half=$((count / 2))
good generate "$dir" --prompt-ids "1 $(cut -d' ' -f1-$half <<<"$want")" --max-new-tokens $((count - half))
[ "$(cat "$tmp/stdout")" = "$(cut -d' ' -f$((half + 1))- <<<"$want")" ] || fail "a long prompt continues differently"
# sampling: the seed decides, and nothing else
good generate "$dir" --prompt-ids 1 --max-new-tokens 40 --temperature 1 --seed 3; a=$(cat "$tmp/stdout")
good generate "$dir" --prompt-ids 1 --max-new-tokens 40 --temperature 1 --seed 3; b=$(cat "$tmp/stdout")
good generate "$dir" --prompt-ids 1 --max-new-tokens 40 --temperature 1 --seed 4; c=$(cat "$tmp/stdout")
[ "$a" = "$b" ] || fail "the same seed gave another sample"
[ "$a" != "$c" ] || fail "another seed gave the same sample"
good generate "$dir" --prompt-ids 1 --max-new-tokens 40 --temperature 1 --top-p 0.000001
[ "$(cat "$tmp/stdout")" = "$(cut -d' ' -f1-40 <<<"$want")" ] || fail "top-p near 0 is not greedy"
good generate "$WEFT_GOLDEN/models/llama" --prompt "In the beginning" --max-new-tokens 8 --output ids
[ "$(wc -w <"$tmp/stdout")" -le 8 ] || fail "too many tokens"
# no token beyond the positions of the model (512), whichever way it got there; a long prompt can be watched
list() { seq -s ' ' 1 "$1"; }
good generate "$dir" --prompt-ids "$(list 500)" --max-new-tokens 12
positions='the model has 512 positions (max_position_embeddings or n_positions of its config.json)'
refused "a prompt of 500 tokens and 13 more; $positions: --max-new-tokens 12 fits" \
  generate "$dir" --prompt-ids "$(list 500)" --max-new-tokens 13
good generate "$dir" --prompt-ids "$(list 500)"
[ "$(wc -w <"$tmp/stdout")" -le 12 ] || fail "the default goes beyond the positions: $(wc -w <"$tmp/stdout")"
refused 'give at most 511' generate "$dir" --prompt-ids "$(yes 1 | head -n 20000 | tr '\n' ' ')"
cp -r "$dir" "$tmp/longer"
sed -i 's/"max_position_embeddings": 512/"max_position_embeddings": 4096/' "$tmp/longer/config.json"
python3 - "$WEFT" "$tmp/longer" <<'P' || fail "no progress of a long prompt on a terminal, or it is somewhere else"
import os, pty, subprocess, sys
command = [sys.argv[1], "generate", sys.argv[2], "--max-new-tokens", "3", "--prompt-ids", "1 " * 1500]
terminal, other_end = pty.openpty()
watched = subprocess.run(command, stdout=subprocess.PIPE, stderr=other_end, check=True).stdout
seen = os.read(terminal, 4096)
alone = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
sys.exit(not (b"512 of 1500 tokens" in seen and b"1024 of 1500" in seen and seen.endswith(b"\x1b[K") and
              watched == alone.stdout and not alone.stderr))
P
# control bytes of a model that knows nothing: a pipe gets them, a terminal does not
python3 - "$WEFT" "$WEFT_GOLDEN/models/llama" <<'P' || fail "control bytes: a terminal got some, or a pipe lost them"
import os, pty, subprocess, sys
command = [sys.argv[1], "generate", sys.argv[2], "--prompt", "In", "--max-new-tokens", "60", "--temperature", "2"]
control = set(range(32)) - set(b"\t\n\r") | {127}
piped = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
terminal, other_end = pty.openpty()
subprocess.run(command, stdout=other_end, check=True)
seen = os.read(terminal, 4096)
sys.exit(not (control & set(piped) and len(seen) >= 30 and not control & set(seen)))
P
finish
