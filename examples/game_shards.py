# Type:     python examples/game_shards.py
# Needs:    redis-server, or else pip install 'fakeredis[lua]'
# You see:  two game shards with three servers each make players and items in bursts; one server is killed with
#           kill -9, another's clock is set back by 45 s; then both databases are merged with plain INSERTs: no key
#           is there twice, and each id still shows which server made it and when. With AUTOINCREMENT the same merge
#           fails. With --keep DIR the databases are kept there.

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import redis

import snowredis
from snowredis.runtime.clock import StepClock

POOL = "game"
LAYOUT = snowredis.layouts["game"]
SHARDS = ("eu", "us")
SERVERS = [f"{shard}-{number}" for shard in SHARDS for number in (1, 2, 3)]
KILLED, IN_ITS_PLACE, SET_BACK = "eu-2", "eu-4", "us-2"
SET_BACK_S = 45
BURSTS, PLAYERS, ITEMS_EACH = 20, 60, 4
# each server also writes server, from_ms and to_ms into its rows; report() compares them with the ids
TABLES = """
    CREATE TABLE player (
        id INTEGER PRIMARY KEY {counter}, name TEXT, server TEXT, from_ms INTEGER, to_ms INTEGER);
    CREATE TABLE item (
        id INTEGER PRIMARY KEY {counter}, owner INTEGER NOT NULL REFERENCES player (id), kind TEXT,
        server TEXT, from_ms INTEGER, to_ms INTEGER);
"""
PLAYER, ITEM = "INSERT INTO player VALUES (?, ?, ?, ?, ?)", "INSERT INTO item VALUES (?, ?, ?, ?, ?, ?)"
KINDS = ("sword", "shield", "potion", "map")


def connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=30, isolation_level=None)
    database.executescript("PRAGMA journal_mode = wal; PRAGMA synchronous = normal; PRAGMA foreign_keys = on")
    return database


@contextlib.contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise


# --- one server process --------------------------------------------------------------------------------


