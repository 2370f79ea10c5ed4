"""`migrate`."""

import re
from collections.abc import Callable
from typing import Any

from snowredis.cli.exit_codes import ExitCode

Cli = Callable[..., Any]


def test_a_proof_says_that_counted_ids_never_equal_new_ones(offline: Cli) -> None:
    result = offline("migrate", "proof", "--max", "81234567", "--start", "2026-12-01", code=0)
    assert "never: no new id is an old one" in result.out
    assert "kept: every new id is greater than every old one" in result.out
    assert "to do" not in result.out


def test_a_proof_names_an_id_that_both_sides_make_and_what_to_do(offline: Cli) -> None:
    argv = ["migrate", "proof", "--from", "twitter", "--start", "2026-12-01"]
    result = offline(*argv, code=ExitCode.FOUND_CLASHES)
    words = " ".join(result.out.split())
    assert "possible: " in words
    assert "made at 2026-11-30T23:59:50.000Z by worker 0" in words
    assert "start at 2041-01-" in words
    spec = words.split("--to '")[1].split("'")[0]
    # what it advises holds
    assert "kept: every" in offline(*argv, "--to", spec).out
    (start,) = re.findall("start at ([^ ,]+)", words)
    assert "kept: every" in offline(*argv[:4], "--until", "2026-12-01", "--start", start).out


def test_datacenters_that_made_no_old_ids_are_free(offline: Cli) -> None:
    argv = ["migrate", "proof", "--from", "leaf", "--to", "41/1/0/9/12;epoch_ms=1288834974657"]
    assert offline(*argv, "--datacenter", "1").code == ExitCode.FOUND_CLASHES
    assert "not kept: " in offline(*argv, "--datacenter", "1", "--old-worker", "0-511", code=0).out


def test_what_cannot_be_proved_is_refused(offline: Cli) -> None:
    for argv, code, message in (
        (["--from", "auto-increment"], ExitCode.USAGE, "Add --max with SELECT max(id)"),
        (["--from", "twitter", "--max", str(2**62)], ExitCode.BAD_INPUT, "after the switch"),
        (["--max", "1", "--to", "uid-generator"], ExitCode.BAD_INPUT, "can be made in the given period"),
        (["--max", "1", "--datacenter", "x"], ExitCode.USAGE, "'x' is neither a number nor a range"),
        (["--max", "1", "--start", "soon"], ExitCode.USAGE, "is not a valid time"),
        (["--max", "1", "--datacenter", "3"], ExitCode.BAD_INPUT, "3-3 is not a range within 0-0"),
    ):
        assert message in offline("migrate", "proof", *argv, code=code).err
