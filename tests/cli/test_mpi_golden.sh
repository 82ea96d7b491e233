#!/usr/bin/env bash
# Every golden attention case through `mpirun -n P weft attention`, with both MPIs: strategies and layouts take turns
# over files and numbers of ranks; exactness is judged by the program (exit 1). Ulysses on more ranks than heads must be
# refused, nothing else may be.
# labels: long mpi noasan
# timeout: 1800
. "$WEFT_SRC/tests/cli/lib.sh"
strategies=(pcp ring pairwise dcp dcp-ring dcp-pairwise ulysses auto) layouts=(contiguous zigzag striped balanced)
i=0 held=0 refusals=0
# query heads: the third size of q in the file's header
heads() {
  local n
  n=$(od -An -t u8 -N8 "$1")
  tail -c +9 "$1" | head -c $((n)) | grep -ao '"q":{[^}]*}' |
    sed -n 's/.*"shape": *\[[0-9]*, *[0-9]*, *\([0-9]*\),.*/\1/p'
}
for mpi in openmpi mpich; do
  [ -e "$WEFT_BUILD/libweft_mpi_$mpi.so" ] && command -v "mpirun.$mpi" >/dev/null || continue
  for file in "$WEFT_GOLDEN"/attention/*.safetensors; do
    H=$(heads "$file")
    [ "${H:-0}" -gt 0 ] || fail "$file: no shape of q in its header"
    for P in 2 5 8; do
      strategy=${strategies[i % 8]} layout=${layouts[(i / 8 + i) % 4]} i=$((i + 1))
      timeout 120 "mpirun.$mpi" -n $P "$WEFT" attention "$file" --cp $P --cp-strategy $strategy --cp-layout $layout \
        --mpi-progress callback >"$tmp/stdout" 2>"$tmp/stderr" </dev/null; code=$?
      what="$mpi, $(basename "$file"), $strategy $layout P=$P"
      if [ $strategy = ulysses ] && [ $P -gt "$H" ]; then
        [ $code = 2 ] && grep -q "there are $H; use dcp" "$tmp/stderr" ||
          fail "$what: $H heads, exit $code: $(head -1 "$tmp/stderr")"
        refusals=$((refusals + 1))
      elif [ $code = 0 ]; then
        held=$((held + 1))
      else
        fail "$what: exit $code: $(head -2 "$tmp/stderr") $(grep -v ' ok$' "$tmp/stdout" | tail -2)"
      fi
    done
  done
done
[ $((held + refusals)) = $i ] || fail "$held runs hold and $refusals were refused, of $i"
[ $i = 0 ] || { [ $held -gt $((i * 3 / 4)) ] && [ $refusals -gt 0 ]; } ||
  fail "of $i runs $held hold, $refusals are refused"
echo "$held of $i runs hold, $refusals are refused for their heads"
finish
