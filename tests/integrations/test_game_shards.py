"""Two game shards, merged: the statements of the example are checked in its databases."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import snowredis
from tests.support import warm
from tests.support.shared import made_once

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "game_shards.py"
LAYOUT = snowredis.layouts["game-shards"]
EVERYTHING = "SELECT id, server, from_ms, to_ms FROM player UNION ALL SELECT id, server, from_ms, to_ms FROM item"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Directory of the databases of one run, and its output; the processes that run the tests share it."""

    def make(directory: Path) -> None:
        (directory / "output").write_text(play(directory / "kept"))

    made = made_once(tmp_path_factory, "game_shards", make)
    return made / "kept", (made / "output").read_text()


def play(directory: Path) -> str:
    done = warm.run(
        [sys.executable, EXAMPLE, "--keep", directory],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
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
def merged(run: tuple[Path, str]) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(run[0] / "merged.db")) as database:
        yield database


def rows_of(path: Path, table: str) -> set[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return set(database.execute(f"SELECT * FROM {table}"))


def test_every_check_of_the_example_held(run: tuple[Path, str]) -> None:
    assert len(re.findall(r"^  ok     ", run[1], re.MULTILINE)) == 12
    assert "FAILED" not in run[1]


@pytest.mark.parametrize("table", ["player", "item"])
def test_the_merged_database_has_exactly_the_rows_of_both_shards(
    run: tuple[Path, str], merged: sqlite3.Connection, table: str
) -> None:
    eu, us = (rows_of(run[0] / f"{shard}.db", table) for shard in ("eu", "us"))
    assert eu
    assert us
    assert len(eu | us) == len(eu) + len(us)
    assert set(merged.execute(f"SELECT * FROM {table}")) == eu | us


def test_no_id_stands_there_twice_and_no_item_lost_its_owner(merged: sqlite3.Connection) -> None:
    ids = [row[0] for row in merged.execute(EVERYTHING)]
    assert len(set(ids)) == len(ids)
    orphans = merged.execute("SELECT * FROM item LEFT JOIN player ON player.id = owner WHERE player.id IS NULL")
    assert orphans.fetchall() == []
    assert merged.execute("SELECT count(*) FROM item").fetchone()[0] > 0
    assert merged.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_lane_belongs_to_one_server_in_each_tick_and_the_pool_knows_which(
    run: tuple[Path, str], merged: sqlite3.Connection
) -> None:
    claims = json.loads((run[0] / "claims.json").read_text())
    makers: dict[tuple[int, int, int, int], set[str]] = {}
    for an_id, server, from_ms, to_ms in merged.execute(EVERYTHING):
        parts = LAYOUT.decode(an_id)
        lane = (parts.datacenter, parts.worker, parts.backup, parts.timestamp_ms)
        makers.setdefault(lane, set()).add(server)
        assert parts.datacenter == {"eu": 1, "us": 2}[server[:2]]
        # a burst runs ahead of the clock
        assert parts.timestamp_ms <= to_ms + 10_300
        assert from_ms < parts.timestamp_ms + LAYOUT.tick_ms
    for (shard, worker, namespace, time_ms), servers in makers.items():
        known = [
            claim["label"]
            for claim in claims
            if (claim["shard"], claim["worker"]) == (shard, worker) and claim["lanes"][namespace] <= time_ms
        ]
        assert servers == {known[-1]}
    assert set.union(*makers.values()) == {"eu-1", "eu-2", "eu-3", "eu-4", "us-1", "us-2", "us-3"}


def test_the_server_whose_clock_went_back_used_another_namespace_for_the_earlier_time(
    merged: sqlite3.Connection,
) -> None:
    parts = [LAYOUT.decode(row[0]) for row in merged.execute(EVERYTHING) if row[1] == "us-2"]
    times_ms = [{part.timestamp_ms for part in parts if part.backup == number} for number in (0, 1)]
    assert min(times_ms[1]) < max(times_ms[0]) - 1_000
    assert {part.backup for part in parts} == {0, 1}
    assert len({part.worker for part in parts}) == 1


def test_the_mended_database_has_every_row_of_both_with_its_owner(run: tuple[Path, str]) -> None:
    def families(*files: str) -> list[tuple[Any, ...]]:
        """Return every item with its owner, by what does not change in a merge."""
        sql = (
            "SELECT item.kind, item.server, item.from_ms, item.to_ms, player.name, player.server, player.from_ms "
            "FROM item JOIN player ON player.id = item.owner"
        )
        rows = []
        for file in files:
            with closing(sqlite3.connect(run[0] / file)) as database:
                rows += database.execute(sql).fetchall()
        return sorted(rows)

    both = families("eu-counters.db", "us-counters.db")
    assert both
    assert families("mended-eu.db") == both
    for table in ("player", "item"):
        assert len(rows_of(run[0] / "mended-eu.db", table)) == sum(
            len(rows_of(run[0] / f"{shard}-counters.db", table)) for shard in ("eu", "us")
        )


def test_counters_clash_as_often_as_the_report_says(run: tuple[Path, str], tmp_path: Path) -> None:
    clashes = 0
    for table in ("player", "item"):
        eu, us = ({row[0] for row in rows_of(run[0] / f"{shard}-counters.db", table)} for shard in ("eu", "us"))
        clashes += len(eu & us)
    assert clashes > 0
    assert f"UNIQUE constraint failed: player.id; {clashes:,} ids of " in run[1]
    assert rows_of(run[0] / "merged-counters.db", "player") == set()
    shutil.copy(run[0] / "eu-counters.db", tmp_path / "all.db")
    with closing(sqlite3.connect(tmp_path / "all.db")) as database:
        database.execute("ATTACH ? AS us", (str(run[0] / "us-counters.db"),))
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            database.execute("INSERT INTO player SELECT * FROM us.player")


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ("UPDATE player SET server = 'us-9' WHERE id = (SELECT max(id) FROM player)", "names the server"),
        ("UPDATE item SET to_ms = to_ms - 60000, from_ms = from_ms - 60000", "names the server"),
        ("DELETE FROM player WHERE id = (SELECT min(id) FROM player)", "merged with plain INSERTs"),
        ("UPDATE item SET id = (SELECT id FROM player LIMIT 1) WHERE id = (SELECT id FROM item LIMIT 1)", "is unique"),
        ("DELETE FROM item WHERE server = 'eu-2'; DELETE FROM player WHERE server = 'eu-2'", "killed server"),
    ],
)  # fmt: skip
def test_the_examples_checks_see_what_is_wrong(
    run: tuple[Path, str], tmp_path: Path, damage: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("game_shards", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    for name in ("eu", "us", "eu-counters", "us-counters"):
        shutil.copy(run[0] / f"{name}.db", tmp_path)
    with closing(sqlite3.connect(tmp_path / "eu.db")) as database:
        database.executescript(damage)
    checks = example.report(tmp_path, json.loads((run[0] / "claims.json").read_text()))
    assert any(what in said for said, held in checks if not held), checks
