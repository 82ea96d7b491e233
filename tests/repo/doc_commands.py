#!/usr/bin/env python3
"""Runs the commands that README and docs show: doc_commands.py quick|all.

Commands are the lines of code blocks (with "$ " where a block shows output, too) and, in running text and tables, whole
calls in backticks: a program, a flag or an argument, and no placeholder. Each is run once, in the order of the files, in
a copy of the tree made of links, and must end with 0 or with the code N of a remark "# exit N" behind it.

What would take too long runs smaller (SUBSTITUTIONS), what needs something that is not here is skipped and counted
(NEEDS), and what is not run at all stands in EXCEPTIONS, with the reason. A row that fits no command fails, too.
`quick` runs those of README.md and those that only print (QUICK); `all` runs all of them.
"""
import os, pathlib, re, shlex, shutil, subprocess, sys, tempfile, time

SECONDS = 300  # of one command

# What a reader would fill in, and sizes: (in the command, instead of it, why). Regular expressions.
SUBSTITUTIONS = [
    (r"^weft(?= )", "build/weft", "an installed weft is this one"),
    (r"\bCASE\.safetensors|(?<= )CASE(?= )", "tests/golden/models/llama/case.safetensors", "any case"),
    (r"\bMODEL_DIR\b", "tests/golden/models/llama", "its model"),
    (r"--data TEXT\b", "--data text.txt", "any text"),
    (r" …$", " --steps 1 --seq-length 128 --name more --overwrite", "more options"),
    (r"T=1048576 (.*)docs=600000,1,300000,", r"T=4096 \1docs=2000,1,1000,", "minutes"),
    (r"\bT=32768\b", "T=2048", "a quarter of a minute"),
    (r"\bT=?16K\b", lambda m: m[0].replace("16K", "1K"), "a minute"),
    (r"--seq-length 1048576\b", "--seq-length 2048", "hours, and 14 GiB"),
    (r"(bench gemm .*--seq-length) 2048\b", r"\1 128", "half a minute"),
    (r"(bench step .*--seq-length) 4096\b", r"\1 256", "a minute"),
    (r"(bench cp .*)\bT=4096\b", r"\1T=512", "half a minute"),
    (r"(bench step .*)--num-layers 12\b(.*)--seq-length 8192\b", r"\1--num-layers 1\2--seq-length 256", "minutes"),
    (r"(bench step .*--vocab-size 50257 --seq-length) 2K\b", r"\1 128", "a minute"),
    (r"^(build/weft bench (?:step|gemm|attention|cp|comm) (?!.*--repeats|.*--sweep).*)", r"\1 --repeats 1",
     "as often as it takes to be sure"),
    (r"--steps 2000 --save-interval 100\b", "--steps 3 --save-interval 1", "hours"),
    (r"^ctest --test-dir build\b", "ctest -N --test-dir build", "the tests themselves: listed only"),
    (r"slot:PE=4\b", "slot:PE=1", "a machine of eight cores"),
    (r"-bind-to core:4\b", "-bind-to none", "the same"),
    (r"^mpirun (?=.*-bind-to )", "mpirun.mpich ", "the options of MPICH"),
]

# Not run: (regular expression of the whole command, why).
EXCEPTIONS = [
    (r"git clone .*", "needs the network"),
    (r"make( .*)?", "builds and tests the tree that this test is part of; cli.make and repo.setup test the Makefile"),
    (r"for i in .* ctest .*", "runs the suite that this test is part of, three times"),
    (r"tools/mutants\.sh .*", "a build of its own; make mutants"),
    (r"build/weft train (?!.*(--data|\.yaml)).*", "an option in a sentence, without data"),
    (r"bench/predict\.py .*", "half an hour; cli.predict_long runs it in small"),
    (r"python3 bench/layouts\.py .*", "tables of measurements, minutes each; cli.marks tests what reads them"),
]

# Skipped where this is missing: (regular expression in the command, what it needs, whether that is here).
NEEDS = [
    (r"\bmpirun\.mpich\b", "MPICH and its plugin", lambda: shutil.which("mpirun.mpich") and plugin("mpich")),
    (r"\bmpirun(?= )", "Open MPI and its plugin", lambda: shutil.which("mpirun.openmpi") and plugin("openmpi")),
    (r"^bench/peers/", "PyTorch (PYTHON=/path/to/python)", lambda: runs([PYTHON, "-c", "import torch"])),
    (r"--isa amx\b", "AMX", lambda: "amx yes" in output([WEFT, "info"])),
    (r"--isa avx512\b", "AVX-512", lambda: re.search("avx512 yes", output([WEFT, "info"]))),
    (r"^cc ", "a C compiler", lambda: shutil.which("cc")),
    (r"^ctest ", "ctest", lambda: shutil.which("ctest")),
]

