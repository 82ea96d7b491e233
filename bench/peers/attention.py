#!/usr/bin/env python3
"""Attention forward and backward against PyTorch: scaled_dot_product_attention, and scores that are materialised.

    bench/peers/attention.py [--only sdpa|materialised] [--tokens 8192] [--heads 4] [--size 64] [--threads 1] [--rounds 3]

Both compute the same problem (causal, one sequence) on the same number of threads, in turn. A ratio above 1: Weft is
faster. Memory is what a process adds to its resident set at its peak; Weft's includes the whole program.
"""

import argparse
import subprocess
import sys

import peers

torch = peers.torch_or_skip()


def tensors(o, dtype):
    torch.manual_seed(1)
    make = lambda: torch.randn(1, o.heads, o.tokens, o.size, dtype=dtype).requires_grad_()
    return make(), make(), make(), torch.randn(1, o.heads, o.tokens, o.size, dtype=dtype)


def sdpa(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def materialised(q, k, v):
    T = q.shape[-2]
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def step(attention, q, k, v, do):
    q.grad = k.grad = v.grad = None
    attention(q, k, v).backward(do)


def ours(o, precision):
    case = f"{precision} B1 H{o.heads} D{o.size} T{o.tokens} causal fwd+bwd"
    return peers.weft(["attention", case, "--repeats", "1"], o.threads)[0]["seconds"]


def compare(o, name, attention, precision, dtype):
    x = tensors(o, dtype)
    theirs = lambda: peers.timed(lambda: step(attention, *x), 0, 1)
    a, b, spread = peers.in_turn(lambda: ours(o, precision), theirs, o.rounds)
    print(f"| {name} | {precision} | {a * 1e3:.1f} | {b * 1e3:.1f} | {b / a:.3f} | {100 * spread:.1f} |", flush=True)


def added_memory(o):
    """In a process of its own: a peak never goes down."""
    x = tensors(o, torch.float32)
    before = peers.resident_bytes()
    step(materialised, *x)
    print(peers.peak_bytes() - before)


def memory(o):
    command = [sys.executable, __file__, "--only", "memory", "--tokens", str(o.tokens), "--heads", str(o.heads),
               "--size", str(o.size)]
    theirs = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    case = f"fp32 B1 H{o.heads} D{o.size} T{o.tokens} causal fwd+bwd"
    used = peers.weft(["attention", case, "--repeats", "1"], o.threads)[0]["resident_peak"]
    print(f"| materialised, peak memory | fp32 | {used / 2**20:.1f} MiB | {theirs / 2**20:.1f} MiB | {theirs / used:.1f} | 0 |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("tokens", 8192), ("heads", 4), ("size", 64), ("threads", 1), ("rounds", 3)):
        p.add_argument(f"--{name}", type=peers.count, default=value)
    p.add_argument("--only", choices=["sdpa", "materialised", "memory"], help="memory: what materialising adds, in bytes")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    if o.only == "memory":
        return added_memory(o)
    print(f"PyTorch {torch.__version__}, {o.threads} thread(s), {o.heads} heads of {o.size}, {o.tokens} tokens, causal,")
    print("forward and backward\n\n| against | precision | Weft ms | PyTorch ms | ratio | spread % |\n|---|---|---|---|---|---|")
    if o.only != "materialised":
        compare(o, "scaled_dot_product_attention", sdpa, "fp32", torch.float32)
        compare(o, "scaled_dot_product_attention", sdpa, "bf16", torch.bfloat16)
    if o.only != "sdpa":
        compare(o, "materialised", materialised, "fp32", torch.float32)
        memory(o)


main()
