#!/usr/bin/env python3
"""End `merge run` at every step of its transaction and at COMMIT, with -9, SIGTERM, a lost connection or a full disk.

    scripts/merge_kills.py                                    # 100 ends on each of SQLite, PostgreSQL, MariaDB
    scripts/merge_kills.py --databases postgresql --kills 200 --seed 7

Two servers of a game (tests/merge/game.py) on private servers. A process merges, and is ended at a random step, or
within the COMMIT; run by root, also on a disk that becomes full. Then the first database has all rows or none, the
second is as it was, and a second run is refused if the rows came, or else merges. Exits with 1 if not. Bounded by
--minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest.mock
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from snowredis.cli.exit_codes import interrupted_by_signals
from snowredis.merge import MergeError
from snowredis.merge.databases import MARK, Progress, checksum, open_database
from snowredis.merge.dialects import transaction
from snowredis.merge.run import merge
from tests.merge import game
from tests.support.databases import SERVERS, MariaDB, MissingDatabase, PostgreSQL
from tests.support.statements import execute, rows_of

STEPS = (*game.TABLES[1:8], "proved", "COMMIT", "committed")
WAYS = ("SIGKILL", "SIGTERM", "lost connection", "within COMMIT")
LIMIT_S = 120.0
# bytes of a small disk, and what is left on it for a merge
DISK, LEFT = 400 << 20, 256 << 10


def contents(url: str) -> dict[str, list[str]]:
    return {name: sorted(str(row) for row in rows_of(url, f"SELECT * FROM {name}")) for name in game.TABLES}  # noqa: S608


def marks(url: str) -> int:
    try:
        return int(rows_of(url, f"SELECT COUNT(*) FROM {MARK}")[0][0])  # noqa: S608
    except Exception:  # noqa: BLE001 - there is no such table yet
        return 0


def start(path: Path, urls: tuple[str, str], step: str, way: str, server: Any) -> int:
    """Merge in a child, which says by a signal to itself, or by cutting its connections, that it has come to a step."""
    pid = os.fork()
    if pid:
        return pid
    code = 2

    def pause(name: str) -> None:
        if name != step:
            return
        if way == "within COMMIT":
            # a process of its own kills this one a moment later, mostly while the database commits
            if not os.fork():
                time.sleep(random.Random(os.getpid()).uniform(0, 0.004))
                os.kill(os.getppid(), signal.SIGKILL)
                os._exit(0)
        elif way == "lost connection":
            cut(server, urls[0])
        else:
            os.kill(os.getpid(), getattr(signal, way))

    try:
        with interrupted_by_signals(), contextlib.redirect_stderr(open(os.devnull, "w")):
            merge(path, urls, Progress(), pause=pause)
        code = 0
    except KeyboardInterrupt:
        code = 3
    except MergeError:
        code = 1
    finally:
        os._exit(code)


def cut(server: Any, url: str) -> None:
    """End all sessions of a database."""
    if server.name == "postgresql":
        execute(
            server.url("postgres"), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test%'"
        )
    elif server.name == "mariadb":
        for (number,) in rows_of(url, "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()"):
            with contextlib.suppress(Exception):
                execute(url, f"KILL {number}")
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def one(server: Any, directory: Path, chance: random.Random, counts: Counter[str], players: int) -> str:
    """Merge once with an end, and once more; return what is wrong."""
    urls = server.new_database(), server.new_database()
    for url, side, size in zip(urls, "AB", (players, players - 10), strict=True):
        game.fill(url, server.name, side, size)
    with transaction(open_database(urls[0])) as database:
        schema = checksum(database.tables)
    path = game.write_map(directory / "game.map", server.name, schema)
    before = contents(urls[0]), contents(urls[1])
    way = chance.choice(WAYS)
    step = "COMMIT" if way == "within COMMIT" else chance.choice(STEPS)
    _, status = os.waitpid(start(path, urls, step, way, server), 0)
    deadline_s = time.monotonic() + LIMIT_S
    # the server may still be busy with what a killed client asked for
    while (state := contents(urls[0])) != before[0] and not marks(urls[0]):
        if time.monotonic() > deadline_s:
            return f"{way} at {step}: neither all rows nor none, ended with {status}"
    if contents(urls[1]) != before[1]:
        return f"{way} at {step}: the second database has changed"
    came = state != before[0]
    counts[f"{way} {'after' if came else 'before'}"] += 1
    try:
        merge(path, urls, Progress())
        again = ""
    except MergeError as error:
        again = str(error)
    if came and "this second database was merged at" not in again:
        return f"{way} at {step}: a second run was not refused: {again}"
    if not came and again:
        return f"{way} at {step}: a second run did not merge: {again}"
    rows = rows_of(urls[0], "SELECT COUNT(*), COUNT(DISTINCT name) FROM characters")[0]
    return "" if tuple(rows) == (2 * players - 10,) * 2 else f"{way} at {step}: {rows} characters in the end"


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """Mount a file system of DISK bytes in memory, for root only."""
    disk = directory / "disk"
    disk.mkdir()
    # PostgreSQL runs as another user
    directory.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=755", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
        disk.rmdir()


def full_disk(kind: str, directory: Path) -> str:
    """Merge while the disk of the first database becomes full, then with space again; return what is wrong."""
    with (
        small_disk(directory) as disk,
        unittest.mock.patch("tests.support.databases.memory_directory", return_value=disk),
        SERVERS[kind]() as server,
    ):
        urls = server.new_database(), server.new_database()
        for url, side in zip(urls, "AB", strict=True):
            game.fill(url, kind, side, 30)
        notes = ", ".join(f"('{number}', 'about {number}')" for number in range(1, 60_000))
        execute(urls[1], f"INSERT INTO notes VALUES {notes}")  # noqa: S608
        with transaction(open_database(urls[0])) as database:
            path = game.write_map(directory / "full.map", kind, checksum(database.tables))
        before = contents(urls[0])
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while shutil.disk_usage(disk).free > LEFT:
                file.write(bytes(LEFT // 4))
        try:
            merge(path, urls, Progress())
            return "a full disk was not seen"
        except MergeError as error:
            print(f"   {kind}: {str(error)[:150]}", flush=True)
        filler.unlink()
        if isinstance(server, PostgreSQL | MariaDB):
            # MariaDB ends when it cannot write
            server.crash()
            server.start()
        if contents(urls[0]) != before:
            return "a full disk left rows behind"
        merge(path, urls, Progress())
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--databases", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--kills", type=int, default=100, help="on each kind of database (default: 100)")
    parser.add_argument("--players", type=int, default=60, help="in each database (default: 60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=20, help="bound (default: 20)")
    options = parser.parse_args()
    deadline_s, wrong = time.monotonic() + options.minutes * 60, list[str]()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for kind in options.databases:
            chance, counts, done = random.Random(f"{options.seed}{kind}"), Counter[str](), 0
            run: Callable[..., Any] = SERVERS[kind]
            try:
                with run() as server:
                    while done < options.kills and not wrong and time.monotonic() < deadline_s:
                        wrong += filter(None, [one(server, directory, chance, counts, options.players)])
                        done += 1
                if os.geteuid() == 0:
                    wrong += filter(None, [full_disk(kind, directory)])
                    print(f"{kind}: a full disk: {wrong or 'all rows or none'}", flush=True)
            except MissingDatabase as error:
                print(f"{kind}: skipped, {error}")
                continue
            states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
            print(
                f"{kind}: {done} ends: {states}; {'; '.join(wrong) or 'all rows or none, and never twice'}", flush=True
            )
            wrong += [f"only {done} ends in time"] if done < options.kills and not wrong else []
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
