#!/usr/bin/env python3
"""Compare the CPU time of a whole merge, of clients and server, with that of SQL by hand in the same run.

    scripts/merge_cost.py                                # 10^6 + 10^6 rows, PostgreSQL and MariaDB; some 5 minutes
    scripts/merge_cost.py --rows 100000 --databases mariadb

Each database has players with a unique name, and items that refer to them; their ids are numbers of counters, and all
clash. By hand means the rows with their new ids on the shortest way into the first database, COPY to COPY or INSERT …
SELECT, which proves nothing. Times are CPU times, so other processes on the machine change them little.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.databases import mariadb, postgresql  # noqa: E402
from tests.support.statements import execute  # noqa: E402

SETTINGS = {
    "postgresql": ("shared_buffers=256MB", "max_wal_size=4GB", "checkpoint_timeout=1h", "autovacuum=off"),
    "mariadb": ("innodb-buffer-pool-size=512M", "innodb-log-file-size=512M"),
}
OFFSET = 100_000_000
# the map of a person
MAP = """
reviewed = true
schema = "SCHEMA"
[player]
rows = "copy"
id = ["id"]
keep = ["name", "mail", "level", "seen"]
[item]
rows = "copy"
id = ["id", "player_id"]
keep = ["kind", "amount", "data"]
"""


def fill(url: str, shard: str, rows: int) -> None:
    """Make and fill the tables: a quarter of the rows are players."""
    is_postgresql = url.startswith("postgresql")
    key = "bigserial" if is_postgresql else "bigint AUTO_INCREMENT"
    series = "generate_series(1, {}) g(seq)" if is_postgresql else "seq_1_to_{}"
    text = "substr(md5(seq::text), 1, 20)" if is_postgresql else "substr(md5(seq), 1, 20)"
    players = rows // 4
    statements = [
        f"CREATE TABLE player (id {key} PRIMARY KEY, name varchar(40) NOT NULL UNIQUE, mail varchar(60), level int, "
        "seen timestamp NULL)",
        f"CREATE TABLE item (id {key} PRIMARY KEY, player_id bigint NOT NULL, kind varchar(20), amount int, "
        "data varchar(100), CONSTRAINT of_player FOREIGN KEY (player_id) REFERENCES player (id))",
        "CREATE INDEX item_player ON item (player_id)",
    ]
    of_player = f"concat('{shard}', seq), concat({text}, '@x'), 1000000000 + mod(seq, 90), '2026-01-01 00:00:00'"
    of_item = f"1 + mod(seq, {players}), concat('{shard}kind ', mod(seq, 50)), 1000000000 + seq"
    for table, values, count in (
        ("player (name, mail, level, seen)", of_player, players),
        ("item (player_id, kind, amount, data)", f"{of_item}, concat({text}, {text}, {text})", rows - players),
    ):
        statements.append(f"INSERT INTO {table} SELECT {values} FROM {series.format(count)}")  # noqa: S608
    execute(url, *statements)


def by_hand(kind: str, server: Any, kept: str) -> None:
    player, item = f"id + {OFFSET}, name, mail, level, seen", f"id + {OFFSET}, player_id + {OFFSET}, kind, amount, data"
    if kind == "postgresql":
        psql = f"psql -q -h {server.directory} -U postgres"
        for table, columns in (("player", player), ("item", item)):
            query = f"COPY (SELECT {columns} FROM {table}) TO STDOUT"  # noqa: S608
            copy = f"{psql} b -c '{query}' | {psql} a -c 'COPY {table} FROM STDIN'"
            subprocess.run(["bash", "-o", "pipefail", "-c", copy], check=True)
    else:
        copies = (
            f"INSERT INTO {table} SELECT {columns} FROM b.{table}"  # noqa: S608
            for table, columns in (("player", player), ("item", item))
        )
        execute(kept, "SET foreign_key_checks = 0", *copies)


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a server, its processes and the children that this process has waited for."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat.parent.name) == pid:
            ticks += sum(map(int, words[11:15]))
        elif int(words[1]) == pid:
            ticks += sum(map(int, words[11:13]))
    children, own = resource.getrusage(resource.RUSAGE_CHILDREN), time.process_time()
    return ticks / os.sysconf("SC_CLK_TCK") + children.ru_utime + children.ru_stime + own


def compare(kind: str, rows: int) -> None:
    """Print the CPU seconds of each step, and what they are to those of SQL by hand."""

    def measured(what: str, work: Callable[[], object]) -> float:
        before_s = cpu_s(server.pid)
        work()
        took_s = cpu_s(server.pid) - before_s
        print(f"   {what:<9}{took_s:8.2f} s", flush=True)
        return took_s

    def command(*arguments: str) -> str:
        argv = [sys.executable, "-m", "snowredis", "merge", *arguments]
        return subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout

    def new_pair() -> tuple[str, str]:
        for name in "ab" if found else "":
            server._execute(f"DROP DATABASE {name}{' WITH (FORCE)' if kind == 'postgresql' else ''}")
        urls = server.new_database("a"), server.new_database("b")
        for url, shard in zip(urls, "AB", strict=True):
            fill(url, shard, rows)
        return urls

    start = postgresql if kind == "postgresql" else mariadb
    print(f"{kind}: {rows:,} + {rows:,} rows, CPU time", flush=True)
    with start(*SETTINGS[kind]) as server, tempfile.TemporaryDirectory() as directory:
        path, found = Path(directory) / "game.map", list[float]()
        kept, changed = new_pair()
        found.append(measured("by hand", lambda: by_hand(kind, server, kept)))
        kept, changed = new_pair()
        drafted = list[str]()
        found.append(measured("draft", lambda: drafted.append(command("draft", kept, changed))))
        path.write_text(MAP.replace("SCHEMA", drafted[0].partition('schema = "')[2].partition('"')[0]))
        found.append(measured("run", lambda: command("run", str(path), kept, changed)))
    hand_s, _, run_s = found
    print(f"   the merge takes {run_s / hand_s:.2f} times what SQL by hand takes", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--databases", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each database (default: 1000000)")
    options = parser.parse_args()
    for kind in options.databases:
        compare(kind, options.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
