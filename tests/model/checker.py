"""Check one configuration of lease.pml with Spin.

Spin makes a C program out of the model, which visits every state that can be reached and stops at the
first one in which a tick is stamped twice. What the configurations are is said in configurations.py.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).with_name("lease.pml")
# far more than any configuration needs; a path that is longer would be cut, and reported
MAX_DEPTH = 100_000
# of what a step prints when a counterexample is replayed: the time, then what happened
STEP = re.compile(r"^ *(\d+): ((?:process|server|a |the ).*)$", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """Outcome of one search.

    Attributes:
        complete: every reachable state was visited, or a counterexample was found.
        trail: steps of the counterexample, as (time, text); empty if there is none.
        problem: why the search is not complete; empty if it is.
    """

    states: int
    transitions: int
    depth: int
    seconds: float
    memory_mb: float
    trail: tuple[tuple[int, str], ...]
    problem: str = ""

    @property
    def complete(self) -> bool:
        return not self.problem


def missing_programs() -> list[str]:
    """Return which of the programs that a check needs are not on PATH."""
    return [name for name in ("spin", "cc") if shutil.which(name) is None]


def check(
    constants: Mapping[str, int],
    directory: Path,
    *,
    shortest: bool = False,
    limit_s: float = 300,
    limit_mb: int = 4000,
) -> Result:
    """Search all states of the model with *constants*, in *directory*, which is overwritten.

    Args:
        shortest: search breadth first, so that a counterexample is a short one. Needs more memory.
        limit_s: for the search; to make the program takes some seconds more.

    Raises:
        subprocess.CalledProcessError: the model cannot be translated or compiled.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    # Spin names the trail after the model, and writes it beside that
    shutil.copy(MODEL, directory)
    defines = [f"-D{name}={value}" for name, value in constants.items()]
    _make(["spin", "-a", *defines, MODEL.name], directory)
    # NOREDUCE: each step is one transition of one process already, so there is no interleaving to leave out
    options = [
        "-O1" if shortest else "-O2",
        "-w",
        "-DSAFETY",
        "-DNOREDUCE",
        f"-DMEMLIM={limit_mb}",
        *["-DBFS"] * shortest,
    ]
    _make(["cc", *options, "-o", "search", "pan.c"], directory)
    began_s = time.monotonic()
    # -E: that nothing more happens is no error; -n: no list of statements that were not reached
    command = ["./search", "-E", "-n", f"-m{MAX_DEPTH}"]
    try:
        found = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=limit_s)
        output, problem = found.stdout, ""
    except subprocess.TimeoutExpired as expired:
        output, problem = (expired.stdout or b"").decode(), f"not complete after {limit_s:.0f} s"
    seconds = time.monotonic() - began_s
    if "out of memory" in output or "MEMLIM bound" in output:
        problem = f"not complete within {limit_mb} MB"
    elif "max search depth too small" in output:
        problem = f"cut at depth {MAX_DEPTH}"
    elif not problem and not re.search(r"errors: \d", output):
        problem = f"no result: {output[-200:]}"
    trail = _replay(directory) if (directory / f"{MODEL.name}.trail").exists() else ()
    if re.search(r"errors: [1-9]", output) and not trail:
        problem = f"an error that is no counterexample: {output[:200]}"
    return Result(
        states=int(_number(r"([\d.e+]+) states, stored", output)),
        transitions=int(_number(r"([\d.e+]+) transitions", output)),
        depth=int(_number(r"depth reached (\d+)", output)),
        seconds=seconds,
        memory_mb=_number(r"([\d.]+)\s+total actual memory usage", output),
        trail=trail,
        problem=problem,
    )


def _make(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)


def _replay(directory: Path) -> tuple[tuple[int, str], ...]:
    command = ["./search", "-S", "-r", f"{MODEL.name}.trail"]
    output = subprocess.run(command, cwd=directory, capture_output=True, text=True).stdout
    if "assertion violated" not in output:
        return ()
    return tuple((int(at), text) for at, text in STEP.findall(output))


def _number(pattern: str, text: str) -> float:
    match = re.search(pattern, text)
    return float(match[1]) if match else 0.0
