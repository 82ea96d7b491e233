#!/usr/bin/env bash
# labels: long noasan
# timeout: 900
# bench/predict.py works as a whole, in small: it calibrates, measures every layout and both orders, and writes its
# page. How good the predictions are is for a quiet machine and larger sizes.
. "$(dirname "$0")/lib.sh"
cd "$tmp" && python3 "$WEFT_SRC/bench/predict.py" --quick --write predicted.md >out 2>err ||
  fail "bench/predict.py --quick: $(tail -n 3 err)"
grep -Eq '^[0-9]+ of (5|13) layouts are predicted within 10%' out || fail "no count of layouts: $(cat out)"
told="(Kendall's tau-b -*[01]\.[0-9]*|no order to tell)"
[ "$(grep -Ec "pairs are predicted .* do as measured: $told\.$" out)" = 6 ] ||
  fail "not six orders of strategies: $(cat out)"
[ "$(grep -c '^| .*, ' predicted.md)" -ge 12 ] && grep -q "^Measured on: " predicted.md ||
  fail "the page: $(cat predicted.md)"
PYTHONPATH="$WEFT_SRC/bench" python3 - <<'P' || fail "tau-b"
import predict
apart = lambda i, j: False
assert predict.tau_b([1, 2, 3, 4], [1, 2, 3, 4], apart) == 1
assert predict.tau_b([1, 2, 3, 4], [4, 3, 2, 1], apart) == -1
assert abs(predict.tau_b([1, 2, 3], [1, 3, 2], apart) - 1 / 3) < 1e-12
# two of three measured values are a tie: of three pairs two count on one side, three on the other
assert abs(predict.tau_b([1, 2, 3], [1, 2, 2], lambda i, j: {i, j} == {1, 2}) - 2 / 6 ** 0.5) < 1e-12
assert predict.tau_b([1.0, 1.005, 3], [2, 1, 3], lambda i, j: {i, j} == {0, 1}, 0.01) == 1  # a tie in both
always = lambda i, j: True
assert predict.tau_b([1, 1, 1], [1, 2, 3], always) is None  # nothing to order
assert predict.tau_b([1, 1, 1], [1, 2, 3], apart) == 0 and predict.tau_b([1, 2, 3], [1, 1, 1], always) == 0
close = predict.undecided([[1.0, 1.0], [1.005, 1.005], [1.02, 1.02]], 0.01)
assert close(0, 1) and not close(0, 2) and not close(1, 2)
tie = predict.undecided([[1.0, 1.2, 1.0], [1.1, 1.1, 1.1], [2.0, 2.0, 9.0]])  # the second round says 1 < 0
assert tie(0, 1) and not tie(0, 2) and not tie(1, 2)
same = {"dcp, zigzag": 2.0, "dcp, striped:1": 2.0, "ring, zigzag": 1.0, "pcp, zigzag": 1.0}
assert predict.fastest(same) == ["ring, zigzag", "pcp, zigzag", "dcp, zigzag"]
P
finish
