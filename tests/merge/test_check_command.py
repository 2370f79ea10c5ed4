"""`snowredis merge check`: exit codes, report, JSON, what Ctrl-C leaves, and what untrusted text can do."""

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from snowredis.cli.exit_codes import ExitCode
from snowredis.core.presets import layouts
from tests.support.programs import start
from tests.support.waiting import eventually

Cli = Callable[..., Any]
LAYOUT = layouts["default"]
IDS = [LAYOUT.compose(tick=40_000_000_000 + at * 1000, worker=at % 3) for at in range(60)]
EVIL = "\x1b[31m\u202e<script>alert(1)</script>"


def write(path: Path, values: Sequence[object]) -> str:
    path.write_text("id,name\n" + "".join(f'"{value}",x\n' for value in values))
    return f"{path}#id"


@pytest.mark.parametrize(
    ("values", "code", "says"),
    [
        (IDS[30:], ExitCode.FOUND_CLASHES, "error   15 ids are used by more than one row: 30 rows, among"),
        ([*IDS[50:], 1 << 62], ExitCode.FOUND_ERRORS, "error   No id is used by more than one row"),
        (IDS[50:], ExitCode.OK, "ok      No id is used by more than one row"),
        ([*IDS[50:], 7], ExitCode.OK, "warning No id is used by more than one row"),
        (["abc"], ExitCode.SOURCE_UNREADABLE, "holds no ids, but 'abc'"),
    ],
)
def test_the_exit_code_and_the_first_line_say_whether_ids_clash(
    offline: Cli, tmp_path: Path, values: list[object], code: ExitCode, says: str
) -> None:
    one, other = write(tmp_path / "a.csv", list(IDS[:45])), write(tmp_path / "b.csv", values)
    result = offline("merge", "check", one, other, code=code)
    assert says in result.out + result.err


def test_json_has_ids_as_strings_and_what_the_report_says(offline: Cli, tmp_path: Path) -> None:
    sources = [write(tmp_path / f"{name}.csv", IDS[: 20 + at]) for at, name in enumerate("ab")]
    # the second one replaces the list
    for _ in range(2):
        result = offline("merge", "check", *sources, "--json", "--duplicates", str(tmp_path / "d.csv"))
    report = json.loads(result.out)
    assert (result.code, result.err) == (ExitCode.FOUND_CLASHES, "")
    assert report["repeated_ids"] == 20
    assert report["duplicates"][0]["smallest"] == str(IDS[0])
    assert report["sources"][0]["first_at"] == "2026-04-08T23:06:40.000Z"
    assert len((tmp_path / "d.csv").read_text().splitlines()) == 41


def test_the_report_escapes_what_it_read(offline: Cli, tmp_path: Path) -> None:
    sources = [write(tmp_path / "a.csv", [*IDS, EVIL]), write(tmp_path / "b.csv", list(IDS[:10]))]
    shown = offline("merge", "check", *sources).out
    assert "\x1b" not in shown
    assert "\\x1b[31m\\u202e" in shown


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--duplicates", "none/d.csv"], ExitCode.BAD_INPUT, "there is no directory for none/d.csv"),
        (["--duplicates", "{}"], ExitCode.BAD_INPUT, " is there, and is no list of repeated ids"),
        (["--duplicates", "{}/a.csv"], ExitCode.BAD_INPUT, "a.csv is there, and is no list of repeated ids"),
        (["--layout", "twiter"], ExitCode.BAD_INPUT, "Did you mean 'twitter'?"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_is_read(
    offline: Cli, tmp_path: Path, options: list[str], code: ExitCode, says: str
) -> None:
    source = write(tmp_path / "a.csv", list(IDS))
    result = offline("merge", "check", source, *(option.format(tmp_path) for option in options))
    assert (result.code, result.out) == (code, "")
    assert says in result.err


def test_ctrl_c_stops_a_statement_and_removes_what_was_stored(tmp_path: Path) -> None:
    big = tmp_path / "big.txt"
    big.write_text("\n".join(map(str, range(IDS[0], IDS[0] + 2_000_000))))
    (tmp_path / "tmp").mkdir()
    process = start("snowredis", "merge", "check", str(big), env={**os.environ, "TMPDIR": str(tmp_path / "tmp")})
    eventually(lambda: any((tmp_path / "tmp").glob("*/ids.duckdb")), "a file of DuckDB's", 60)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (ExitCode.INTERRUPTED, "\nsnowredis: interrupted\n")
    assert list((tmp_path / "tmp").iterdir()) == []
