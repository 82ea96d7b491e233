#!/usr/bin/env bash
# `weft doctor`: a line for each thing it looks at, a command beside each that is not fine; what is planted here is
# found. More plants: test_doctor_long.sh.
# labels: small noasan
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/doctor_lib.sh"

sets= doctor 0 folder
for subject in processor cores numa clock memory limits /dev/shm pages variables oneDNN kernels ranks GPU folder \
  "Open MPI" MPICH; do
  grep -qF "\"subject\": \"$subject\"" "$tmp/lines" || fail "nothing is said of $subject"
done
line ok kernels "agree with the specification"
line ok ranks "exchanged 4096 bytes"
line ok folder "MiB with fsync"
[ -z "$(ls -A "$tmp/folder")" ] || fail "left in the folder: $(ls -A "$tmp/folder")"

refused "prints text or jsonl" doctor --format csv
refused "at most 128" doctor --cp 200
refused "leave one of them out" doctor --ranks 4 --cp 2
refused "one word too many" doctor a b
refused "did you mean" doctor --threds 2

# text: on a terminal it fits, and the verdict alone is coloured
on_terminal 60 doctor folder --isa ref
grep -q $'^\033\[32mok\033\[0m  *processor ' "$tmp/stdout" || fail "no colour: $(head -2 "$tmp/stdout")"
sed 's/\x1b\[[0-9]*m//g' "$tmp/stdout" | tr -d '\r' >"$tmp/plain"
grep -qE '^[0-9]+ ok, [0-9]+ notes?, [0-9]+ to look at, 0 bad \([0-9.]+ s\)$' "$tmp/plain" || fail "no sum"
! awk 'length > 60' "$tmp/plain" | grep . || fail "wider than 60 columns"

# variables, ranks that do not fit, a folder that is not there: one run for all
export OMP_NUM_THREADS=4 GOMP_CPU_AFFINITY=0 OMPI_MCA_btl=self,tcp NCCL_DEBUG=INFO UCX_TLS=tcp MPICH_ASYNC_PROGRESS=1
export WEFT_FAULT=kill:rank=9:site=cp.ring:hit=1 OMPI_MCA_some_thing=x OMP_PROC_BIND=close
doctor 1 nowhere --ranks 128 --cp 64 --dp 2
unset OMP_NUM_THREADS GOMP_CPU_AFFINITY OMPI_MCA_btl NCCL_DEBUG UCX_TLS MPICH_ASYNC_PROGRESS WEFT_FAULT \
  OMPI_MCA_some_thing OMP_PROC_BIND
line look cores "128 ranks x 4 threads are 512"
line look variables "OMP_NUM_THREADS=4"
line look variables "GOMP_CPU_AFFINITY=0"
[ "$(nproc)" -lt 2 ] || line note cores "OpenMP has bound it as it started"
line look variables "OMP_PROC_BIND=close"
line look variables "MPICH_ASYNC_PROGRESS=1"
line look variables "WEFT_FAULT="
line note variables "OMPI_MCA_btl=self,tcp: Open MPI uses these transports only"
line note variables "OMPI_MCA_some_thing=x: a parameter of Open MPI"
line note variables "NCCL_DEBUG=INFO"
line note variables "UCX_TLS=tcp"
line note processor "kernels use ref because that was asked for"
line bad folder "nowhere: No such file"
grep -qF "mkdir -p 'nowhere'" "$tmp/lines" || fail "no mkdir"

limited "-v 200000" 1 bad limits "addresses (ulimit -v)"
if unshare -rm true 2>/dev/null; then
  apart 1 "mount -t tmpfs none /proc" folder
  line look memory "/proc/meminfo"
  line bad ranks "could not be started"
else
  echo "(no unshare here: a machine without /proc was not made)"
fi
finish
