"""What the scripts of this folder share: running `weft bench`, what this machine is, medians.

Python's standard library only. WEFT is the program (default: build/weft).
"""

import json
import os
import re
import statistics
import subprocess
import sys


def program():
    return os.environ.get("WEFT", "build/weft")


def run(command):
    """The lines of what a program prints; ends this one when it fails."""
    command = [str(x) for x in command]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}; make builds Weft, and WEFT=PROGRAM names another one")
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        sys.exit(f"{' '.join(command)}: {' '.join(last) or f'status {done.returncode}'}")
    return done.stdout.splitlines()


def weft(arguments, threads):
    """One dictionary per result of `weft bench`."""
    lines = run([program(), "bench", *arguments, "--format", "jsonl", "--threads", threads])
    return [json.loads(line) for line in lines if line.startswith("{")]


def records(path, keys):
    """The lines of a file, a JSON object each that has these keys; ends the program at the first that is none."""
    rows = []
    with open(path) as f:
        for number, line in enumerate(f, 1):
            try:
                rows += [json.loads(line)] if line.strip() else []
                missing = [k for k in keys if line.strip() and k not in rows[-1]]
            except (ValueError, TypeError):
                missing = ["JSON"]
            if missing:
                sys.exit(f"{path}, line {number}: damaged (no {missing[0]}); take the line out, or measure again")
    return rows


def isas():
    """The instruction sets that this machine and this program have, lowest first."""
    line = next((x for x in run([program(), "info"]) if x.startswith("isa ")), None)
    if line is None:
        sys.exit(f"{program()} info: no line of instruction sets; WEFT=PROGRAM names Weft")
    return re.findall(r"(\w+) yes", line)


def cpu():
    """Name and numbers of the processor: what figures depend on."""
    fields = {}
    with open("/proc/cpuinfo") as f:
        for line in f:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    get = lambda key: fields.get(key, "?")
    return f"{get('model name')} ({get('vendor_id')} {get('cpu family')}-{get('model')}-{get('stepping')})"


def spread(values):
    """Of a few values: what lies between the least and the greatest, relative to their median."""
    return (max(values) - min(values)) / statistics.median(values) if len(values) > 1 else 0.0
