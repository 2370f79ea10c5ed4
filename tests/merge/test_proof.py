"""`migrate`."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snowredis.cli.exit_codes import ExitCode

Cli = Callable[..., Any]


def test_a_proof_says_that_counted_ids_never_equal_new_ones(offline: Cli) -> None:
    result = offline("migrate", "proof", "--max", "81234567", "--start", "2026-12-01")
    assert result.code == 0
    assert "never: no new id is an old one" in result.out
    assert "kept: every new id is greater than every old one" in result.out
    assert "to do" not in result.out


def test_a_proof_names_an_id_that_both_sides_make_and_what_to_do(offline: Cli) -> None:
    argv = ["migrate", "proof", "--from", "twitter", "--start", "2026-12-01"]
    result = offline(*argv)
    assert result.code == ExitCode.FOUND_CLASHES
    words = " ".join(result.out.split())
    assert "possible: " in words
    assert "made at 2026-11-30T23:59:50.000Z by worker 0" in words
    assert "start at 2041-01-" in words
    spec = words.split("--to '")[1].split("'")[0]
    # what it advises holds
    assert "kept: every" in offline(*argv, "--to", spec).out
    (start,) = re.findall("start at ([^ ,]+)", words)
    later = offline(*argv[:4], "--until", "2026-12-01", "--start", start)
    assert "kept: every" in later.out


def test_datacenters_that_made_no_old_ids_are_free(offline: Cli) -> None:
    argv = ["migrate", "proof", "--from", "leaf", "--to", "41/1/0/9/12;epoch_ms=1288834974657"]
    assert offline(*argv, "--datacenter", "1").code == ExitCode.FOUND_CLASHES
    result = offline(*argv, "--datacenter", "1", "--old-worker", "0-511")
    assert result.code == 0
    assert "not kept: " in result.out


def test_what_cannot_be_proved_is_refused(offline: Cli) -> None:
    for argv, code, message in (
        (["--from", "auto-increment"], ExitCode.USAGE, "Add --max with SELECT max(id)"),
        (["--from", "twitter", "--max", str(2**62)], ExitCode.BAD_INPUT, "after the switch"),
        (["--max", "1", "--to", "uid-generator"], ExitCode.BAD_INPUT, "when the layout has ended"),
        (["--max", "1", "--datacenter", "x"], ExitCode.USAGE, "'x' is neither a number nor a range"),
        (["--max", "1", "--start", "soon"], ExitCode.USAGE, "is not a valid time"),
        (["--max", "1", "--datacenter", "3"], ExitCode.BAD_INPUT, "3-3 is not a range within 0-0"),
    ):
        result = offline("migrate", "proof", *argv)
        assert (result.code, message in result.err) == (code, True), result.err


@pytest.fixture
def source(tmp_path: Path) -> str:
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
        shop.executemany("INSERT INTO orders (name) VALUES (?)", [("a",), ("b",)])
    shop.close()
    return f"sqlite:///{tmp_path}/shop.db#orders.id"


def test_a_column_is_measured(offline: Cli, source: str) -> None:
    result = offline("migrate", "proof", source)
    assert result.code == 0
    assert "auto-increment, 1 to 2" in result.out


def test_what_is_no_column_of_a_database_is_refused(offline: Cli, source: str, tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_text("id\n1\n")
    for text, message in (
        (f"{tmp_path}/ids.csv#id", "is a file. Name a column of a database"),
        (f"sqlite:///{tmp_path}/none.db#orders.id", "there is no SQLite file"),
        (source.replace("orders.id", "orders.none"), "no such column: t.none"),
        (source.replace("orders.id", "orders.name"), "has the value 'a', and ids are whole numbers"),
        ("mysql+nothing://host/db#orders.id", "Nothing was read"),
    ):
        result = offline("migrate", "proof", text)
        assert (result.code != 0, message in result.err) == (True, True), result.err