def serve(name: str, directory: Path, url: str) -> None:
    shard = name.partition("-")[0]
    clock = StepClock()
    snowflakes, counters = connect(directory / f"{shard}.db"), connect(directory / f"{shard}-counters.db")
    with snowredis.connect(url, pool=POOL, layout=LAYOUT, label=name, clock=clock) as ids:
        ids.claim()
        print("ready", flush=True)
        sys.stdin.readline()
        burst = 0
        # the server that will be killed continues until then
        while burst < BURSTS or name == KILLED:
            if name == SET_BACK and burst == BURSTS // 2:
                clock.step(-SET_BACK_S * 1000)
            from_ms = clock.time_ns() // 1_000_000
            players, items = ids.next_ids(PLAYERS), ids.next_ids(PLAYERS * ITEMS_EACH)
            seen = (name, from_ms, clock.time_ns() // 1_000_000)
            with transaction(snowflakes):
                snowflakes.executemany(PLAYER, [(an_id, "player", *seen) for an_id in players])
                owners = [owner for owner in players for _ in range(ITEMS_EACH)]
                rows = zip(items, owners, strict=True)
                snowflakes.executemany(
                    ITEM, [(an_id, owner, random.choice(KINDS), *seen) for an_id, owner in rows]
                )
            with transaction(counters):
                for _ in players:
                    owner = counters.execute(PLAYER, (None, "player", *seen)).lastrowid
                    counters.executemany(ITEM, [(None, owner, kind, *seen) for kind in KINDS[:ITEMS_EACH]])
            burst += 1
            print(burst, flush=True)


# --- the fleet -----------------------------------------------------------------------------------------


def start(name: str, directory: Path, url: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--server", name, "--keep", str(directory), "--url", url]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def start_together(*processes: subprocess.Popen[str]) -> None:
    """Wait until all servers are ready, then let them begin at the same time."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def run_fleet(directory: Path, url: str) -> bool:
    """Run every server; return true if each ended as expected."""
    processes = {name: start(name, directory, url) for name in SERVERS}
    killed = processes[KILLED]
    try:
        start_together(*processes.values())
        assert killed.stdout is not None
        bursts = [killed.stdout.readline() for _ in range(3)]
        killed.kill()
        print(f"{KILLED} was killed with kill -9 in the middle; {IN_ITS_PLACE} takes its place")
        # the lease of the killed server lasts for another half minute, so this one claims another worker id
        processes[IN_ITS_PLACE] = start(IN_ITS_PLACE, directory, url)
        start_together(processes[IN_ITS_PLACE])
        print(f"{SET_BACK}'s clock was set back by {SET_BACK_S} s in the middle")
        bursts_of = {name: process.communicate(timeout=60)[0].split() for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    del bursts_of[KILLED], processes[KILLED]
    return (
        (killed.returncode, "" in bursts) == (-signal.SIGKILL, False)
        and all(process.returncode == 0 for process in processes.values())
        and all(len(lines) == BURSTS for lines in bursts_of.values())
    )


def read_claims(url: str) -> list[dict[str, int | str]]:
    """Read the claims from the pool's stream of events: worker id, the first ms of its reservation, and the process."""
    with redis.Redis.from_url(snowredis.embedded.resolve(url), decode_responses=True) as client:
        events = [event for _, event in client.xrange(f"snowredis:{{{POOL}}}:events")]
    return [
        {"worker": int(event["worker"]), "from_ms": int(event["from"]), **json.loads(event["owner"])}
        for event in events
        if event["event"] == "claimed"
    ]


def maker_finder(claims: list[dict[str, int | str]]) -> Callable[[int], str]:
    """Return a function from an id to the label of the server that made it.

    Reservations of a worker id never overlap, so the last claim that began before the id counts.
    """
    by_worker: dict[int, list[tuple[int, str]]] = {}
    for claim in claims:
        by_worker.setdefault(int(claim["worker"]), []).append((int(claim["from_ms"]), str(claim["label"])))

    def maker(an_id: int) -> str:
        parts = LAYOUT.decode(an_id)
        begun = [label for from_ms, label in by_worker[parts.worker] if from_ms <= parts.timestamp_ms]
        return begun[-1]

    return maker


# --- the merge -----------------------------------------------------------------------------------------


def merge(directory: Path, suffix: str) -> tuple[sqlite3.Connection, str]:
    """Copy every shard into one database with plain INSERTs; return it and the error, "" if there is none."""
    merged = connect(directory / f"merged{suffix}.db")
    merged.executescript(TABLES.format(counter="AUTOINCREMENT" if suffix else ""))
    for shard in SHARDS:
        merged.execute(f"ATTACH ? AS {shard}", (str(directory / f"{shard}{suffix}.db"),))
    try:
        with transaction(merged):
            for shard in SHARDS:
                merged.execute(f"INSERT INTO player SELECT * FROM {shard}.player")  # noqa: S608
                merged.execute(f"INSERT INTO item SELECT * FROM {shard}.item")  # noqa: S608
    except sqlite3.IntegrityError as error:
        return merged, str(error)
    return merged, ""


def count(database: sqlite3.Connection, sql: str) -> int:
    number: int = database.execute(f"SELECT count(*) FROM {sql}").fetchone()[0]  # noqa: S608
    return number


def report(directory: Path, claims: list[dict[str, int | str]]) -> list[tuple[str, bool]]:
    """Print the merged rows; return each check with true if it passed."""
    merged, error = merge(directory, "")
    maker = maker_finder(claims)
    columns = "id, server, from_ms, to_ms"
    rows = merged.execute(f"SELECT {columns} FROM player UNION ALL SELECT {columns} FROM item").fetchall()  # noqa: S608
    in_shards = sum(count(merged, f"{shard}.{table}") for shard in SHARDS for table in ("player", "item"))

    servers: dict[str, tuple[Counter[int], list[datetime]]] = {}
    right = True
    for an_id, server, from_ms, to_ms in rows:
        parts = LAYOUT.decode(an_id)
        made_by = maker(an_id)
        begins_ms = parts.timestamp_ms
        right = right and made_by == server and from_ms < begins_ms + LAYOUT.tick_ms and begins_ms <= to_ms
        workers, times = servers.setdefault(made_by, (Counter(), []))
        workers[parts.worker] += 1
        times.append(parts.time)

    print("\nthe ids of the merged database, in ticks of 10 s, with the labels from the pool's events:")
    print("(a worker id that was released is used by another server, for ticks that were not used)")
    for name, (workers, times) in sorted(servers.items()):
        numbers = ", ".join(f"worker id {worker}: {made:,} rows" for worker, made in sorted(workers.items()))
        print(f"  {name}   {min(times):%H:%M:%S} … {max(times):%H:%M:%S} UTC   {numbers}")

    counted, refusal = merge(directory, "-counters")
    both = sum(count(counted, f"eu.{table} JOIN us.{table} USING (id)") for table in ("player", "item"))
    of = sum(count(counted, f"{shard}.{table}") for shard in SHARDS for table in ("player", "item"))
    print(
        f"\nwith a counter for each shard: {refusal or 'no error'}; {both:,} ids of {of:,} rows are in both"
    )

    back_workers, back_times = servers.get(SET_BACK, (Counter(), []))
    back_s = (max(back_times) - min(back_times)).total_seconds() if back_times else 0
    checks = [
        (
            f"{len(rows):,} rows merged with plain INSERTs, none is missing",
            not error and len(rows) == in_shards > 0,
        ),
        (
            "every id is unique, over players and items of both shards",
            len({row[0] for row in rows}) == len(rows),
        ),
        ("foreign keys are intact", not merged.execute("PRAGMA foreign_key_check").fetchall()),
        ("each id names the server that wrote the row, and the 10 s in which it did", right),
        (
            "rows of the killed server, and of the one in its place, are there",
            {KILLED, IN_ITS_PLACE} <= set(servers),
        ),
        (
            f"{SET_BACK} continued with another worker id when its clock went back",
            len(back_workers) >= 2 and back_s >= SET_BACK_S - LAYOUT.tick_ms / 1000,
        ),
        ("merging the counters fails", "UNIQUE constraint failed" in refusal and both > 0),
    ]
    merged.close()
    counted.close()
    return checks


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--keep", type=Path, help="leave the databases in this directory, which must be empty"
    )
    parser.add_argument("--server", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.server:
        serve(options.server, options.keep, options.url)
        return 0
    with tempfile.TemporaryDirectory(prefix="shards") as temporary:
        directory: Path = (options.keep or Path(temporary)).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            parser.error(f"{directory} is not empty. Name another directory.")
        # a private Redis for this run
        home = Path(temporary).resolve() / "redis"
        url = f"embedded://{home}"
        snowredis.embedded.start(home)
        for shard in SHARDS:
            connect(directory / f"{shard}.db").executescript(TABLES.format(counter="")).close()
            connect(directory / f"{shard}-counters.db").executescript(
                TABLES.format(counter="AUTOINCREMENT")
            ).close()
        try:
            ended = run_fleet(directory, url)
            claims = read_claims(url)
        finally:
            snowredis.embedded.stop(home)
        (directory / "claims.json").write_text(json.dumps(claims, indent=1), "utf-8")
        checks = [("the other servers ended as expected", ended), *report(directory, claims)]
        print()
        for text, passed in checks:
            print(f"  {'ok    ' if passed else 'FAILED'} {text}")
        return 0 if all(passed for _, passed in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
