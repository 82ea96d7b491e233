#!/usr/bin/env bash
# `weft doctor` in environments that are wrong in one way each: it says so, and answers all the same.
# labels: long
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/doctor_lib.sh"

# ---- variables
for value in many 0 -3; do
  ( cd "$tmp"; OMP_NUM_THREADS=$value "$WEFT" doctor folder >stdout 2>stderr </dev/null ) ||
    fail "OMP_NUM_THREADS=$value: $?" # libgomp has a word of its own for it
  grep -q "^look .*OMP_NUM_THREADS=$value: is no number" "$tmp/stdout" || fail "OMP_NUM_THREADS=$value"
done
OMP_NUM_THREADS=1 doctor 0 folder
line note variables "OMP_NUM_THREADS=1: so many threads for each rank"
sets=
if [ "$(WEFT_ISA=avx2 "$WEFT" info | grep -c 'best is avx2')" = 1 ]; then
  DNNL_MAX_CPU_ISA=SSE41 doctor 0 folder
  line note oneDNN "DNNL_MAX_CPU_ISA=SSE41 does not act"
  WEFT_ISA=avx2 doctor 0 folder
  line ok kernels "up to avx2"
fi
WEFT_ISA=ref doctor 0 folder
line ok oneDNN "not used"
sets="--isa ref"
mkdir "$tmp/bin"
PATH=$tmp/bin WEFT_PLUGIN_PATH=/nowhere "$WEFT" doctor "$tmp/folder" >/dev/null 2>&1 || fail "without PATH: $?"
printf '#!/bin/sh\nsleep 100\n' >"$tmp/bin/mpirun"; chmod +x "$tmp/bin/mpirun" # a launcher on a disk that hangs
if ls "$WEFT_BUILD"/libweft_mpi_openmpi.so >/dev/null 2>&1; then
  PATH=$tmp/bin:$PATH doctor 1 folder
  line bad "Open MPI" "did not end within 10 s"
fi

# ---- under a launcher one process reports, on what is left to it
for mpi in openmpi mpich; do
  [ -e "$WEFT_BUILD/libweft_mpi_$mpi.so" ] && command -v mpirun.$mpi >/dev/null || continue
  ( cd "$tmp" && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    timeout 120 mpirun.$mpi -n 3 "$WEFT" doctor --format jsonl --isa ref folder >lines 2>stderr </dev/null ) ||
    fail "$mpi: $(tail -n 3 "$tmp/lines" "$tmp/stderr")"
  line note launcher "started 3 processes"
  line ok cores "1 rank x "
  [ "$(grep -c '"ranks"' "$tmp/lines")" = 1 ] || fail "$mpi: $(grep '"ranks"' "$tmp/lines")"
  ! grep -q 'a parameter of' "$tmp/lines" || fail "$mpi: what the launcher sets is noted"
done

# ---- folders
: >"$tmp/file"
doctor 1 file
line bad folder "file is no folder"
[ "$(stat -f -c %T /dev/shm 2>/dev/null)" != tmpfs ] || { doctor 0 /dev/shm; line note folder "lies in memory"; }
( cd "$tmp/folder" && "$WEFT" doctor --isa ref | grep -q 'folder  *\.: ' ) ||
  fail "the folder is not the one it runs in"
mkdir "$tmp/runs"
doctor 0
line ok folder "runs: "

# ---- limits
limited "-f 8192" 1 bad limits "ulimit -f"
limited "-f 8192" 1 bad folder "does not take"
limited "-t 30" 1 bad limits "processor time"
limited "-n 20" 1 bad limits "open files"
limited "-v 4000000" 0 look limits "addresses"
limited "-v 4000000" 0 ok ranks exchanged
if unshare -r true 2>/dev/null && [ "$(id -u)" = 0 ]; then # processes count for users, and root is none
  chmod 777 "$tmp" "$tmp/folder"
  ( cd "$tmp" && setpriv --reuid 12345 --clear-groups bash -c 'ulimit -u 3; exec "$@"' - \
    "$WEFT" doctor \
    --format jsonl --isa ref folder >lines 2>stderr </dev/null )
  [ $? = 1 ] || fail "3 processes: $(tail -n 3 "$tmp/lines" "$tmp/stderr")"
  line look limits "3 processes and threads of this user"
fi

# ---- machines that lack something, where this one lets us make them
if unshare -rm true 2>/dev/null; then
  apart 0 "mount -t tmpfs -o size=1m none /dev/shm" folder --cp 8
  line look /dev/shm "8 ranks of Open MPI need some 32.00 MiB"
  line ok ranks exchanged
  apart 0 "mount -t tmpfs -o size=16m none /dev/shm" folder --cp 4
  line ok /dev/shm "16.00 MiB free"
  apart 0 "mount -t tmpfs none /sys" folder
  line note numa "does not say"
  apart 1 "mount -t tmpfs -o size=4m none folder" folder
  line bad folder "No space left"
  apart 1 "mount -t tmpfs -o ro none folder" folder
  line bad folder "Read-only file system"
  apart 0 "mount -t tmpfs none /dev" folder # no /dev/shm, no /dev/null
  line note /dev/shm "is not there"
else
  echo "(no unshare here: machines without /sys, with a small /dev/shm, with a full disk were not made)"
fi
finish
