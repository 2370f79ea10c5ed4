"""The bench scripts run and print their tables. What they measure is for people to read, not asserted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from scripts._bench import page, plots
from scripts._bench.contestants import CONTESTANTS
from snowredis import embedded
from snowredis.errors import StoreUnavailable

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
BENCH = "_bench/__main__.py"
PARTS = ("rows", "claims", "workers", "start")
PAGE = (ROOT / "docs" / "reference" / "figures.md").read_text("utf-8")
OVERVIEW = (ROOT / "docs" / "explanation" / "performance.md").read_text("utf-8")


@pytest.fixture
def real_redis() -> None:
    try:
        found = embedded.find_server()
    except StoreUnavailable:
        pytest.skip("no redis-server")
    if not found.program:
        pytest.skip("no redis-server, only fakeredis")


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    # what the parts say about their progress, and nothing else
    assert re.sub(r"(?m)^== \w+\n", "", done.stderr) == "", done.stdout
    return done.stdout


def script(name: str, *arguments: str, cwd: Path) -> str:
    # from elsewhere: the scripts find the package by themselves
    return run(str(SCRIPTS / name), *arguments, cwd=cwd)


def tables(output: str) -> dict[str, list[str]]:
    """Name of a table -> what stands in its first column."""
    found: dict[str, list[str]] = {}
    for name, body in re.findall(r"\n([a-z-]+)\n((?:\|.*\n)+)", output):
        rows = [line.split("|")[1].translate(str.maketrans("", "", "*`")).strip() for line in body.splitlines()[2:]]
        assert all(len(line.split("|")) == len(body.split("\n", 1)[0].split("|")) for line in body.splitlines())
        found[name] = rows
    return found


def test_the_part_about_ids_prints_its_tables(tmp_path: Path) -> None:
    found = tables(script(BENCH, "--quick", "ids", cwd=tmp_path))
    assert set(found) == {"single", "batches", "two-processes", "ceilings", "goals"}
    assert {"time.time_ns()", "ids.next_id() Python", "uuid.uuid4()"} <= set(found["single"])
    assert len(found["batches"]) in (3, 6)
    assert {"twitter, Python", "default, Python"} <= set(found["ceilings"])


def test_the_parts_about_redis_print_their_tables(tmp_path: Path, real_redis: None) -> None:
    kept = tmp_path / "figures.json"
    output = script(BENCH, "--quick", "--save", str(kept), "first", *PARTS, cwd=tmp_path)
    found = tables(output)
    assert set(found) == {"first", "rows", "claims", "costs", "fleets", "scale", "start", "goals"}
    assert len(set(found["first"])) == 3
    assert any(row.startswith("JSON") for row in found["rows"])
    assert found["claims"] == ["64", "64", "256", "256", "1,024", "1,024", "1,024"]
    assert found["costs"] == ["10", "100"]
    assert found["fleets"] == ["20 simulated", "100 simulated", "20 real generators"]
    assert found["scale"][-1] == "1,000,000"
    assert found["start"][0] == "import snowredis"
    # kept figures say the same again, without measuring
    assert set(json.loads(kept.read_text("utf-8"))) == {"about", "first", *PARTS}
    assert script(BENCH, "--load", str(kept), cwd=tmp_path) == output


def test_the_page_has_a_place_for_each_of_its_tables_and_shows_every_plot() -> None:
    blocks = re.findall(r"<!-- figures: ([\w-]+) -->\n(?:[^<]|<(?!!--))*<!-- /figures -->", PAGE)
    assert sorted(blocks) == sorted([*page.ON_PAGE, "machine"])
    assert sorted(re.findall(r"\]\(\.\./images/([\w-]+\.svg)\)", PAGE + OVERVIEW)) == sorted(page.PLOTS)


def test_the_same_figures_give_the_same_plots_with_colors_for_dark_pages() -> None:
    def draw() -> list[str]:
        quartiles = (0.9, 1.0, 1.1)
        rows = [plots.Dot("ours", quartiles, quartiles, ours=True), plots.Dot("theirs", (20, 30, 40))]
        series = [plots.Series("a claim", [(10, 120), (1000, 125)], plots.OURS)]
        return [plots.dots("Dots", "of two", rows), plots.lines("Lines", "of one", series, x_name="workers")]

    drawn = draw()
    assert drawn == draw()
    for picture in drawn:
        text = ET.tostring(ET.fromstring(picture), "unicode", "text")
        assert {"ours", "theirs"} <= set(text.split()) or "a claim" in text
        # what follows the system's scheme, and no date
        used = set(re.findall(r"#[0-9a-f]{6}", picture.partition("</style>")[2]))
        assert used <= set(plots.DARK)
        assert "<dc:date>" not in picture


def test_every_library_that_is_compared_with_is_installed_for_it_and_the_other_way_round() -> None:
    listed = [line for line in (SCRIPTS / "_bench" / "peers.txt").read_text().splitlines() if line[0] != "#"]
    packages = {contestant.package for contestant in CONTESTANTS} - {"", "snowredis"}
    assert sorted(packages) == sorted(listed)


@pytest.mark.parametrize(("name", "shown"), [(BENCH, "scripts/bench"), ("bench_loop.py", "scripts/bench_loop.py")])
def test_a_bench_script_says_what_can_be_asked_of_it(name: str, shown: str, tmp_path: Path) -> None:
    output = script(name, "--help", cwd=tmp_path)
    assert shown in output
    assert "examples:" in output


def test_the_benchmark_says_that_it_does_not_know_a_part(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / BENCH), "speed"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert "'speed' is no part; these are: first, ids, rows, claims, workers, start" in done.stderr


def test_bench_loop_prints_a_line_for_each_kind_of_wait(tmp_path: Path) -> None:
    output = script("bench_loop.py", "--rounds", "1", cwd=tmp_path)
    rows = [line for line in output.splitlines() if re.search(r" \d+\.\d\d(\s|$)", line[25:])]
    assert "100 coroutines at the ceiling" in output
    assert len(rows) == 7
