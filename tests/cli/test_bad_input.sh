#!/usr/bin/env bash
# labels: small
# timeout: 200
# Bad input: one clear line (what, where, what would work), exit 2, before anything is written.
. "$(dirname "$0")/lib.sh"
case=$WEFT_GOLDEN/attention/causal_s128.safetensors
llama=$WEFT_GOLDEN/models/llama

# words, flags, keys, values
refused 'did you mean "train"' tarin
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
refused 'not built' train --data "$case" --tp 2
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
( cd "$tmp/empty" && timeout 60 "$WEFT" train --data ../data.txt --seq-length 64 --steps 1 --name taken >../stdout 2>../stderr ); code=$?
[ $code = 2 ] && grep -q 'exists already' "$tmp/stderr" || fail "an existing run folder was not refused: $code $(cat "$tmp/stderr")"
[ -z "$(ls -A "$tmp/empty/runs/taken")" ] || fail "wrote into an existing run folder"
finish
