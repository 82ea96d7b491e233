#!/usr/bin/env python3
"""A whole training step against PyTorch: GPT-2 124M at T = 1024 and a Llama of 110M at T = 8192, AdamW, same shapes.

    bench/peers/step.py [gpt2 | llama ...] [--threads 2] [--rounds 2] [--repeats 0]
                         [--precision fp32 bf16]

PyTorch computes with scaled_dot_product_attention, under bf16 autocast where bf16 is asked for, with fp32 weights in both.
A ratio above 1: Weft is faster. outside: what of Weft's step is neither matrix products nor attention; products: their time
alone over that in the step.
"""

import argparse

import peers

torch = peers.torch_or_skip()
nn, F = torch.nn, torch.nn.functional

SHAPES = {
    "gpt2": dict(V=50257, C=768, L=12, H=12, Hkv=12, F=3072, T=1024, B=1),
    "llama": dict(V=32000, C=768, L=12, H=12, Hkv=4, F=2048, T=8192, B=1),
}


class Attention(nn.Module):
    def __init__(self, s, bias):
        super().__init__()
        self.s, self.D = s, s["C"] // s["H"]
        self.qkv = nn.Linear(s["C"], (s["H"] + 2 * s["Hkv"]) * self.D, bias=bias)
        self.o = nn.Linear(s["C"], s["C"], bias=bias)

    def forward(self, x, rotate):
        B, T, C = x.shape
        s, D = self.s, self.D
        q, k, v = self.qkv(x).split([s["H"] * D, s["Hkv"] * D, s["Hkv"] * D], -1)
        q, k, v = (y.view(B, T, -1, D).transpose(1, 2) for y in (q, k, v))
        if rotate is not None:
            q, k = rotate(q), rotate(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=s["H"] != s["Hkv"])
        return self.o(y.transpose(1, 2).reshape(B, T, C))


class GPT2Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(s["C"]), nn.LayerNorm(s["C"])
        self.attention = Attention(s, True)
        self.up, self.down = nn.Linear(s["C"], s["F"]), nn.Linear(s["F"], s["C"])

    def forward(self, x, rotate):
        x = x + self.attention(self.n1(x), None)
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(s["C"], eps=1e-5), nn.RMSNorm(s["C"], eps=1e-5)
        self.attention = Attention(s, False)
        self.up, self.down = nn.Linear(s["C"], 2 * s["F"], bias=False), nn.Linear(s["F"], s["C"], bias=False)

    def forward(self, x, rotate):
        x = x + self.attention(self.n1(x), rotate)
        gate, up = self.up(self.n2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, family, s):
        super().__init__()
        self.family = family
        self.embed = nn.Embedding(s["V"], s["C"])
        self.positions = nn.Embedding(s["T"], s["C"]) if family == "gpt2" else None
        block = GPT2Block if family == "gpt2" else LlamaBlock
        self.blocks = nn.ModuleList(block(s) for _ in range(s["L"]))
        self.norm = nn.LayerNorm(s["C"]) if family == "gpt2" else nn.RMSNorm(s["C"], eps=1e-5)
        self.head = nn.Linear(s["C"], s["V"], bias=False)
        self.head.weight = self.embed.weight
        D = s["C"] // s["H"]
        angle = torch.outer(torch.arange(s["T"]), 10000.0 ** (-torch.arange(0, D, 2) / D))
        self.register_buffer("cos", torch.cat([angle.cos()] * 2, -1))
        self.register_buffer("sin", torch.cat([angle.sin()] * 2, -1))

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        cos, sin = (y[:x.shape[-2]].to(x.dtype) for y in (self.cos, self.sin))
        return x * cos + torch.cat([-b, a], -1) * sin

    def forward(self, token, target):
        x = self.embed(token)
        if self.positions is not None:
            x = x + self.positions.weight[:x.shape[1]]
        for block in self.blocks:
            x = block(x, None if self.family == "gpt2" else self.rotate)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), target.flatten())


def their_step(family, s, precision):
    torch.manual_seed(1)
    model = Model(family, s)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    token, target = torch.randint(s["V"], (2, s["B"], s["T"]))

    def step(tokens=s["T"]):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = model(token[:, :tokens], target[:, :tokens])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def our_step(family, s, precision, threads, repeats):
    words = {"family": family, "hidden-size": s["C"], "num-layers": s["L"], "num-attention-heads": s["H"], "vocab-size": s["V"],
             "ffn-hidden-size": s["F"], "seq-length": s["T"], "micro-batch-size": s["B"], "precision": precision,
             "repeats": repeats}
    if s["Hkv"] != s["H"]:
        words["num-query-groups"] = s["Hkv"]
    arguments = [x for k, v in words.items() for x in (f"--{k}", str(v))]
    return peers.weft(["step", *arguments], threads)[0]


def compare(family, precision, o):
    s, ours = SHAPES[family], []

    def our_seconds():
        ours.append(our_step(family, s, precision, o.threads, o.repeats))
        return ours[-1]["seconds"]

    step = their_step(family, s, precision)
    long = s["T"] >= 4096
    if long:  # a short step does what only the first one does
        step(s["T"] // 32)
    a, b, spread = peers.in_turn(our_seconds, lambda: peers.timed(step, 1, 1, warm=not long), o.rounds)
    parts = ours[-1]["parts"]
    outside = 1 - (parts["products"] + parts["attention"]) / ours[-1]["seconds"]
    products = ours[-1]["products_alone"] / parts["products"]
    print(f"| {family}, B{s['B']} T{s['T']} | {precision} | {a * 1e3:.0f} | {b * 1e3:.0f} | {b / a:.3f} | {100 * spread:.1f} "
          f"| {100 * outside:.1f} | {products:.3f} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("families", nargs="*", default=list(SHAPES))
    p.add_argument("--threads", type=peers.count, default=2)
    p.add_argument("--rounds", type=peers.count, default=2)
    p.add_argument("--repeats", type=int, default=0, help="steps of Weft a round (0: by the time that they take)")
    p.add_argument("--precision", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    o = p.parse_args()
    unknown = [f for f in o.families if f not in SHAPES]
    if unknown:
        p.error(f"no model '{unknown[0]}'; there is: {', '.join(SHAPES)}")
    torch.set_num_threads(o.threads)
    print(f"PyTorch {torch.__version__}, {o.threads} thread(s)\n")
    print("| model | precision | Weft ms | PyTorch ms | ratio | spread % | outside % | products |\n|" + 8 * "---|")
    for family in o.families:
        for precision in o.precision:
            compare(family, precision, o)


main()
