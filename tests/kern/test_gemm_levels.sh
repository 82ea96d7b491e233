#!/usr/bin/env bash
# labels: small
# oneDNN's instruction set can be limited once per process, so the tests of products run again, as processes of
# their own, limited to each weaker set. A set that the machine lacks must be refused, not replaced.
set -eu
test="$WEFT_BUILD/tests/test_kern.gemm"
for isa in ref avx2; do
    out=$(WEFT_ISA=$isa "$test" 2>&1) || { grep -q "WEFT_ISA=$isa: this machine has ref" <<<"$out" &&
      continue; echo "$out"; exit 1; }
    echo "$isa: passed"
done
if WEFT_ISA=avx1024 "$test" >/dev/null 2>&1; then
    echo "an unknown instruction set was accepted"
    exit 1
fi
