#!/usr/bin/env bash
# labels: small
# timeout: 100
# A run's folder holds one run: --overwrite clears it of the one before and of nothing else, and a second one at the
# same time is refused.
. "$(dirname "$0")/train_lib.sh"
run="train $model --data $tmp/data.txt --seq-length 64 --threads 1 --runs $tmp/runs"
folder=$tmp/runs/one

# checkpoints, temporary files of killed runs and files of others
good $run --name one --steps 3 --save-interval 1
[ -d "$folder/step-00000001" ] && [ -d "$folder/step-00000003" ] || fail "no checkpoints: $(ls "$folder")"
cp -r "$folder/step-00000003" "$folder/step-00000004.tmp-4711"
mv "$folder/step-00000004.tmp-4711/model.safetensors" \
  "$folder/step-00000004.tmp-4711/model-00001-of-00002.safetensors.tmp-4711-4712"
echo half >"$folder/config.yaml.tmp-4711-4711"
mkdir "$folder/step-notes"
for name in notes.txt step-12 config.yaml.tmp-mine config.yaml.bak; do echo mine >"$folder/$name"; done
good $run --name one --steps 2 --cp 2 --overwrite
left=$(cd "$folder" && ls | tr '\n' ' ')
all="config.yaml config.yaml.bak config.yaml.tmp-mine latest metrics.jsonl notes.txt step-00000002 step-12 step-notes"
all+=" tb "
[ "$left" = "$all" ] || fail "--overwrite left $left"
[ "$(wc -l <"$folder/metrics.jsonl")" = 2 ] || fail "metrics of two runs: $(cat "$folder/metrics.jsonl")"

# what is somebody else's, or is needed, is in the way: nothing is removed
before=$(find "$folder" | sort)
echo mine >"$folder/step-00000002/notes.txt"
refused 'step-00000002/notes.txt is no file of a checkpoint' $run --name one --steps 1 --overwrite
rm "$folder/step-00000002/notes.txt"
ln -s "$tmp/elsewhere" "$folder/step-00000007"
refused 'step-00000007 is no folder of a run' $run --name one --steps 1 --overwrite
rm "$folder/step-00000007"
refused 'which --overwrite clears' train --data "$tmp/data.txt" --seq-length 64 --runs "$tmp/runs" --name one \
  --steps 1 --overwrite --model "$folder/step-00000002"
[ "$before" = "$(find "$folder" | sort)" ] || fail "a refusal changed the folder: $(ls "$folder")"

# a folder where the link to the newest one will be: said before the first step, not after the last
mv "$folder/latest" "$tmp/link" && mkdir "$folder/latest"
refused 'latest is no link' $run --name one --steps 1 --overwrite
refused 'latest is no link' $run --name one --steps 2 --resume auto
rmdir "$folder/latest" && mv "$tmp/link" "$folder/latest"

# a checkpoint under the name of a later step is not gone on from, and what is no folder is refused
cp -r "$folder/step-00000002" "$folder/step-00000009"
good $run --name one --steps 3 --cp 2 --resume auto
grep -q 'passes over .*step-00000009 is of step 2: its folder was renamed' "$tmp/stderr" || fail "$(cat "$tmp/stderr")"
ls -d "$folder"/step-00000009.damaged-* >/dev/null || fail "it is not moved aside: $(ls "$folder")"
refused 'data.txt is no folder' $run --name two --steps 1 --resume "$tmp/data.txt"

# two at once
"$WEFT" $run --name one --steps 1000000 --cp 2 --overwrite >"$tmp/background" 2>&1 </dev/null &
pid=$!
for i in $(seq 200); do [ "$(wc -l <"$folder/metrics.jsonl")" -gt 3 ] && break; sleep 0.05; done
refused "another run is writing into $folder" $run --name one --steps 1 --overwrite
refused "exists already" $run --name one --steps 1
rm "$folder/metrics.jsonl"
for i in $(seq 100); do grep -q 'metrics.jsonl was moved or removed' "$tmp/background" && break; sleep 0.05; done
[ "$(grep -c 'metrics.jsonl was moved or removed' "$tmp/background")" = 1 ] ||
  fail "metrics that go nowhere: $(grep weft "$tmp/background")"
kill -9 $pid; wait $pid 2>/dev/null
for i in $(seq 100); do running "--name one --steps 1000000" || break; sleep 0.05; done
good $run --name one --steps 1 --overwrite
[ "$(wc -l <"$folder/metrics.jsonl")" = 1 ] || fail "the killed run's lines are still there"
# No room for all metrics, as on a full disk: the run ends with the way out, or goes on, says so once, and in the end
# how many lines are missing. The checkpoint's files are smaller than the limit (of 32 KiB on any file).
full() { # CODE HOW
  ( trap '' XFSZ; ulimit -f 32; cd "$tmp" && exec timeout 60 "$WEFT" train --hidden-size 4 --num-layers 1 \
      --num-attention-heads 1 --vocab-size 257 --data data.txt --seq-length 16 --eval-sequences 0 --threads 1 \
      --steps 90 --name full --overwrite --save-failure "$2" >stdout 2>stderr </dev/null )
  local code=$?
  [ $code = "$1" ] || fail "no room for metrics, $2: exit $code: $(tail -2 "$tmp/stderr")"
  grep -q 'cannot write metrics to runs/full/metrics.jsonl: File too large' "$tmp/stderr" ||
    fail "$2: $(cat "$tmp/stderr")"
  [ "$(grep -c 'metrics' "$tmp/stderr")" = 1 ] || fail "$2: said more than once: $(cat "$tmp/stderr")"
  [ -z "$(tail -c 1 "$tmp/runs/full/metrics.jsonl")" ] || fail "$2: half a line is left"
}
full 3 stop
grep -q -- '--save-failure warn trains on' "$tmp/stderr" || fail "no way out in $(cat "$tmp/stderr")"
full 0 warn
lines=$(wc -l <"$tmp/runs/full/metrics.jsonl")
grep -q "^metrics *of $((90 - lines)) steps could not be written: runs/full/metrics.jsonl lacks them" "$tmp/stdout" ||
  fail "$lines lines of 90, and: $(grep metrics "$tmp/stdout")"
good checkpoint verify runs/full/latest
finish
