#!/usr/bin/env bash
# labels: small mpi noasan
# timeout: 100
# Ranks that see different folders, as on nodes without a common file system: all refuse together, naming who sees what.
. "$(dirname "$0")/resume_lib.sh"
good train $short --name full --save-interval 3
tried=0
for mpi in openmpi mpich; do
  [ -n "$(command -v mpirun.$mpi)" ] && [ -e "$WEFT_BUILD/libweft_mpi_$mpi.so" ] || continue
  tried=$((tried + 1))
  rm -rf "$tmp/a" "$tmp/b"; mkdir -p "$tmp/a" "$tmp/b/runs/full"
  cp -r "$tmp/runs" "$tmp/data.txt" "$tmp/a"; cp "$tmp/data.txt" "$tmp/b"
  cp -r "$tmp/runs/full/step-00000003" "$tmp/b/runs/full"
  args="$WEFT train $short --steps 7 --name full --resume auto --cp 2"
  (cd "$tmp/a" && timeout 60 mpirun.$mpi -n 1 -wdir "$tmp/a" $args : -n 1 -wdir "$tmp/b" $args) \
    >"$tmp/stdout" 2>"$tmp/stderr" </dev/null; code=$?
  [ $code = 2 ] || fail "$mpi: one rank alone sees a checkpoint: exit $code"
  grep -q 'rank 0 on .* sees 2 checkpoints, the newest of step 6, rank 1 on .* sees 1 checkpoint' "$tmp/stderr" ||
    fail "$mpi: $(head -3 "$tmp/stderr")"
done
[ $tried -gt 0 ] || echo "no MPI here: left out"
finish
