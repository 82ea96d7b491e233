#!/usr/bin/env bash
# labels: small
# timeout: 200
# kill -9 at points of a save: the run goes on from a complete checkpoint and ends with the losses of a run that was not
# killed. With more points and at random times: test_crash_long.sh.
. "$(dirname "$0")/crash_lib.sh"
g09_a_kill_loses_nothing() {
  crash kill:rank=0:site=ckpt.gather:hit=60
  crash kill:rank=1:site=ckpt.write:hit=30
  crash kill:rank=0:site=ckpt.manifest:hit=2
  crash kill:rank=0:site=ckpt.renamed:hit=2
  crash kill:rank=0:site=ckpt.write:hit=3
}
g09_a_kill_loses_nothing
full_disk
finish
