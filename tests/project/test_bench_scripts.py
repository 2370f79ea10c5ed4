"""The bench scripts run and print their tables. What they measure is for people to read, not asserted."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts._bench import page
from scripts._bench.__main__ import main
from scripts._bench.contestants import CONTESTANTS
from tests.support.programs import ROOT

SCRIPTS = ROOT / "scripts"
PAGE = (ROOT / "docs" / "reference" / "figures.md").read_text("utf-8")


def bench(*arguments: str, cwd: Path) -> str:
    # from elsewhere: the script finds the package by itself
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "_bench/__main__.py"), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=220,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    # what the parts say about their progress, and nothing else
    assert re.sub(r"(?m)^== \w+\n", "", done.stderr) == "", done.stdout
    return done.stdout


def tables(output: str) -> dict[str, list[str]]:
    """Name of a table -> what stands in its first column."""
    found: dict[str, list[str]] = {}
    for name, body in re.findall(r"\n([a-z-]+)\n((?:\|.*\n)+)", output):
        rows = [line.split("|")[1].translate(str.maketrans("", "", "*`")).strip() for line in body.splitlines()[2:]]
        assert all(len(line.split("|")) == len(body.split("\n", 1)[0].split("|")) for line in body.splitlines())
        found[name] = rows
    return found


def test_parts_print_their_tables_and_kept_figures_say_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "figures.json"
    output = bench("--quick", "--save", str(kept), "ids", cwd=tmp_path)
    found = tables(output)
    assert set(found) == {"single", "batches"}
    assert {"time.time_ns()", "ids.next_id() Python", "uuid.uuid4()"} <= set(found["single"])
    assert len(found["batches"]) in (3, 6)
    assert set(json.loads(kept.read_text("utf-8"))) == {"about", "ids"}
    # without measuring
    monkeypatch.setattr("sys.argv", ["bench", "--load", str(kept)])
    assert main() == 0
    assert capsys.readouterr().out == output


def test_the_page_has_a_place_for_each_of_its_tables() -> None:
    blocks = re.findall(r"<!-- figures: ([\w-]+) -->\n(?:[^<]|<(?!!--))*<!-- /figures -->", PAGE)
    assert sorted(blocks) == sorted([*(name for name, (*_, on_page) in page.TABLES.items() if on_page), "machine"])


def test_every_library_that_is_compared_with_is_installed_for_it_and_the_other_way_round() -> None:
    listed = [line for line in (SCRIPTS / "_bench" / "peers.txt").read_text().splitlines() if line[0] != "#"]
    packages = {contestant.package for contestant in CONTESTANTS} - {"", "snowredis"}
    assert sorted(packages) == sorted(listed)
