#!/usr/bin/env bash
# labels: small
# timeout: 200
# Bad input: one clear line (what, where, what would work), exit 2, before anything is written.
. "$(dirname "$0")/lib.sh"
case=$WEFT_GOLDEN/attention/causal_s128.safetensors
llama=$WEFT_GOLDEN/models/llama

# words, flags, keys, values
refused "did you mean 'train'" tarin
refused 'usage' attention
refused 'too many' attention "$case" "$case"
refused 'cp-strategy' attention "$case" --cp-stratgy ring
refused 'ring' attention "$case" --cp 2 --cp-strategy rign
refused '--cp' attention "$case" --cp 0
refused 'whole number' attention "$case" --cp two
refused 'could not act' attention "$case" --cp 2 --cp-strategy none
refused 'disagree' attention "$case" --cp 2 --pcp-size 4
refused 'give one of them' attention "$case" --cp-comm-type p2p --cp-strategy pcp
refused 'give one of them' attention "$case" --pcp-size 2 --cp-strategy ring
refused 'a key/value head for each query head, 8, not 4' info --memory --family gpt2 --num-attention-heads 8 \
  --num-query-groups 4
refused 'give --tp 2 or more' train --data "$case" --sequence-parallel
refused 'parallel.cp' train --data "$case" --set parallel.cpp=2
printf 'parallel:\n  cp_stratgy: ring\n' >"$tmp/bad.yaml"
refused 'bad.yaml:2:' train "$tmp/bad.yaml" --data "$case"
printf 'parallel: [1, 2]\n' >"$tmp/list.yaml"
refused 'list.yaml' train "$tmp/list.yaml" --data "$case"
printf 'train:\n  steps: many\n' >"$tmp/value.yaml"
refused 'train.steps' train "$tmp/value.yaml" --data "$case"
: >"$tmp/empty.yaml"
refused 'is empty' train "$tmp/empty.yaml"
printf 'train:\n  steps: 3\n' >"$tmp/nodata.yaml"
refused 'no data' train "$tmp/nodata.yaml"
refused 'missing.yaml' train "$tmp/missing.yaml"

# files that are missing, empty, truncated, or not what they claim
: >"$tmp/empty.safetensors"
head -c 60 "$case" >"$tmp/short.safetensors"
head -c 300000 "$case" >"$tmp/cut.safetensors"
echo 'this is no tensor file, but it is long enough to look at' >"$tmp/text.safetensors"
refused 'missing.safetensors' attention "$tmp/missing.safetensors"
for f in empty short cut text; do
  refused "$f.safetensors" attention "$tmp/$f.safetensors"
  refused "$f.safetensors" attention "$tmp/$f.safetensors" --cp 2
  refused "$f.safetensors" verify "$llama" "$tmp/$f.safetensors"
done
refused 'tokens' verify "$llama" "$case"
refused 'q' attention "$llama/case.safetensors"
refused 'config.json' verify "$tmp/nowhere" "$llama/case.safetensors"
: >"$tmp/empty.txt"
refused 'empty.txt' train --data "$tmp/empty.txt"
printf 'too short' >"$tmp/short.txt"
refused 'short.txt' train --data "$tmp/short.txt" --seq-length 4096
refused 'missing.txt' train --data "$tmp/missing.txt"

# a place that cannot be written is found before the work; devices and pipes are not replaced by plain files
mkfifo "$tmp/pipe"
refused 'No such file' attention "$case" --out "$tmp/nowhere/out.safetensors"
refused 'is a directory' attention "$case" --out "$tmp" --cp 2
refused '--out is empty' verify "$llama" "$llama/case.safetensors" --out ''
refused 'pipe' attention "$case" --out "$tmp/pipe"
[ -p "$tmp/pipe" ] || fail "--out replaced a pipe"
refused '--runs' train --data "$case" --runs ''
refused '--name' train --data "$case" --name ''

# words that are not there, as of a script's variable that is not set
refused 'verify: word 2 is empty; usage: ' verify "$llama" ''
refused 'checkpoint: word 2 is empty; usage: ' checkpoint inspect ''
refused 'bench: word 3 is empty; usage: ' bench attention 'T8 H1 D8' ' '
refused '--make is empty; give' attention --make ''
refused '--make: T, H and D are needed' attention --make ' '
refused '--make is empty; give' bench cp --make ''
refused '--data is empty; give' train --data ''
refused '--strategies is empty; give' sim --strategies ''
refused '--docs is empty; give' sim --docs ''
# nothing is measured, and no heading is written, before all of a list has been read
refused 'fp32: T, H and D are needed' bench attention 'T8 H1 D8' fp32 --format csv

