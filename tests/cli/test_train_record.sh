#!/usr/bin/env bash
# labels: small noasan
# timeout: 300
# The record of a run reads back whichever way the strategy was given, and a flag wins over it.
. "$(dirname "$0")/train_lib.sh"

short="$model --data data.txt --seq-length 64 --steps 1 --threads 1"
for way in "--pcp-size 2" "--dcp-size 2" "--cp 2 --cp-comm-type p2p" "--cp 2 --cp-strategy ulysses --cp-keep-heads"; do
  good train $short --name way --overwrite $way --compare-one-rank 1
  good train runs/way/config.yaml --name way-again --overwrite
  [ "$(losses way)" = "$(losses way-again)" ] || fail "$way: the resolved configuration gave another run"
done
good train $short --name way --overwrite --cp 2 --cp-strategy dcp --cp-head-size 2 --compare-one-rank 1
good train $short --name way --overwrite --pcp-size 2
good train runs/way/config.yaml --name way-again --overwrite --cp 3
grep -q '(pcp P=3' "$tmp/stdout" || fail "--cp does not win over a file's pcp_size: $(grep layers "$tmp/stdout")"
good train runs/way/config.yaml --name way-again --overwrite --cp-strategy ring
grep -q '(ring P=2' "$tmp/stdout" ||
  fail "--cp-strategy does not win over a file's pcp_size: $(grep layers "$tmp/stdout")"
good train runs/way/config.yaml --name way-again --overwrite --dcp-size 4
grep -q 'P=4\|U=' "$tmp/stdout" || fail "--dcp-size does not win over a file's pcp_size: $(grep layers "$tmp/stdout")"
refused 'disagree' train $short --pcp-size 2 --cp 3
refused 'give one of them' train $short --pcp-size 2 --cp-strategy auto
finish
