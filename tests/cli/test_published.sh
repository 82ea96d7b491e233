#!/usr/bin/env bash
# labels: long noasan
# timeout: 600
# bench/published.py as docs/published.md shows it: it fits and prints a table, and the page is what it writes.
set -u
command -v python3 >/dev/null || { echo "no python3: skipped"; exit 77; }
cmake --build "$WEFT_BUILD" --target bench_published >/dev/null || exit 1
page=$(mktemp); trap 'rm -f "$page"' EXIT
python3 "$WEFT_SRC/bench/published.py" --build "$WEFT_BUILD" >"$page" || exit 1
# Tables and constants to the digit; how text flows is the page's matter.
diff <(grep '^|' "$page") <(sed '1,/^## /d' "$WEFT_SRC/docs/published.md" | grep '^|') ||
  { echo "docs/published.md is not what bench/published.py prints; bench/published.py --write"; exit 1; }
grep -q 'held out: mean' "$page"
