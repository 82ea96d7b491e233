"""What the scripts of this folder share: running `weft bench`, what this machine is, medians.

Python's standard library only. WEFT is the program (default: build/weft).
"""

import json
import math
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


def number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)


def positive(x):
    return number(x) and x > 0


def text(x):
    return isinstance(x, str)


def misfit(row, fields):
    """What is wrong with a record: the first of its fields, name -> test, that is absent or fails; None: nothing is."""
    if not isinstance(row, dict):
        return "JSON object"
    return next((name for name, right in fields.items() if name not in row or not right(row[name])), None)


def records(path, fields):
    """The lines of a file, a JSON object each with these fields; ends the program at the first that is none."""
    rows = []
    with open(path, errors="replace") as f:
        for line_number, line in enumerate(f, 1):
            if not line.strip():
                continue
            try:
                rows.append(json.loads(line))
                wrong = misfit(rows[-1], fields)
            except ValueError:
                wrong = "JSON"
            if wrong:
                sys.exit(f"{path}, line {line_number}: damaged (no {wrong}); take the line out, or measure again")
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
