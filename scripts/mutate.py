#!/usr/bin/env python3
"""Change one small thing in the code that uniqueness rests on, and see whether a test fails; again and again.

    scripts/mutate.py --mutants 100 --seed 1     # the first 100 changes that seed 1 draws
    scripts/mutate.py --seed 1 --only 17         # one of them, with what the last tests print

Works on copies in a temporary directory; change no file of the checkout meanwhile. After a change, it runs the tests of
STAGES, the quick ones first, until one fails. What survived is printed as {was → is}: either it changes nothing that
matters, or a test is missing. Takes a minute or two for each change. Needs the group dev and a C compiler. Exit code 1
if a change survived.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import queue
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import lupa.lua51

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.sanitize import ROOT, compile_extension

FILES = (
    *("snowflake/**/*.py", "snowflake/protocol/lua/*.lua", "snowflake/ids/_fastpath.c"),
    *("servers/lua/*.lua", "servers/runner.py"),
    *("process/fork.py", "process/names.py", "process/clock.py", "core/lanes.py", "core/layout.py"),
)
# texts and counters for people
SURFACE = {"__init__.py"}
# changes of each kind in 100
SHARES = {".py": 55, ".lua": 33, ".c": 12}

# most processor time of each process of a stage, so that an endless loop is noticed
LIMIT_CPU_S = 60
# most time of a stage: a busy machine needs several times as much, and a test that waits for ever does not end
LIMIT_S = 600
PYTEST = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=0"]
FOLDERS = [f"tests/{name}" for name in ("snowflake", "process", "servers", "core")]
GENERATOR, IDS, CRASHES = (f"tests/snowflake/{name}" for name in ("generator", "ids", "crash"))
RULES = [f"tests/lab/simulation/test_{name}.py" for name in ("rules",)]
# arguments of Python
STAGES = [
    [*PYTEST, *FOLDERS, "--quick"],
    # tests that switch a rule off search for its text, and fail after any change of that
    [*PYTEST, *RULES, "-k", "not without_its_rule and not is_needed"],
    ["scripts/soak.py", "--schedules", "60", "--jobs", "1"],
]
LAST_STAGE = {
    ".py": [*PYTEST, f"{IDS}/test_implementations.py", CRASHES, "-k", "not [redis"],
    ".lua": [*PYTEST, "tests/snowflake/protocol/test_broken_pools.py"],
    ".c": [
        *PYTEST,
        f"{IDS}/test_extension.py",
        f"{GENERATOR}/test_threads_and_signals.py",
        f"{GENERATOR}/test_forks.py",
    ],
}

STRINGS = r"'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\""
# what is not changed
MASKS = {
    ".py": rf'#[^\n]*|"""[\s\S]*?"""|{STRINGS}|\n( +)def __(?:repr|str|reduce)__[\s\S]*?(?=\n\1\S|\n\S)|from .*',
    ".lua": rf"--[^\n]*|{STRINGS}",
    ".c": rf"/\*[\s\S]*?\*/|//[^\n]*|\n#[^\n]*|{STRINGS}",
}
# lines for people, and of the memory of objects
QUIET = r"\b(?:log\.|event\w*\(|count\(|later\[|assert |Py_\w*REF|Py_CLEAR|Py_VISIT|PyErr_|TYPE_CHECKING|__slots__)"
WORDS = "< <=, > >=, + -, * //, and or, && ||, << >>, == ~=, == !=, any all, min max, True False, true false, raise _="
REMOVED = [
    *[r"\bnot ", r"!(?=[\w(])", r", \w+=[\w.]+(?=[,)])", r"\bm(?:in|ax)\([\w.]+(, [^,()]+)(?=\))"],
    *[r"(?<=then )return .*(?= end$)", r"^ +(return .*)", r"^ +([\w.]+\(.*\))(?=;?$)", r"^ +((?:break|continue)\b)"],
    r"^ +([\w.\[\]>-]+[.>\[][\w.\[\]' ]* [+-]?= .*)",
]
CONDITIONS = {".py": r"(?<=if )(.+)(?=:$)", ".lua": r"(?<=if )(.+)(?= then)", ".c": r"(?<=if )(\(.+\))(?= \{|$)"}
NOTHING = {".py": "pass", ".lua": "", ".c": ";"}


class Change(NamedTuple):
    """Put *new* in the place of source[start:end] in a file."""

    path: str
    source: str
    start: int
    end: int
    new: str

    def changed(self, new: str = "") -> str:
        return self.source[: self.start] + (new or self.new) + self.source[self.end :]

    def __str__(self) -> str:
        line = self.source.count("\n", 0, self.start)
        both = f"{{{self.source[self.start : self.end]} → {self.new}}}"
        return f"{self.path}:{line + 1}  {self.changed(both).splitlines()[line].strip()}"


def changes_of(line: str, suffix: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, new) for a line; "\\0" in new stands for what was there."""
    pairs = [pair.split() for pair in WORDS.split(", ")]
    for was, now in [*pairs, *(reversed(pair) for pair in pairs)]:
        for found in re.finditer(rf"(?<![^\s(.]){re.escape(was)}(?![^\s(,):;])", line):
            yield *found.span(), now
    for pattern in REMOVED:
        for found in re.finditer(pattern, line):
            if all(found[0].count(opening) == found[0].count(closing) for opening, closing in ("()", "[]", "{}")):
                yield *found.span(found.lastindex or 0), NOTHING[suffix] if pattern.startswith("^") else ""
    for found in re.finditer(r"(?<![\w.])(?<!KEYS\[)(?<!ARGV\[)\d[\d_]*(?![\w.])", line):
        yield from ((*found.span(), str(int(found[0]) + step)) for step in (-1, 1))
    for found in re.finditer(CONDITIONS[suffix], line):
        yield *found.span(), "(!\0)" if suffix == ".c" else "not (\0)"


