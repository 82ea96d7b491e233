# judge_out.py OUT CASE [LIMIT_NLL LIMIT_GRADIENT] — is what `weft verify --out OUT` wrote what CASE expects? With the
# standard library and the format's own description only, so that no code of Weft judges itself.
import array, json, math, struct, sys

TYPES = {'F32': 'f', 'F64': 'd'}


def tensors(path):
    with open(path, 'rb') as f:
        data = f.read()
    n = struct.unpack('<Q', data[:8])[0]
    head, body = json.loads(data[8:8 + n]), data[8 + n:]
    out = {}
    for name, t in head.items():
        if name == '__metadata__' or t['dtype'] not in TYPES:
            continue
        a, b = t['data_offsets']
        values = array.array(TYPES[t['dtype']], body[a:b])
        assert len(values) == math.prod(t['shape']), name
        out[name] = (t['shape'], values)
    return out


def error(x, want):
    d = math.fsum((a - b) ** 2 for a, b in zip(x, want))
    n = math.fsum(b * b for b in want)
    return math.sqrt(d / n) if n else math.inf * d if d else 0.0


def main(out, case, nll='1e-5', gradient='2e-5'):
    have, want, bad = tensors(out), tensors(case), 0
    if set(have) != set(want):
        print('names differ:', sorted(set(have) ^ set(want)))
        return 1
    for name, (shape, values) in want.items():
        limit = float(nll if name == 'token_nll' else gradient)
        if have[name][0] != shape:
            print(name, 'has shape', have[name][0], 'not', shape)
            bad += 1
            continue
        e = error(have[name][1], values)
        if not e <= limit:
            print(name, 'is off by %.2e; the limit is %.0e' % (e, limit))
            bad += 1
    print('%d tensors, %d beyond their limits' % (len(want), bad))
    return 1 if bad else 0


sys.exit(main(*sys.argv[1:]))
