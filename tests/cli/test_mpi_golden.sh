#!/usr/bin/env bash
# Every golden attention case through `mpirun -n P weft attention`, with both MPIs: strategies and layouts take turns over
# files and numbers of ranks; exactness is judged by the program (exit 1), and only more head ranks than heads may be refused.
# labels: long mpi noasan
# timeout: 1800
. "$WEFT_SRC/tests/cli/lib.sh"
strategies=(pcp ring pairwise dcp dcp-ring dcp-pairwise ulysses auto) layouts=(contiguous zigzag striped balanced)
i=0 held=0
for mpi in openmpi mpich; do
  [ -e "$WEFT_BUILD/libweft_mpi_$mpi.so" ] && command -v "mpirun.$mpi" >/dev/null || continue
  for file in "$WEFT_GOLDEN"/attention/*.safetensors; do
    for P in 2 5 8; do
      strategy=${strategies[i % 8]} layout=${layouts[(i / 8 + i) % 4]} i=$((i + 1))
      timeout 120 "mpirun.$mpi" -n $P "$WEFT" attention "$file" --cp $P --cp-strategy $strategy --cp-layout $layout \
        --mpi-progress callback >"$tmp/stdout" 2>"$tmp/stderr" </dev/null; code=$?
      what="$mpi, $(basename "$file"), $strategy $layout P=$P"
      case $code in
      0) held=$((held + 1)) ;;
      2) grep -q 'ulysses\|head' "$tmp/stderr" || fail "$what: $(head -1 "$tmp/stderr")" ;;
      *) fail "$what: exit $code: $(head -2 "$tmp/stderr") $(grep -v ' ok$' "$tmp/stdout" | tail -2)" ;;
      esac
    done
  done
done
[ $i = 0 ] || [ $held -gt $((i * 3 / 4)) ] || fail "only $held of $i runs were not refused"
echo "$held of $i runs hold"
finish
