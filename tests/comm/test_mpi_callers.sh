#!/usr/bin/env bash
# Worlds over communicators of a program's own, with each MPI: mpi_callers.c.
# labels: small mpi noasan
set -u
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
bad=0
for mpi in openmpi mpich; do
  [ -e "$WEFT_BUILD/libweft_mpi_$mpi.so" ] && command -v "mpirun.$mpi" >/dev/null &&
    command -v "mpicc.$mpi" >/dev/null || continue
  "mpicc.$mpi" -std=gnu11 -fopenmp -I "$WEFT_SRC/src" -I "$WEFT_SRC/include" -o "$tmp/callers" \
    "$WEFT_SRC/tests/comm/mpi_callers.c" \
    "$WEFT_BUILD/libweft.a" -lm -ldl -lpthread || { echo "FAILED: $mpi: it does not compile"; bad=1; continue; }
  timeout 60 "mpirun.$mpi" -n 3 "$tmp/callers" "$mpi" >"$tmp/out" 2>&1 </dev/null; code=$?
  if [ "$code" != 7 ] || [ "$(grep -c 'all hold' "$tmp/out")" != 3 ]; then
    echo "FAILED: $mpi: exit $code: $(head -20 "$tmp/out")"; bad=1
  fi
done
exit $bad