# Of the small test: README.md's, and what only prints.
QUICK = [r"^build/weft (info|show|sim) "]

SRC, BUILD = pathlib.Path(os.environ["WEFT_SRC"]), pathlib.Path(os.environ["WEFT_BUILD"])
WEFT, PYTHON = os.environ["WEFT"], os.environ.get("PYTHON", "python3")
PROGRAM = r"(?:[A-Z][A-Z_0-9]*=\S+ )*(?:(?:build/)?weft|mpirun|make|cmp|ctest|cc|git|for|python3|tools/\S+\.sh|" \
          r"build/tests/\S+|bench/\S+\.py)(?= )"
USAGE = r" \[[A-Z-]|\w\|\w"  # a form: weft show [CONFIG.yaml] ..., --target megatron|torchtitan
PLACEHOLDER = r"(^|[ =])[A-Z][A-Z_]*(?=[ .]|$)|…|\.\.\.|\[|<|COMMAND|\bNAME\b"


def plugin(mpi):
    return (BUILD / f"libweft_mpi_{mpi}.so").exists()


def runs(words):
    return subprocess.run(words, capture_output=True).returncode == 0


def output(words):
    return subprocess.run(words, capture_output=True, text=True).stdout


class Command:
    def __init__(self, file, line, text):
        self.where, self.file = f"{file}:{line}", file
        remark = re.search(r"\s#.*$", text)
        code = re.search(r"(?:exit|退出码) (\d+)", remark[0]) if remark else None
        self.code = int(code[1]) if code else 0
        text = text[:remark.start()] if remark else text
        self.text = re.split(r" {2,}", text.strip())[0]  # what follows is an explanation
        self.run = self.text
        for row, (old, new, _) in enumerate(SUBSTITUTIONS):
            self.run, n = re.subn(old, new, self.run)
            if n:
                USED.add(("SUBSTITUTIONS", row))

    def find(self, name, table, match):
        for row, (pattern, *_) in enumerate(table):
            if match(pattern, self.run):
                USED.add((name, row))
                return table[row]
        return None


USED = set()  # rows of the tables that some command fits


def blocks(text):
    """(first line, lines) of each code block, and the text without them."""
    found, rest, block, first, fence = [], [], [], 0, False
    for number, line in enumerate(text.split("\n") + [""], 1):
        inside = fence or line.startswith("    ")
        if line.startswith("```"):
            fence = not fence
            inside = False
        if inside:
            first = first or number
            block.append(line.strip() if fence else line[4:])
        elif block and not line.strip() and not fence:
            block.append("")  # a block may have empty lines
        elif block:
            found.append((first, block))
            block, first = [], 0
        rest.append("" if inside or line.startswith("```") else line)
    return found + ([(first, block)] if block else []), "\n".join(rest)


def of_block(file, first, lines):
    shows_output = any(line.startswith("$ ") for line in lines)
    number = 0
    while number < len(lines):
        line, at = lines[number], first + number
        while line.endswith("\\") and number + 1 < len(lines):
            number += 1
            line = line[:-1].rstrip() + " " + lines[number].strip()
        number += 1
        if shows_output and not line.startswith("$ "):
            continue
        line = line.removeprefix("$ ")
        if (shows_output or re.match(PROGRAM, line)) and not re.search(USAGE, line):
            yield Command(file, at, line)


def of_text(file, text):
    """Whole calls in backticks: with a flag or a quoted argument, and nothing to fill in."""
    for m in re.finditer(r"`([^`]+)`", text):
        call = re.sub(r"\s+", " ", m[1])
        form = re.search(PLACEHOLDER, call) or re.search(USAGE, call)
        whole = re.match(PROGRAM, call) and re.search(r" -|[\"']|\.py ", call) and not form
        if whole and (not call.startswith("mpirun") or "weft" in call) and not call.startswith("make"):
            yield Command(file, text.count("\n", 0, m.start()) + 1, call)


