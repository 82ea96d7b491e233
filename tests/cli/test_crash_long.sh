#!/usr/bin/env bash
# labels: long
# timeout: 1800
# kill -9 at every kind of point of a save and at fifty random times of training and saving.
. "$(dirname "$0")/crash_lib.sh"
for site in begin manifest rename renamed latest; do
  for hit in 1 2; do crash kill:rank=0:site=ckpt.$site:hit=$hit; done
done
for rank in 0 1; do
  for hit in 1 5 20 40; do crash kill:rank=$rank:site=ckpt.write:hit=$hit; done
  for hit in 1 2; do crash kill:rank=$rank:site=ckpt.sync:hit=$hit; done
done

# random times: a new run, or one that goes on, killed whatever it does; then again until it is done
RANDOM=20
kills=0
while [ $kills -lt 50 ]; do
  rm -rf "$tmp/runs/crash"
  for turn in $(seq 4); do
    (cd "$tmp" && exec "$WEFT" train $short --name crash --save-interval 1 --cp 2 --resume auto >stdout 2>stderr \
      </dev/null) & pid=$!
    sleep "0.$(printf %03d $((RANDOM % 500)))"
    kill -9 $pid 2>/dev/null && kills=$((kills + 1))
    wait $pid 2>/dev/null
    for i in $(seq 200); do running "--name crash --save-interval" || break; sleep 0.02; done
  done
  layout="--cp 2 --save-interval 1" goes_on "random times, $kills kills"
done
finish
