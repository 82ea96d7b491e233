#!/usr/bin/env bash
# labels: small
# timeout: 120
# Dropout by address: the written mask explains the written results to a program that knows nothing of addresses, and it
# is the same mask for every number of ranks, strategy and layout.
. "$(dirname "$0")/lib.sh"
case='T=37 H=4/2 D=6/5 B=2 causal docs=20,0,1,* window=11 sinks softcap=2'
good attention --make "$case" --dropout 0.3 --seed 5 --precision fp64 --out "$tmp/one"
while read -r name flags; do
  good attention --make "$case" --dropout 0.3 --seed 5 --precision fp64 $flags --out "$tmp/$name"
done <<'END'
ring --cp 3 --cp-strategy ring
pcp --cp 4 --cp-strategy pcp --cp-layout contiguous
pairwise --cp 5 --cp-strategy pairwise
END
good attention --make "$case" --dropout 0.3 --seed 6 --precision fp64 --out "$tmp/other"
# A written case says its dropout and seed: it holds without either being given, on any cut; asked for another one, even
# none, nothing is compared, and the reason is said.
good attention "$tmp/one" --cp 3 --cp-strategy ring --precision fp64 --out "$tmp/again"
grep -q 'all 6 comparisons hold' "$tmp/stdout" || fail "a written case with dropout does not hold: $(cat "$tmp/stdout")"
good attention "$tmp/one" --dropout 0.3 --seed 5
grep -q 'all 6 comparisons hold' "$tmp/stdout" || fail "its dropout, given: $(cat "$tmp/stdout")"
sed 's/dropout_seed/maker_number/' "$tmp/one" >"$tmp/unknown"
while read -r file said flags; do
  good attention "$tmp/$file" $flags --out "$tmp/out"
  grep -q 'nothing was compared' "$tmp/stdout" || fail "$file $flags was compared: $(cat "$tmp/stdout")"
  grep -Eq "^dropout .*this run's is ${said//_/ }" "$tmp/stdout" ||
    fail "$file $flags: wrong reason: $(cat "$tmp/stdout")"
  case $flags in *'--dropout 0') ! grep -q dropout_mask "$tmp/out" || fail "--dropout 0 drops" ;; esac
done <<'END'
one 0,_that_of_the_file's_expected_values_is_0.3_with_seed_5 --dropout 0
one 0.3_with_seed_6,_that --seed 6
one 0.2_with_seed_5,_that --dropout 0.2
unknown 0.3_with_seed_1,_that_.*_a_seed_that_it_does_not_name --cp 2
END
good attention "$WEFT_GOLDEN/attention/sinks.safetensors" --dropout 0.2
grep -q "this run's is 0.2 with seed 1, that of the file's expected values is 0: not" "$tmp/stdout" ||
  fail "golden: $(cat "$tmp/stdout")"
refused 'dropout' attention --make "$case" --dropout 1
refused 'dropout' attention --make "$case" --dropout -0.1
python3 - "$tmp" <<'P' || fail "the written mask does not explain the results"
import json, math, struct, sys
def read(path):
    data = open(path, 'rb').read()
    n, = struct.unpack('<Q', data[:8])
    head = json.loads(data[8:8 + n])
    out = {'meta': head.pop('__metadata__', {})}
    for name, t in head.items():
        a, b = t['data_offsets']
        code = {'F64': 'd', 'U8': 'B', 'I64': 'q'}[t['dtype']]
        out[name] = (t['shape'], struct.unpack('<%d%s' % ((b - a) // struct.calcsize(code), code),
                                                    data[8 + n + a:8 + n + b]))
    return out
folder = sys.argv[1]
one = read(folder + '/one')
assert one['meta']['dropout_seed'] == '5'
for name in ('ring', 'pcp', 'pairwise', 'again'):
    x = read(folder + '/' + name)
    assert x['dropout_mask'] == one['dropout_mask'], name + ' has another mask'
    for t in ('o', 'dq', 'dk', 'dv', 'dsinks'):
        assert max(abs(a - b) for a, b in zip(x[t][1], one[t][1])) < 1e-12, (name, t)
assert read(folder + '/other')['dropout_mask'] != one['dropout_mask']
(B, H, T, _), mask = one['dropout_mask']
kept = sum(mask) / len(mask)
assert abs(kept - 0.7) < 5 * math.sqrt(0.21 / len(mask)), kept  # five standard deviations
p, meta = float(one['meta']['dropout']), one['meta']
Hkv, D = one['k'][0][2:]
Dv = one['v'][0][3]
scale, cap, left = float(meta['scale']), float(meta['softcap']), int(meta['window_left'])
q, k, v, do, sinks = (one[n][1] for n in ('q', 'k', 'v', 'do', 'sinks'))
cu = one['cu_seqlens'][1]
doc = [max(d for d in range(len(cu) - 1) if cu[d] <= t) for t in range(T)]
want = {n: [0.0] * len(one[n][1]) for n in ('o', 'dq', 'dk', 'dv', 'dsinks')}
row = lambda x, i, w: x[i * w:(i + 1) * w]
dot = lambda a, b: sum(x * y for x, y in zip(a, b))
for b in range(B):
    for h in range(H):
        g = h // (H // Hkv)
        for i in range(T):
            qi, keys = (b * T + i) * H + h, [j for j in range(T) if doc[j] == doc[i] and j <= i and i - j <= left]
            th = {j: math.tanh(scale * dot(row(q, qi, D), row(k, (b * T + j) * Hkv + g, D)) / cap) for j in keys}
            m = max([cap * t for t in th.values()] + [sinks[h]])
            l = sum(math.exp(cap * t - m) for t in th.values()) + math.exp(sinks[h] - m)
            P = {j: math.exp(cap * th[j] - m) / l for j in keys}
            keep = {j: mask[((b * H + h) * T + i) * T + j] / (1 - p) for j in keys}
            doi, dp = row(do, qi, Dv), {}
            for j in keys:
                kj = (b * T + j) * Hkv + g
                dp[j] = keep[j] * dot(doi, row(v, kj, Dv))
                for d in range(Dv):
                    want['o'][qi * Dv + d] += P[j] * keep[j] * v[kj * Dv + d]
                    want['dv'][kj * Dv + d] += P[j] * keep[j] * doi[d]
            delta = sum(P[j] * dp[j] for j in keys)  # = do.o
            want['dsinks'][h] -= math.exp(sinks[h] - m) / l * delta
            for j in keys:
                kj, ds = (b * T + j) * Hkv + g, scale * P[j] * (dp[j] - delta) * (1 - th[j] ** 2)
                for d in range(D):
                    want['dq'][qi * D + d] += ds * k[kj * D + d]
                    want['dk'][kj * D + d] += ds * q[qi * D + d]
for n, w in want.items():
    worst = max(abs(a - b) for a, b in zip(w, one[n][1]))
    assert worst < 1e-12, (n, worst)
P
finish
