"""Hugging Face's transformers and safetensors as judges of the files that Weft reads and writes.

For every family, and every way in which a config.json changes the mathematics:
  read      a directory that save_pretrained wrote (random weights; one file, shards, bfloat16) gives in `weft verify` the
            log-probabilities of the whole vocabulary and the gradients that transformers computes from it
  written   a checkpoint of `weft train` loads in transformers without a warning, a missing or an unexpected key, and
            gives there what it gives in Weft; so do the shards of `weft checkpoint reshard`
  files     safetensors' own reader reads every file that Weft wrote
Both sides compute in float32, so they differ by rounding only: limits 1e-5 for log-probabilities (relative above 1),
2e-5 of a tensor's largest value for gradients. Run by judge.sh with WEFT, the program, in the environment.
"""
import glob
import logging
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import safetensors
import safetensors.numpy
import torch
import transformers
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

WEFT = os.environ["WEFT"]
V, T = 61, 23  # the sequence is longer than the windows and than the original lengths of the scalings below
SIZES = dict(vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.2, bos_token_id=1, eos_token_id=2)
GPT2 = dict(vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0, initializer_range=0.2, bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
MODELS = {
    "llama": LlamaConfig(**SIZES),
    "llama tied, biases": LlamaConfig(**SIZES, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    "llama head size": LlamaConfig(**{**SIZES, "head_dim": 20, "num_key_value_heads": 1}),
    "llama base": LlamaConfig(**SIZES, rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
    "llama llama3 rope": LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "llama yarn": LlamaConfig(**SIZES, rope_parameters=YARN),
    "llama yarn, tied": LlamaConfig(**SIZES, tie_word_embeddings=True,
                                    rope_parameters=dict(YARN, attention_factor=1.3, beta_fast=16.0, beta_slow=2.0)),
    "llama linear": LlamaConfig(**SIZES, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5)),
    "qwen2": Qwen2Config(**SIZES),
    "qwen2 tied, windows from a layer on": Qwen2Config(**SIZES, tie_word_embeddings=True, use_sliding_window=True,
                                                       sliding_window=5, max_window_layers=1),
    "qwen2 yarn": Qwen2Config(**SIZES, rope_parameters=YARN),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "qwen3 tied, window": Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True, use_sliding_window=True,
                                      sliding_window=4, max_window_layers=0, attention_bias=True),
    "mistral": MistralConfig(**SIZES, sliding_window=None),
    "mistral tied, window": MistralConfig(**SIZES, tie_word_embeddings=True, sliding_window=7),
    "gpt2": GPT2Config(**GPT2),
    "gpt2 untied": GPT2Config(**{**GPT2, "n_inner": 40}, tie_word_embeddings=False),
}

WORDS_LIMIT, GRADS_LIMIT = 1e-5, 2e-5
failures = 0


def check(good, what):
    global failures
    if not good:
        failures += 1
        print(f"FAILED: {what}", flush=True)


def weft(*words):
    done = subprocess.run([WEFT, *map(str, words)], capture_output=True, text=True, timeout=300)
    check(done.returncode == 0, f"weft {' '.join(map(str, words))}: exit {done.returncode}: {done.stderr[-400:]}")
    return done


class Heard(logging.Handler):
    """What transformers and Python's warnings say while a model is loaded."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def load(folder, what):
    heard = Heard()
    logger = transformers.utils.logging.get_logger("transformers")
    transformers.utils.logging.set_verbosity_warning()
    logger.addHandler(heard)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                           output_loading_info=True)
    logger.removeHandler(heard)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        check(not info.get(key), f"{what}: {key}: {info.get(key)}")
    heard.lines += [str(w.message) for w in caught]
    check(not heard.lines, f"{what}: warnings: {heard.lines}")
    return model.eval()


rng = np.random.default_rng(7)
TOKENS = rng.integers(0, V, (1, T))
BATCH, TARGETS = rng.integers(0, V, (3, T)), rng.integers(0, V, (3, T))
TARGETS[1, 5:9] = -100


def peer(model):
    """Log-probabilities [T, V] of TOKENS, and the gradients of the mean loss of BATCH."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(TOKENS)).logits[0].double()
    model.zero_grad()
    out = model(input_ids=torch.tensor(BATCH)).logits
    loss = torch.nn.functional.cross_entropy(out.reshape(-1, V), torch.tensor(TARGETS).reshape(-1), ignore_index=-100)
    loss.backward()
    grads = {name: p.grad.numpy() for name, p in model.named_parameters()}
    return torch.log_softmax(logits, -1).numpy(), grads


def ours(folder, tmp):
    """The same by `weft verify`: each word of the vocabulary in turn is the label of all positions."""
    words = dict(tokens=np.repeat(TOKENS, V, 0), targets=np.repeat(np.arange(V)[:, None], T, 1))
    out = []
    for name, case in (("words", words), ("batch", dict(tokens=BATCH, targets=TARGETS))):
        safetensors.numpy.save_file({k: v.astype(np.int64) for k, v in case.items()}, f"{tmp}/{name}.case")
        done = weft("verify", folder, f"{tmp}/{name}.case", "--threads", 1, "--out", f"{tmp}/{name}.out")
        check("not read" not in done.stderr, f"{folder}: {done.stderr}")
        out.append(safetensors.numpy.load_file(f"{tmp}/{name}.out"))
    grads = {k[5:]: v for k, v in out[1].items() if k.startswith("grad.")}
    return -out[0]["token_nll"].T, grads


def differences(a, b):
    """The largest of log-probabilities, relative above 1, and of gradients, relative to their tensor's largest value."""
    (p, dp), (q, dq) = a, b
    largest = {k: np.max(np.abs(g)) for k, g in dp.items()}
    grads = [np.max(np.abs(dp[k] - dq[k])) / largest[k] for k in dp.keys() & dq.keys()
             if largest[k] > 1e-6 * max(largest.values())]
    return np.max(np.abs(p - q) / np.maximum(1, np.abs(p))), max(grads)


def compare(model, folder, tmp, what):
    theirs, mine = peer(model), ours(folder, tmp)
    check(theirs[1].keys() == mine[1].keys(), f"{what}: gradients of other tensors: {theirs[1].keys() ^ mine[1].keys()}")
    words, grads = differences(theirs, mine)
    check(words <= WORDS_LIMIT, f"{what}: log-probabilities differ by {words:.2e}")
    check(grads <= GRADS_LIMIT, f"{what}: gradients differ by {grads:.2e}")
    print(f"{what:60} log-probabilities {words:.1e}  gradients {grads:.1e}", flush=True)
    return mine


def must_see(model, mine, what):
    """The judge can fail: one tensor in turn, wrong by a thousandth, is seen."""
    for name, p in model.named_parameters():
        kept = p.detach().clone()
        with torch.no_grad():
            p.mul_(1.001)
        words, grads = differences(peer(model), mine)
        check(words > WORDS_LIMIT or grads > GRADS_LIMIT, f"{what}: {name} wrong by 0.001 is not seen: {words} {grads}")
        with torch.no_grad():
            p.copy_(kept)


def read_all(folder, what):
    """safetensors' reader on every file; the number of files."""
    files = glob.glob(f"{folder}/**/*.safetensors", recursive=True)
    for path in files:
        with safetensors.safe_open(path, "np") as f:
            for key in f.keys():
                f.get_tensor(key) if f.get_slice(key).get_dtype() != "BF16" else f.get_slice(key).get_shape()
            check(path.endswith(".out") or f.metadata() == {"format": "pt"}, f"{what}: {path}: {f.metadata()}")
    check(files, f"{what}: no files in {folder}")
    return len(files)


def judge(name, config, tmp):
    torch.manual_seed(1)
    config._attn_implementation = "eager"
    made = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():  # biases and norms are 0 and 1 in a new model: errors in them would not be seen
        for key, p in made.named_parameters():
            if p.dim() == 1:
                p.add_(0.3 * torch.randn_like(p))
    made.save_pretrained(f"{tmp}/one")
    made.save_pretrained(f"{tmp}/shards", max_shard_size="20KB")
    check(len(glob.glob(f"{tmp}/shards/*.safetensors")) > 1, f"{name}: transformers wrote no shards")
    must_see(made.eval(), compare(made, f"{tmp}/one", tmp, f"{name}: read"), name)
    compare(made, f"{tmp}/shards", tmp, f"{name}: read, shards")
    made.to(torch.bfloat16).save_pretrained(f"{tmp}/bf16")
    compare(load(f"{tmp}/bf16", name), f"{tmp}/bf16", tmp, f"{name}: read, bfloat16")

    with open(f"{tmp}/data", "wb") as f:
        f.write(bytes(rng.integers(0, V, 4000, dtype=np.uint8)))
    weft("train", "--model", f"{tmp}/one", "--data", f"{tmp}/data", "--seq-length", 19, "--steps", 2, "--lr", "1e-2",
         "--global-batch-size", 2, "--eval-sequences", 0, "--threads", 1, "--runs", tmp, "--name", "run")
    step = f"{tmp}/run/step-00000002"
    compare(load(step, f"{name}: written"), step, tmp, f"{name}: written")
    weft("checkpoint", "reshard", step, f"{tmp}/resharded", "--save-shard-size", "20K")
    check(len(glob.glob(f"{tmp}/resharded/*.safetensors")) > 1, f"{name}: Weft wrote no shards")
    compare(load(f"{tmp}/resharded", f"{name}: resharded"), step, tmp, f"{name}: written, shards")
    weft("checkpoint", "reshard", step, f"{tmp}/narrow", "--save-dtype", "bf16")
    compare(load(f"{tmp}/narrow", f"{name}: bf16"), f"{tmp}/narrow", tmp, f"{name}: written, bfloat16")
    return sum(read_all(f"{tmp}/{d}", name) for d in ("run", "resharded", "narrow"))


def from_sizes(family, tmp, *words):
    """A model that Weft made from its options, with its own initial values."""
    with open(f"{tmp}/data", "wb") as f:
        f.write(bytes(rng.integers(0, V, 4000, dtype=np.uint8)))
    weft("train", "--family", family, "--vocab-size", V, "--hidden-size", 32, "--num-layers", 2, "--num-attention-heads",
         4, "--data", f"{tmp}/data", "--seq-length", 33, "--steps", 2, "--lr", "1e-1", "--warmup-steps", 0,
         "--global-batch-size", 2, "--eval-sequences", 0, "--threads", 1, "--runs", tmp, "--name", "run", *words)
    step, name = f"{tmp}/run/step-00000002", " ".join([family, "from options", *map(str, words)])
    compare(load(step, name), step, tmp, name)
    return read_all(f"{tmp}/run", name)


def main():
    print(f"transformers {transformers.__version__}, safetensors {safetensors.__version__}, torch {torch.__version__}")
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    only = sys.argv[1:]
    files = 0
    for name, config in MODELS.items():
        if only and not any(x in name for x in only):
            continue
        with tempfile.TemporaryDirectory(prefix="weft-judge-") as tmp:
            files += judge(name, config, tmp)
    for family, words in () if only else (("llama", ()), ("qwen2", ("--no-tied",)), ("qwen3", ("--num-query-groups", 2)),
                                          ("mistral", ("--sliding-window", 6)), ("gpt2", ())):
        with tempfile.TemporaryDirectory(prefix="weft-judge-") as tmp:
            files += from_sizes(family, tmp, *words)
    print(f"safetensors read {files} files that Weft wrote; {failures} failures")
    sys.exit(failures > 0)


main()
