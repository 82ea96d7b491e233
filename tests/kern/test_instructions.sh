#!/usr/bin/env bash
# labels: long bench
# timeout: 900
# The ref and AVX2 kernels of a training step execute no more instructions than recorded for this compiler.
exec python3 "$WEFT_SRC/bench/check.py" instructions