def collect():
    files = ["README.md", "README.zh.md", "CONTRIBUTING.md"]
    files += sorted(str(p.relative_to(SRC)) for p in (SRC / "docs").rglob("*.md"))
    for file in files:
        found, rest = blocks((SRC / file).read_text(encoding="utf-8"))
        for first, lines in found:
            yield from of_block(file, first, lines)
        yield from of_text(file, rest)


def make_tree(top):
    """The tree as after `make`, by links, and the files that commands name and that are somebody's own."""
    for entry in SRC.iterdir():
        if entry.name not in ("build", "runs") and not entry.name.startswith("build-"):
            (top / entry.name).symlink_to(entry)
    (top / "build").mkdir()
    for entry in [pathlib.Path(WEFT), BUILD / "tests", *BUILD.glob("libweft*"), *BUILD.glob("*.cmake"),
                  *BUILD.glob("example_*")]:
        if entry.exists():
            (top / "build" / entry.name).symlink_to(entry.resolve())
    text = "\n".join(p.read_text(encoding="utf-8") for p in sorted((SRC / "docs").rglob("*.md")))
    for name in ("text.txt", "build/bible.txt"):
        (top / name).write_text(text * 2, encoding="utf-8")
    (top / "run.yaml").write_text("data: {path: text.txt}\ntrain: {steps: 2, seq_length: 256}\n"
                                  "model: {hidden_size: 64, layers: 1}\nrun: {name: cluster, overwrite: true}\n")
    shutil.copy(SRC / "examples/attention.c", top / "my.c")


def execute(command, top):
    env = dict(os.environ, PATH=f"{top}/build:{os.environ['PATH']}",
               OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_rmaps_base_oversubscribe="1", GOMP_SPINCOUNT="2000")  # root, few cores, as the pages say
    words = re.sub(r"^(bench/peers/)", shlex.quote(PYTHON) + r" \1", command.run)
    start = time.monotonic()
    try:
        done = subprocess.run(["bash", "-c", words], cwd=top, env=env, stdin=subprocess.DEVNULL, timeout=SECONDS,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        code, said = done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        code, said = -1, f"did not end within {SECONDS} s"
    return code, said, time.monotonic() - start


def check(command, top, counts):
    code, said, seconds = execute(command, top)
    counts["run"] += 1
    if code == command.code:
        print(f"ok       {seconds:5.1f} s  {command.where}  {command.text}", flush=True)
        return True
    print(f"FAILED   {command.where}  {command.text}")
    print(f"    exit {code}, the page says {command.code} (a remark '# exit N' says otherwise); run as: {command.run}")
    print("    " + "\n    ".join(said.strip().split("\n")[-5:]))
    return False


def waits_for_a_file(command, top):
    """Whether it reads what a command left to the long test would have written."""
    words = command.run.replace('"', "").replace("'", "").split()
    return any(re.search(r"\.(json|jsonl|yaml|safetensors)$", word) and before not in ("--out", "--trace", "--svg")
               and not (top / word).exists() for before, word in zip(words, words[1:]))


def judge(command, mode, top, counts, seen):
    """True when the command is as it should be."""
    quick = command.file == "README.md" or (any(re.search(p, command.run) for p in QUICK)
                                            and not waits_for_a_file(command, top))
    needs = command.find("NEEDS", NEEDS, re.search)
    if excepted := command.find("EXCEPTIONS", EXCEPTIONS, re.fullmatch):
        counts["excepted"] += 1
        return True
    if command.run in seen:
        return True
    seen.add(command.run)
    if mode == "quick" and not quick:
        counts["left to the long test"] += 1
        return True
    if needs and not needs[2]():
        counts["skipped"] += 1
        print(f"skipped  {command.where}  {command.text}: needs {needs[1]}")
        return True
    return check(command, top, counts)


def main(mode):
    counts = {"run": 0, "skipped": 0, "excepted": 0, "left to the long test": 0}
    with tempfile.TemporaryDirectory(prefix="weft-docs-") as folder:
        top, seen = pathlib.Path(folder), set()
        make_tree(top)
        good = all([judge(command, mode, top, counts, seen) for command in collect()])
    for name, table in (("SUBSTITUTIONS", SUBSTITUTIONS), ("EXCEPTIONS", EXCEPTIONS), ("NEEDS", NEEDS)):
        for row, (pattern, *_) in enumerate(table):
            if (name, row) not in USED:
                print(f"FAILED   {name}: no command fits {pattern!r}; take the row out")
                good = False
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    if counts["run"] < 10:
        sys.exit("too few commands were found")
    sys.exit(0 if good else 1)


main(sys.argv[1])
