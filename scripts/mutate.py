#!/usr/bin/env python3
"""Change one small thing in the code that uniqueness rests on, and see whether a test fails; again and again.

    scripts/mutate.py --mutants 100 --seed 1     # the first 100 changes that seed 1 draws
    scripts/mutate.py --seed 1 --only 17         # one of them, with what the last tests print

Works on copies in a temporary directory; change no file of the checkout meanwhile. After a change of Python it runs
tests that reach the line, after one of C or Lua those of STAGES, the quick ones first, until one fails. What survived
is printed as {was → is}: either it changes nothing that matters, or a test is missing. Takes up to an hour, and minutes
more after the checkout was changed. Needs the group dev and a C compiler. Exit code 1 if a change survived.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import coverage
import fakeredis  # noqa: F401 - loaded once, and not for each change
import hypothesis
import lupa.lua51
import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = (
    *("snowflake/*.py", "snowflake/lua/*.lua", "snowflake/_fastpath.c", "servers/lua/*.lua", "servers/runner.py"),
    *("process/fork.py", "process/names.py", "process/clock.py", "core/lanes.py", "core/layout.py"),
)
# texts and counters for people
SURFACE = {"__init__.py", "codes.py", "counts.py"}
# of 100 changes
SHARES = {".py": 55, ".lua": 33, ".c": 12}

# tests that reach a changed line are taken for so long, by what they take without the change
BUDGET_S = 12.0
# of processor time; four times as much of time
LIMIT_S = 60
QUICK = ["-m", "not (server)"]
# tests that switch a rule off search for its text, and fail after any change of that
RULES_ON = ["-k", "not [memory and not without_its_rule and not is_needed"]
RULES = [f"tests/simulation/test_{name}.py" for name in ("rules", "registry", "layout_change")]
MEASURED = [
    *("tests/lease", "tests/snowflake", "tests/runtime", "tests/reclaim", *RULES, "tests/core/test_layout.py"),
    *("tests/core/test_fields.py", "tests/core/test_lanes.py", "-k", "not without_its_rule and not is_needed", *QUICK),
]
# arguments of pytest, or how many schedules of the simulation
STAGES: dict[str, list[list[str] | int]] = {
    ".py": [60, ["tests/registry", "tests/reclaim", "-k", "not [redis"]],
    ".lua": [
        ["tests/lease/test_memory_and_scripts.py", *RULES, *RULES_ON],
        *(["tests/lease", *QUICK, *RULES_ON], ["tests/snowflake", "tests/registry"], 60),
    ],
    ".c": [
        ["tests/runtime/test_implementations.py", "tests/runtime/test_extension.py"],
        *(["tests/runtime", *QUICK], [*RULES, *RULES_ON]),
        ["tests/runtime/test_threads_and_signals.py", "tests/runtime/test_forks.py"],
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

    def line(self) -> int:
        return self.source.count("\n", 0, self.start) + 1

    def changed(self, new: str = "") -> str:
        return self.source[: self.start] + (new or self.new) + self.source[self.end :]

    def __str__(self) -> str:
        both = f"{{{self.source[self.start : self.end]} → {self.new}}}"
        return f"{self.path}:{self.line()}  {self.changed(both).splitlines()[self.line() - 1].strip()}"


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


class Recorder:
    """A plugin of pytest: what failed; how long each test took; and, with *measurement*, which lines it reached."""

    def __init__(self, measurement: coverage.Coverage | None = None) -> None:
        self.measurement, self.failed = measurement, list[str]()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        hypothesis.settings.load_profile("quick")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self.measurement is not None:
            self.measurement.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        self.failed += [report.nodeid] * report.failed

    def run(self, *arguments: str) -> str:
        """Return a test that failed, or an empty text."""
        absent = [part for name in ("cacheprovider", "xdist", "anyio") for part in ("-p", f"no:{name}")]
        code = pytest.main(["-q", *absent, *arguments], plugins=[self])
        return (self.failed or [f"pytest: {code!r}" if code else ""])[0]


def play(schedules: int) -> str:
    from tests.simulation.schedule import quiet, run_schedule

    with quiet():
        return next((f"schedule {seed}" for seed in range(schedules) if run_schedule(seed, None).failures), "")


def run_in(copy: Path, task: Callable[[], str], limit_s: int = LIMIT_S) -> str:
    """Run *task* in a forked process whose checkout is the copy; return its result, or how it ended."""
    (copy / "result").write_text("")
    if (child := os.fork()) == 0:
        os.setsid()
        os.chdir(copy)
        sys.path.insert(0, str(copy))
        os.environ.update(PYTHONPATH=str(copy), PYTHONDONTWRITEBYTECODE="1")
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            Path("result").write_text(task())
        except BaseException as error:  # noqa: BLE001 - a change may raise anything
            Path("result").write_text(repr(error))
        os._exit(0)
    until = time.monotonic() + 4 * limit_s
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    # servers that it started
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return f"signal {ended[1]}" if ended[1] else (copy / "result").read_text()


def make_copy(copy: Path) -> Path:
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.so", "build"))
    (copy / "log").touch()
    build(copy)
    return copy


def build(copy: Path) -> bytes:
    """Return the extension, built from the C file of the copy; nothing if that is not valid C."""
    source = copy / "snowredis/snowflake/_fastpath.c"
    output = source.with_suffix(str(sysconfig.get_config_var("EXT_SUFFIX")))
    output.unlink(missing_ok=True)
    abi = [] if sysconfig.get_config_var("Py_GIL_DISABLED") else ["-DPy_LIMITED_API=0x030B0000"]
    flags = ["-O1", "-shared", "-fPIC", "-Werror=return-type", f"-I{sysconfig.get_path('include')}", *abi]
    subprocess.run(["cc", *flags, "-o", str(output), str(source)], check=False, stderr=subprocess.DEVNULL)
    return output.read_bytes() if output.exists() else b""


def measure(copy: Path) -> dict[str, Any]:
    """Return which tests reach each line, {path: {line: [test]}}, and under "seconds" how long each test takes."""
    code = [path.read_bytes() for name in ("snowredis", "tests") for path in sorted((ROOT / name).rglob("*.py"))]
    cache = Path(tempfile.gettempdir()) / f"snowredis-mutate-{hashlib.sha256(b''.join(code)).hexdigest()[:16]}.json"

    def task() -> str:
        package, greenlets = str(copy / "snowredis"), ["greenlet", "thread"]
        measurement = coverage.Coverage(data_file=None, source=[package], concurrency=greenlets, config_file=False)
        measurement.start()
        recorder = Recorder(measurement)
        recorder.run(*MEASURED)
        measurement.stop()
        reached: dict[str, Any] = {"seconds": recorder.seconds, "failed": recorder.failed}
        for path in measurement.get_data().measured_files():
            lines = measurement.get_data().contexts_by_lineno(path).items()
            reached[path[len(f"{copy}/") :]] = {
                line: sorted({*tests} - {"", *recorder.failed}) for line, tests in lines
            }
        return json.dumps(reached)

    if not cache.exists():
        print("finding out which tests reach which line …", flush=True)
        text = run_in(make_copy(copy), task, 1200)
        if '"seconds": {"' not in text:
            raise SystemExit(f"no test ran: {text} {(copy / 'log').read_text()}")
        cache.write_text(text)
    return dict(json.loads(cache.read_text()))


def tests_of(change: Change, reached: dict[str, Any]) -> list[str]:
    """Return tests that reach the change: the first case of each test, the quickest first; then the second ones …"""
    lines, seconds = reached.get(change.path, {}), reached["seconds"]
    # of a line that runs at import only: whatever reaches the file
    tests = lines.get(str(change.line())) or {test for each in lines.values() for test in each}
    cases, ranked = Counter[str](), list[tuple[int, float, str]]()
    for test in sorted(tests, key=lambda test: (seconds[test], test)):
        cases[test.split("[")[0]] += 1
        ranked.append((cases[test.split("[")[0]], seconds[test] + 0.02, test))
    ranked.sort()
    return [test for at, (_, _, test) in enumerate(ranked) if sum(each[1] for each in ranked[:at]) < BUDGET_S]


def is_change(change: Change, copy: Path, extension: bytes) -> bool:
    """Return whether what is changed is valid, and differs by more than its text."""
    if change.path.endswith(".c"):
        return build(copy) not in (b"", extension)
    if change.path.endswith(".lua"):
        return not isinstance(lupa.lua51.LuaRuntime().globals().loadstring(change.changed()), tuple)
    with contextlib.suppress(SyntaxError):
        return ast.dump(ast.parse(change.changed())) != ast.dump(ast.parse(change.source))
    return False


def judge(change: Change, place: Path, reached: dict[str, Any], until: float) -> tuple[str, float, str]:
    """Return what failed after the change, "" for nothing, the seconds that it took, and what the tests printed."""
    if (began := time.monotonic()) > until:
        return "not tried", 0, ""
    if not (copy := place / str(os.getpid())).exists():
        make_copy(copy)
    suffix = Path(change.path).suffix
    extension = build(copy) if suffix == ".c" else b""
    (copy / change.path).write_text(change.changed())
    failed = "" if is_change(change, copy, extension) else "invalid"
    tests = tests_of(change, reached) if suffix == ".py" else []
    unfit = [part for test in reached["failed"] for part in ("--deselect", test)]
    for stage in [tests] * bool(tests) + STAGES[suffix]:
        task = partial(play, stage) if isinstance(stage, int) else partial(Recorder().run, "-x", *unfit, *stage)
        if not failed and (failed := run_in(copy, task)) and "::" in failed:
            # once more: on a busy machine, a test with a server may fail without the change
            failed = run_in(copy, partial(Recorder().run, failed))
    (copy / change.path).write_text(change.source)
    if suffix == ".c":
        build(copy)
    return failed, time.monotonic() - began, (copy / "log").read_text()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=100, metavar="N", help="valid or not")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="these, with what their last tests print")
    parser.add_argument("--minutes", type=float, default=60, metavar="M", help="begin no other one after that time")
    parser.add_argument("--jobs", type=int, default=2, metavar="J")
    options = parser.parse_args()
    until = time.monotonic() + options.minutes * 60
    numbers = options.only or range(options.mutants)
    changes = list(islice(drawn(options.seed), max(numbers) + 1))
    ends, spent_s = Counter[str](), 0.0
    with tempfile.TemporaryDirectory(prefix="mutate-") as directory:
        place = Path(directory)
        reached = measure(place / "measured")
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("fork")) as pool:
            waiting = {pool.submit(judge, changes[n], place, reached, until): n for n in numbers}
            for future in as_completed(waiting):
                n, (failed, seconds, output) = waiting[future], future.result()
                end = failed if failed in ("invalid", "not tried") else "killed" if failed else "SURVIVED"
                ends[end] += 1
                spent_s += seconds
                print(f"{n} {end} {seconds:.0f} s  {changes[n]}", f"\n    {failed}" * (end == "killed"), flush=True)
                if options.only:
                    print(output)
    tried = max(1, ends["killed"] + ends["SURVIVED"])
    print(f"seed {options.seed}: {dict(ends)}, {ends['killed'] / tried:.0%} killed, {spent_s / tried:.0f} s each")
    return bool(ends["SURVIVED"])


if __name__ == "__main__":
    sys.exit(main())