def drawn(seed: int) -> Iterator[Change]:
    """Yield the changes of a seed, in the same order for the same code."""
    left: dict[str, list[Change]] = {suffix: [] for suffix in SHARES}
    for path in sorted({path for pattern in FILES for path in ROOT.glob(f"snowredis/{pattern}")}):
        if path.name not in SURFACE:
            name, source = str(path.relative_to(ROOT)), path.read_text()
            at, masked = 0, re.sub(MASKS[path.suffix], lambda found: re.sub(r"[^\n]", "_", found[0]), source)
            for line in masked.splitlines():
                for start, end, text in () if re.search(QUIET, line) else changes_of(line, path.suffix):
                    new = text.replace("\0", source[at + start : at + end])
                    left[path.suffix].append(Change(name, source, at + start, at + end, new))
                at += len(line) + 1
    chance = random.Random(seed)
    for changes in left.values():
        chance.shuffle(changes)
    while any(left.values()):
        suffix = chance.choices(list(SHARES), list(SHARES.values()))[0]
        if left[suffix]:
            yield left[suffix].pop()


def make_copy(copy: Path) -> Path:
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.so", "build"))
    build(copy)
    return copy


def build(copy: Path) -> bytes:
    """Return the extension, built from the C file of the copy; nothing if that is not valid C."""
    with contextlib.suppress(subprocess.CalledProcessError):
        return compile_extension(copy, "cc", "-O1", "-Werror=return-type", stderr=subprocess.DEVNULL).read_bytes()
    return b""


def is_change(change: Change, copy: Path, extension: bytes) -> bool:
    """Return whether what is changed is valid, and differs by more than its text."""
    if change.path.endswith(".c"):
        return build(copy) not in (b"", extension)
    if change.path.endswith(".lua"):
        return not isinstance(lupa.lua51.LuaRuntime().globals().loadstring(change.changed()), tuple)
    with contextlib.suppress(SyntaxError):
        return ast.dump(ast.parse(change.changed())) != ast.dump(ast.parse(change.source))
    return False


def fails(copy: Path, stage: list[str]) -> str:
    """Return what run() does, but run a test that fails once more: on a busy machine, one with a server may fail so."""
    failed = run(copy, stage)
    return run(copy, [*PYTEST, failed]) if "::" in failed else failed


def run(copy: Path, arguments: list[str]) -> str:
    """Run Python in the copy; return "" if all is well, "timed out", a test that failed, or another end."""
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    with (copy / "log").open("w+") as log:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=copy, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        resource.prlimit(child.pid, resource.RLIMIT_CPU, (LIMIT_CPU_S, LIMIT_CPU_S))
        try:
            code = child.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            return "timed out"
        finally:
            # with the servers that it started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        log.seek(0)
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", log.read(), re.MULTILINE)
    return "" if code == 0 else failed[1] if failed else f"exit code {code}"


def judge(change: Change, copy: Path) -> str:
    """Return what failed after the change, "" for nothing."""
    suffix = Path(change.path).suffix
    extension = build(copy) if suffix == ".c" else b""
    (copy / change.path).write_text(change.changed())
    failed = "" if is_change(change, copy, extension) else "invalid"
    for stage in [*STAGES, *([LAST_STAGE[suffix]] if suffix in LAST_STAGE else [])]:
        failed = failed or fails(copy, stage)
    (copy / change.path).write_text(change.source)
    if suffix == ".c":
        build(copy)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=100, metavar="N", help="valid or not")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="these, with what their last tests print")
    options = parser.parse_args()
    numbers = options.only or range(options.mutants)
    changes = list(islice(drawn(options.seed), max(numbers) + 1))
    ends, copies, cores = Counter[str](), queue.SimpleQueue[Path](), os.cpu_count() or 1

    def judge_in_a_copy(n: int) -> tuple[str, str]:
        copy = copies.get()
        failed = judge(changes[n], copy)
        output = (copy / "log").read_text() if options.only else ""
        copies.put(copy)
        return failed, output

    with tempfile.TemporaryDirectory(prefix="mutate-") as directory, ThreadPoolExecutor(cores) as pool:
        for core in range(cores):
            copies.put(copy := make_copy(Path(directory) / str(core)))
        if failed := next(filter(None, (fails(copy, stage) for stage in [*STAGES, *LAST_STAGE.values()])), ""):
            raise SystemExit(f"without a change: {failed}\n{(copy / 'log').read_text()}")
        waiting = {pool.submit(judge_in_a_copy, n): n for n in numbers}
        for future in as_completed(waiting):
            n, (failed, output) = waiting[future], future.result()
            end = failed if failed in ("invalid", "timed out") else "killed" if failed else "SURVIVED"
            ends[end] += 1
            print(f"{n} {end}  {changes[n]}", f"\n    {failed}" * (end == "killed"), output, flush=True)
    tried = max(1, ends["killed"] + ends["SURVIVED"])
    print(f"seed {options.seed}: {dict(ends)}, {ends['killed'] / tried:.0%} killed")
    return bool(ends["SURVIVED"])


if __name__ == "__main__":
    sys.exit(main())
