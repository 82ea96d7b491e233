"""TensorBoard's own reader as judge of the event files that `weft train` writes.

A run is killed some steps after its last checkpoint, goes on from there, and does those steps again. The reader must
then show every step once, with the numbers of metrics.jsonl, for every rank. Run by judge.sh with WEFT, the program, in
the environment.
"""
import glob
import json
import math
import os
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing import event_accumulator, event_file_loader

WEFT = os.environ["WEFT"]
RANKS = 2
MODEL = ("--hidden-size 32 --num-layers 2 --num-attention-heads 4 --seq-length 64 --threads 1 "
         "--valid-fraction 0.2").split()


def train(folder, *words, env=None):
    words = [WEFT, "train", "--data", "data.txt", "--name", "r", "--tensorboard", "on", "--cp", str(RANKS),
             "--steps", "12", "--save-interval", "4", "--eval-interval", "4", *MODEL, *words]
    return subprocess.run(words, cwd=folder, env={**os.environ, **(env or {})}, capture_output=True, text=True)


def check(holds, what):
    print("holds  " if holds else "FAILED ", what)
    if not holds:
        check.failures += 1


check.failures = 0


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-6)  # a float of 32 bits


with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "data.txt"), "w") as f:
        f.writelines(f"line {i} of a text that a small model can learn: {i * i % 97}\n" for i in range(400))
    run = os.path.join(folder, "runs", "r")
    killed = train(folder, env={"WEFT_FAULT": "kill:rank=1:site=cp.step:hit=95"})
    steps = [json.loads(line)["step"] for line in open(os.path.join(run, "metrics.jsonl"))]
    check(killed.returncode == 3 and steps[-1] not in (4, 8, 12), f"the first run was killed after step {steps[-1]}")
    went_on = train(folder, "--resume", "auto")
    check(went_on.returncode == 0, "the second goes on " + went_on.stderr)
    lines = [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl"))]
    for rank in range(RANKS):
        where = os.path.join(run, "tb", f"rank-{rank:05d}")
        files = sorted(glob.glob(where + "/events.out.tfevents.*"))
        check(len(files) == 2, f"rank {rank}: two files")
        raw = [len(list(event_file_loader.EventFileLoader(f).Load())) for f in files]
        check(all(n > 1 for n in raw), f"rank {rank}: records {raw}")
        board = event_accumulator.EventAccumulator(where)
        board.Reload()
        tags = board.Tags()["scalars"]
        check("rank/exposed_share" in tags and ("train/loss" in tags) == (rank == 0), f"rank {rank}: {tags}")
        for tag in tags:
            seen = [e.step for e in board.Scalars(tag)]
            want = [4, 8, 12] if tag == "eval/loss" else list(range(1, 13))
            check(seen == want, f"rank {rank}: {tag} of every step once")
    board = event_accumulator.EventAccumulator(os.path.join(run, "tb", "rank-00000"))
    board.Reload()
    for tag, key in [("train/loss", "loss"), ("train/grad_norm", "grad_norm"), ("train/lr", "lr"),
                     ("train/tokens_per_second", "tokens_per_second"), ("rank/communication_share", "comm_share"),
                     ("rank/memory_bytes", "memory_bytes")]:
        values = [e.value for e in board.Scalars(tag)]
        check(all(near(a, b[key]) for a, b in zip(values, lines)), f"{tag} is {key} of metrics.jsonl")

print(f"{check.failures} failures")
sys.exit(check.failures > 0)