# nobody waits at a pipe without a writer
refused 'regular file' attention "$tmp/pipe"
refused 'plain file' train "$tmp/pipe"
refused 'regular file' train --data "$tmp/pipe"
mkdir "$tmp/piped" && mkfifo "$tmp/piped/config.json"
refused 'regular file' generate "$tmp/piped" --prompt x

cp -r "$llama" "$tmp/waiting" && rm -f "$tmp/waiting/trajectory.json" && mkfifo "$tmp/waiting/trajectory.json"
refused 'regular file' verify "$tmp/waiting" "$tmp/waiting/case.safetensors"

# numbers that fp32 cannot hold, and expectations of what cannot be there
edit() { python3 - "$case" "$tmp/$1" "$2" "$3" <<'P'
import json, struct, sys
raw = open(sys.argv[1], 'rb').read(); n = struct.unpack('<Q', raw[:8])[0]
head = json.loads(raw[8:8 + n]); head['__metadata__'][sys.argv[3]] = sys.argv[4]
text = json.dumps(head).encode(); open(sys.argv[2], 'wb').write(struct.pack('<Q', len(text)) + text + raw[8 + n:])
P
}
for limit in 2e-O6 x nan 1e400 0 -2e-6 inf; do
  edit limit tol_fp32_o "$limit"; refused 'tol_fp32_o' attention "$tmp/limit"
done
refused 'at most' attention --make "T=5 H=2 D=8 docs=random:9223372036854775807"
refused 'use precision fp64, or 0 for none' attention --make "T=8 H=2 D=4 causal softcap=1e31"
edit softcap softcap 1e-300; refused 'softcap is 1e-300' attention "$tmp/softcap"
for word in softcap=1e-40 softcap=1e39 scale=1e39 scale=-1e-39; do
  refused 'outside of fp32' attention --make "T=8 H=2 D=4 causal $word" --cp 2
  refused 'outside of fp32' attention --make "T=8 H=2 D=4 causal $word" --precision bf16
done
good attention --make "T=8 H=2 D=4 causal softcap=1e-40 scale=1e39" --precision fp64 --spot 3
edit scale scale -1e300; refused 'scale is -1e+300' attention "$tmp/scale" --cp 2
good attention --make "T=5 H=2 D=4 alibi sinks" --precision fp64 --out "$tmp/wide"
poke() { python3 - "$tmp/wide" "$tmp/poked" "$1" "$2" <<'P'
import json, struct, sys
raw = bytearray(open(sys.argv[1], 'rb').read()); n = struct.unpack('<Q', raw[:8])[0]
at = 8 + n + json.loads(raw[8:8 + n])[sys.argv[3]]['data_offsets'][0]
raw[at:at + 8] = struct.pack('<d', float(sys.argv[4])); open(sys.argv[2], 'wb').write(raw)
P
}
for name in q k v do sinks alibi; do
  poke $name 1e39; refused "element 0 of $name is 1e+39, too large for F32" attention "$tmp/poked"
done
poke k 1e5; refused 'element 0 of k is 100000, too large for F16' attention "$tmp/poked" --precision fp16 --cp 2
edit causal causal 2; refused 'causal is 2' attention "$tmp/causal"

# what could not act beside a model that says it all
refused 'model.hidden_size could not act' train --data "$case" --model "$llama" --hidden-size 32
refused 'model_type llama has none' train --data "$case" --sliding-window 8 # a saved model could not say it
refused 'model.tied could not act' train --data "$case" --model-config "$llama/config.json" --no-tied
refused '--sample-tokens' train --data "$case" --model "$WEFT_GOLDEN/models/stories260K" --sample-tokens 3

# what ranks are told and what they agree on is one line, with one rank's name
WEFT_FAULT=zzz refused 'unknown kind' attention "$case" --cp 3
WEFT_LOCAL_RANK=1 refused 'unset WEFT_LOCAL_RANK' attention "$case" --cp 3
( cd "$tmp" && WEFT_FAULT= timeout 60 "$WEFT" attention "$tmp/causal" --cp 3 2>stderr >stdout )
grep -c 'rank [0-9]*: rank' "$tmp/stderr" | grep -q '^0$' ||
  fail "two ranks in front: $(cat "$tmp/stderr")"

