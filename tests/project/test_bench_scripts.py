"""The bench scripts run and print their tables. What they measure is for people to read, not asserted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from snowredis import embedded
from snowredis.errors import StoreUnavailable

SCRIPTS = Path(__file__).parents[2] / "scripts"


def run(name: str, *arguments: str, cwd: Path) -> str:
    # from elsewhere: the scripts find the package by themselves
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / name), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


def rows(output: str) -> list[str]:
    """The first column of every line with a ratio: two decimals."""
    return [line[:25].strip() for line in output.splitlines() if re.search(r" \d+\.\d\d(\s|$)", line[25:])]


def test_bench_next_id_prints_its_table(tmp_path: Path) -> None:
    output = run("bench_next_id", "--quick", cwd=tmp_path)
    assert rows(output) == [
        "an empty function",
        "time.time_ns()",
        "ids.next_id()",
        "time.time_ns(), 4 threads",
        "next_id(), 4 threads",
        "next_ids(1000), an id",
        "fill() of 1000, an id",
    ]
    assert re.search(r"twitter, one thread: [\d.]+% of 4,096 ids a ms, on \d+% of a CPU", output)


def test_bench_claims_prints_its_table(tmp_path: Path) -> None:
    try:
        found = embedded.find_server()
    except StoreUnavailable:
        pytest.skip("no redis-server")
    if not found.program:
        pytest.skip("no redis-server, only fakeredis")
    output = run("bench_claims", "--small", "--rounds", "2", cwd=tmp_path)
    states = [f"2^{bits}, {state}" for bits in (6, 8, 10) for state in ("never used", "full but for one")]
    assert [row for row in rows(output) if row.startswith("2^")][:7] == [*states, "2^10, full: refused"]
    assert "1,024 worker ids in" in output
    assert re.search(r"full pool of 1,024: [\d.]+ ms, below 1 ms: (met|NOT MET)", output)


@pytest.mark.parametrize("name", ["bench_claims", "bench_loop", "bench_next_id"])
def test_a_bench_script_says_what_can_be_asked_of_it(name: str, tmp_path: Path) -> None:
    output = run(name, "--help", cwd=tmp_path)
    assert f"scripts/{name}" in output
    assert "examples:" in output


def test_bench_loop_prints_a_line_for_each_kind_of_wait(tmp_path: Path) -> None:
    output = run("bench_loop", "--rounds", "1", cwd=tmp_path)
    assert "100 coroutines at the ceiling" in output
    assert len(rows(output)) == 7
