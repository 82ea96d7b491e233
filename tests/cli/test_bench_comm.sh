#!/usr/bin/env bash
# labels: small noasan
# timeout: 120
# `weft bench comm`: every exchange at every size, times and rates that agree, a profile with what was found in it; more
# ranks than processors; what makes no sense is refused.
. "$(dirname "$0")/lib.sh"
good bench comm --cp 3 --repeats 2 --sizes 64K,256K --format jsonl
python3 - "$tmp/stdout" <<'PY' || fail "bench comm: the numbers do not agree: $(cat "$tmp/stdout")"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
sent = {("memory", "copy"): 1, ("ring", "to the next"): 1, ("direct", "to all others"): 2, ("ring", "in pieces"): None,
        ("ring", "all-gather"): 2, ("direct", "all-gather"): 2, ("direct", "reduce-scatter"): 2,
        ("direct", "all-to-all"): 2}
assert [(r["path"], r["exchange"]) for r in rows] == [way for way in sent for _ in range(2)], rows
copies = {r["bytes"]: r["bytes_per_second"] for r in rows if r["exchange"] == "copy"}
for r in rows:
    times = sent[r["path"], r["exchange"]]
    bytes = 256 << 10 if times is None else times * r["bytes"]
    assert r["ranks"] == 3 and r["bytes"] in (64 << 10, 256 << 10), r
    assert abs(r["bytes_per_second"] * r["seconds"] / bytes - 1) < 1e-4, r
    if r["exchange"] == "copy":
        assert r["exposed"] is None and r["share_of_copies"] is None and r["copies"] == 0, r
    else:
        assert 0 <= r["exposed"] <= 1 and r["copies"] == 2, r  # into the sender's mailbox, and out of it
        assert abs(r["share_of_copies"] * copies[r["bytes"]] / r["bytes_per_second"] - 1) < 1e-3, r
PY
good bench comm --cp 5 --repeats 1 --sizes 64,4K
for line in '^5 ranks (local), more than processors' '^latency  [0-9.]* us' '^of 4.00 KiB  ring .* in one piece$' \
  '^limit  .*2.0 times'; do
  [ "$line" = '^5 ranks (local), more than processors' ] && [ "$(nproc)" -ge 5 ] && continue
  grep -q "$line" "$tmp/stdout" || fail "bench comm prints no line like $line: $(cat "$tmp/stdout")"
done
good bench comm --cp 3 --repeats 1 --sizes 64K,1M --profile laptop --out "$tmp/measured.json" --format md
[ "$(grep -c '^| ring | to the next | ' "$tmp/stdout")" = 2 ] || fail "bench comm --format md: $(cat "$tmp/stdout")"
laptop="$WEFT_SRC/src/mesh/profiles/laptop.json"
python3 - "$tmp/measured.json" "$laptop" "$tmp/stdout" <<'PY' || fail "bench comm --profile laptop"
import json, sys
new, old = (json.load(open(f)) for f in sys.argv[1:3])
measured = {"latency_seconds", "link_bytes_per_second", "rank_bytes_per_second", "buffer_bytes", "collective_factor",
            "node_latency_seconds", "node_bytes_per_second"}
for key in old:
    if key in measured:
        assert new["sources"][key].startswith("measured by weft bench comm: 3 ranks"), key
        assert new[key] > 0 or key == "buffer_bytes", key
    elif key != "sources":
        assert new[key] == old[key] and new["sources"][key] == old["sources"][key], key
assert new["buffer_bytes"] in (0, 64 << 10), new["buffer_bytes"]
# what a prediction makes of the factor is what was measured
rows = [[c.strip() for c in line.split("|")] for line in open(sys.argv[3]) if "1.00 MiB" in line]
slowest = min(float(r[6]) for r in rows if r[2] in ("all-gather", "reduce-scatter", "all-to-all") and r[1] == "direct")
share, rate = new["collective_factor"], new["node_bytes_per_second"] / 1e9
assert share <= 1 and abs(share * rate - min(slowest, rate)) < 2e-3, (share, rate, slowest)
PY
# these ranks say nothing of what is inside the nodes of another machine
good bench comm --repeats 1 --sizes 64K --profile h100-ib --out "$tmp/measured.json"
grep -q "^written to $tmp/measured.json" "$tmp/stdout" || fail "bench comm does not say what it wrote"
python3 - "$tmp/measured.json" "$WEFT_SRC/src/mesh/profiles/h100-ib.json" <<'PY' || fail "bench comm --profile h100-ib"
import json, sys
new, old = (json.load(open(f)) for f in sys.argv[1:])
assert all(new[key] == old[key] for key in ("node_bytes_per_second", "node_latency_seconds", "node_ranks")), new
assert new["link_bytes_per_second"] != old["link_bytes_per_second"], new
PY
refused 'give --cp 2' bench comm --cp 1
refused 'into which profile' bench comm --out "$tmp/x.json"
refused 'could not act: give --out' bench comm --profile laptop
refused 'did you mean "laptop"' bench comm --profile laptopp --out "$tmp/x.json"
echo '{}' >"$tmp/empty.json"
refused 'latency_seconds is missing' bench comm --profile "$tmp/empty.json" --out "$tmp/x.json"
refused '"x" is no size of a message' bench comm --sizes 64K,x
refused '"" is no size of a message' bench comm --sizes 64K,
refused '"63" is no size' bench comm --sizes 63
refused '"1000G" is no size' bench comm --sizes 1000G
refused 'there is no memory for 2 messages' bench comm --sizes 32G,64K
refused 'no use for the option bench.sizes' bench profile --sizes 64K
refused 'no use for the option parallel.cp_strategy' bench comm --cp-strategy ring
finish
