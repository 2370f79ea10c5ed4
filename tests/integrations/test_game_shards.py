"""Two game shards, merged: the example checks its databases, and its checks see what is wrong."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from tests.support import warm
from tests.support.programs import ROOT
from tests.support.shared import made_once

EXAMPLE = ROOT / "examples" / "game_shards.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Directory of the databases of one run, and its output; the processes that run the tests share it."""

    def make(directory: Path) -> None:
        (directory / "output").write_text(play(directory / "kept"))

    made = made_once(tmp_path_factory, "game_shards", make)
    return made / "kept", (made / "output").read_text()


def play(directory: Path) -> str:
    done = warm.run(
        [sys.executable, "-m", "tests.integrations.programs.warm_game_shards", "--keep", directory],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # the one whose clock is set back says so
    [warning] = done.stderr.splitlines()
    assert re.fullmatch(r"pool shard-us: the clock went back by \d+ ms: using another namespace", warning)
    return done.stdout


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("game_shards", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_check_of_the_example_held(run: tuple[Path, str]) -> None:
    assert len(re.findall(r"^  ok     ", run[1], re.MULTILINE)) == 12
    assert "FAILED" not in run[1]


SAME_ID = "UPDATE item SET id = (SELECT id FROM player LIMIT 1) WHERE id = (SELECT id FROM item LIMIT 1)"
OTHER_IDS = "UPDATE player SET id = id + 9000000; UPDATE item SET id = id + 9000000"


@pytest.mark.parametrize(
    ("file", "damage", "what"),
    [
        ("eu", "UPDATE player SET server = 'us-9' WHERE id = (SELECT max(id) FROM player)", "names the server"),
        ("eu", "UPDATE item SET to_ms = to_ms - 60000, from_ms = from_ms - 60000", "names the server"),
        ("eu", "DELETE FROM player WHERE id = (SELECT min(id) FROM player)", "merged with plain INSERTs"),
        ("eu", SAME_ID, "is unique"),
        ("eu", "DELETE FROM item WHERE server = 'eu-2'; DELETE FROM player WHERE server = 'eu-2'", "killed server"),
        ("us", "DELETE FROM item WHERE server = 'us-2'; DELETE FROM player WHERE server = 'us-2'", "another namespace"),
        ("us-counters", OTHER_IDS, "merging the counters"),
        ("mended-eu", "UPDATE item SET owner = (SELECT min(id) FROM player)", "every item has the owner"),
        ("mended-eu", "DELETE FROM item WHERE id = (SELECT max(id) FROM item)", "rows in one database"),
    ],
)
def test_its_checks_see_what_is_wrong(
    run: tuple[Path, str],
    example: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    damage: str,
    what: str,
) -> None:
    for name in ("eu", "us", "eu-counters", "us-counters", "mended-eu"):
        shutil.copy(run[0] / f"{name}.db", tmp_path)
    with closing(sqlite3.connect(tmp_path / f"{file}.db")) as database:
        database.executescript(damage)
    if file in example.SHARDS:
        checks = example.report(tmp_path, json.loads((run[0] / "claims.json").read_text()))
    else:
        # what the commands of snowredis did stays
        monkeypatch.setattr(example, "check", lambda *_: (10, 0))
        monkeypatch.setattr(example, "mend", lambda _: ("", []))
        checks = example.report_of_counters(tmp_path)
    assert any(what in said for said, held in checks if not held), checks