# a model that contradicts itself
cp -r "$llama" "$tmp/model"
sed -i 's/"hidden_size": 64/"hidden_size": 96/' "$tmp/model/config.json"
refused 'shape' verify "$tmp/model" "$llama/case.safetensors"
sed -i 's/"hidden_size": 96/"hidden_size": 64/; s/"vocab_size": 259/"vocab_size": 100/' "$tmp/model/config.json"
refused 'tokens' verify "$tmp/model" "$llama/case.safetensors"
sed -i 's/"model_type": "llama"/"model_type": "lama"/' "$tmp/model/config.json"
refused 'lama' verify "$tmp/model" "$llama/case.safetensors"
printf '{"model_type": "llama"' >"$tmp/model/config.json"
refused 'config.json' verify "$tmp/model" "$llama/case.safetensors"
refused 'prompt' generate "$llama"
refused 'vocabulary' generate "$WEFT_GOLDEN/models/stories260K" --prompt hello
refused '512' generate "$WEFT_GOLDEN/models/stories260K" --prompt-ids 1,512
refused 'token ids' generate "$WEFT_GOLDEN/models/stories260K" --prompt-ids 1,x

# a world that the sizes do not divide
yes 'some text to train on' | head -c 100000 >"$tmp/data.txt"
refused 'multiple' train --data "$tmp/data.txt" --dp 2 --micro-batch-size 2 --global-batch-size 6 --seq-length 64
mkdir -p "$tmp/empty/runs/taken" 
( cd "$tmp/empty" && timeout 60 "$WEFT" train --data ../data.txt --seq-length 64 --steps 1 --name taken >../stdout \
  2>../stderr ); code=$?
[ $code = 2 ] && grep -q 'exists already' "$tmp/stderr" ||
  fail "an existing run folder was not refused: $code $(cat "$tmp/stderr")"
[ -z "$(ls -A "$tmp/empty/runs/taken")" ] || fail "wrote into an existing run folder"
rm -rf "$tmp/empty"
# a path for a name, a result over its own case, nothing to evaluate
refused 'is a path' train --data "$tmp/data.txt" --seq-length 64 --name ../elsewhere
for name in ' ' 'a b' $'a\nb' $'\t' 'a*' '$HOME' "it's" 'a\b' '~' 'a;b'; do
  refused 'cannot be in a name; letters, digits and ._-' train --data "$tmp/data.txt" --seq-length 64 "--name=$name"
done
refused 'begin with a dash' train --data "$tmp/data.txt" --seq-length 64 --name=-x
refused 'at most 200' train --data "$tmp/data.txt" --seq-length 64 --name "$(printf '%201s' '' | tr ' ' a)"
cp "$case" "$tmp/own.safetensors"
refused 'the case itself' attention "$tmp/own.safetensors" --out "$tmp/own.safetensors"
refused 'seed' eval "$llama" --data "$tmp/data.txt" --seed 3 # it would not act
cp -r "$llama" "$tmp/damaged"
python3 - "$tmp/damaged/model.safetensors" <<'P'
import json, struct, sys
raw = bytearray(open(sys.argv[1], 'rb').read()); n = struct.unpack('<Q', raw[:8])[0]
at = 8 + n + json.loads(raw[8:8 + n])['model.norm.weight']['data_offsets'][0]
raw[at:at + 4] = struct.pack('<f', float('nan')); open(sys.argv[1], 'wb').write(raw)
P
( cd "$tmp" && timeout 60 "$WEFT" eval damaged --data data.txt --seq-length 16 --cp 2 >stdout 2>stderr </dev/null )
code=$?
[ $code = 3 ] && grep -q 'not finite' "$tmp/stderr" ||
  fail "eval of damaged weights: exit $code, $(cat "$tmp/stdout" "$tmp/stderr")"
refused 'nothing to evaluate' eval "$llama" --data "$tmp/data.txt" --eval-sequences 0
refused 'seq' train --data "$tmp/data.txt" --seq-length 16G

# values that are not finite, metadata that would be ignored
python3 - "$case" "$tmp" <<'P'
import json, struct, sys
raw = open(sys.argv[1], 'rb').read()
n = struct.unpack('<Q', raw[:8])[0]
head, body = json.loads(raw[8:8 + n]), bytearray(raw[8 + n:])
def write(name, h, b):
    t = json.dumps(h).encode(); t += b' ' * (-len(t) % 8)
    open(sys.argv[2] + '/' + name, 'wb').write(struct.pack('<Q', len(t)) + t + b)
a = head['k']['data_offsets'][0]
body[a + 40:a + 44] = struct.pack('<f', float('nan'))
write('nan.safetensors', head, body)
head['__metadata__']['windw_left'] = '3'
write('key.safetensors', head, raw[8 + n:])
P
refused 'element 10 of k' attention "$tmp/nan.safetensors"
refused 'did you mean "window_left"' attention "$tmp/key.safetensors" --cp 2
finish
