# Type:     python examples/game_shards.py
# Needs:    pip install 'snowredis[merge]'; and redis-server, or else pip install 'fakeredis[lua]'
# You see:  two game shards, each with its own Redis and its own database, numbered by a tag, make players and
#           items in bursts; a server is killed with kill -9, another's clock is set back by 12 s; then both databases
#           are merged with plain INSERTs, and nothing clashes. The same with AUTOINCREMENT clashes: `snowredis merge
#           check` finds every clash, and `merge draft` and `merge run` merge without any. With --keep DIR the
#           databases are kept there.

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
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import redis

import snowredis
from snowredis.cli.fleet import StepClock

LAYOUT = snowredis.layouts["game-shards"]
SHARDS = ("eu", "us")
SERVERS = [f"{shard}-{number}" for shard in SHARDS for number in (1, 2, 3)]
KILLED, IN_ITS_PLACE, SET_BACK = "eu-2", "eu-4", "us-2"
SET_BACK_S = 12
AHEAD_MS = 10_300
BURSTS, PLAYERS, ITEMS_EACH = 8, 40, 4
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


def url_of(home: Path, name: str) -> str:
    """Return the URL of a private Redis: of a shard, or of the tag that numbers them."""
    return f"embedded://{home / name}"


def serve(name: str, directory: Path, home: Path) -> None:
    shard = name.partition("-")[0]
    clock, began_s = StepClock(), time.monotonic()
    snowflakes, counters = connect(directory / f"{shard}.db"), connect(directory / f"{shard}-counters.db")
    settings: snowredis.connection.Settings = {
        "layout": LAYOUT,
        "datacenter": "auto",
        # a burst borrows ticks ahead of the clock instead of waiting for them
        "max_ahead_ms": AHEAD_MS,
    }
    with snowredis.connect(url_of(home, shard), pool=f"shard-{shard}", label=name, clock=clock, **settings) as ids:
        ids.claim()
        print("ready", flush=True)
        sys.stdin.readline()
        burst = 0
        # the server that will be killed continues until then
        while burst < BURSTS or name == KILLED:
            if name == SET_BACK and burst == BURSTS // 2 - 1:
                # no ids have times before the pool began
                time.sleep(max(0.0, began_s + SET_BACK_S - time.monotonic()))
            if name == SET_BACK and burst == BURSTS // 2:
                clock.step(-SET_BACK_S * 1000)
            from_ms = clock.time_ns() // 1_000_000
            players, items = ids.next_ids(PLAYERS), ids.next_ids(PLAYERS * ITEMS_EACH)
            seen = (name, from_ms, clock.time_ns() // 1_000_000)
            with transaction(snowflakes):
                snowflakes.executemany(PLAYER, [(an_id, "player", *seen) for an_id in players])
                owners = [owner for owner in players for _ in range(ITEMS_EACH)]
                rows = zip(items, owners, strict=True)
                snowflakes.executemany(ITEM, [(an_id, owner, random.choice(KINDS), *seen) for an_id, owner in rows])
            with transaction(counters):
                for _ in players:
                    owner = counters.execute(PLAYER, (None, "player", *seen)).lastrowid
                    counters.executemany(ITEM, [(None, owner, kind, *seen) for kind in KINDS[:ITEMS_EACH]])
            burst += 1
            print(burst, flush=True)


# --- the fleet -----------------------------------------------------------------------------------------


def snowredis_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command `snowredis`."""
    command = [sys.executable, "-m", "snowredis", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def number_shards(home: Path) -> None:
    """Create the tag, and each shard's pool with a number of it, as an operator would."""
    numbers = url_of(home, "numbers")
    commands = [("numbers", "create", "shards", "--url", numbers, "--layout", "game-shards")]
    for shard in SHARDS:
        create = ("pool", "create", f"shard-{shard}", "--url", url_of(home, shard), "--layout", "game-shards")
        commands.append((*create, "--datacenter", "auto", "--numbers-url", numbers))
    for command in commands:
        done = snowredis_command(*command)
        print(done.stdout.partition("\n")[0].partition(" at ")[0] or done.stderr)


def start(name: str, directory: Path, home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--server", name, "--keep", str(directory), "--home", str(home)]
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


def run_fleet(directory: Path, home: Path) -> bool:
    """Run every server; return true if each ended as expected."""
    processes = {name: start(name, directory, home) for name in SERVERS}
    killed = processes[KILLED]
    try:
        start_together(*processes.values())
        assert killed.stdout is not None
        bursts = [killed.stdout.readline() for _ in range(3)]
        killed.kill()
        print(f"{KILLED} was killed with kill -9 in the middle; {IN_ITS_PLACE} takes its place")
        # the lease of the killed server lasts for another half minute, so this one claims another worker id
        processes[IN_ITS_PLACE] = start(IN_ITS_PLACE, directory, home)
        start_together(processes[IN_ITS_PLACE])
        print(f"{SET_BACK}'s clock was set back by {SET_BACK_S} s in the middle")
        bursts_of = {name: process.communicate(timeout=200)[0].split() for name, process in processes.items()}
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


def read_claims(home: Path) -> list[dict[str, Any]]:
    """Read the claims from both pools' streams: shard number, worker id, first ms of each lane, and the process."""
    claims = []
    for shard in SHARDS:
        url = snowredis.embedded.join(url_of(home, shard)).url
        with redis.Redis.from_url(url, decode_responses=True) as client:
            number = snowredis.WorkerPool(client, f"shard-{shard}").info().options["datacenter"]
            events = [event for _, event in client.xrange(f"snowredis:{{shard-{shard}}}:events")]
        claims += [
            {
                "shard": number,
                "worker": int(event["worker"]),
                "lanes": [int(ms) for ms in event["lanes"].split(",")],
                **json.loads(event["owner"]),
            }
            for event in events
            if event["event"] == "claimed"
        ]
    return claims


def maker_finder(claims: list[dict[str, Any]]) -> Callable[[int], str]:
    """Return a function from an id to the label of the server that made it.

    Reservations of a lane never overlap, so the last claim that began before the id counts.
    """
    by_worker: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for claim in claims:
        by_worker.setdefault((claim["shard"], claim["worker"]), []).append(claim)

    def maker(an_id: int) -> str:
        parts = LAYOUT.decode(an_id)
        begun = [
            str(claim["label"])
            for claim in by_worker[parts.datacenter, parts.worker]
            if claim["lanes"][parts.backup] <= parts.timestamp_ms
        ]
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


def check(directory: Path, suffix: str, *tables: str) -> tuple[int, int]:
    """Run `snowredis merge check` on tables of both shards; return its exit code and how many ids exist twice."""
    sources = [
        f"{shard}-{table}=sqlite:///{directory / f'{shard}{suffix}.db'}#{table}.id"
        for shard in SHARDS
        for table in tables
    ]
    layout = "default" if suffix else "game-shards"
    done = snowredis_command("merge", "check", *sources, "--layout", layout, "--json")
    return done.returncode, json.loads(done.stdout)["repeated_ids"] if done.stdout else -1


def mend(directory: Path) -> tuple[str, list[str]]:
    """Merge the databases with counters by `snowredis merge draft` and `run`; return errors and output."""
    first, second = (directory / f"mended-{shard}.db" for shard in SHARDS)
    for shard, copy in zip(SHARDS, (first, second), strict=True):
        with contextlib.closing(connect(directory / f"{shard}-counters.db")) as database:
            database.execute("VACUUM INTO ?", (str(copy),))
    urls = f"sqlite:///{first}", f"sqlite:///{second}"
    drafted = snowredis_command("merge", "draft", *urls)
    # here every guess is right; a person reads each line
    path = directory / "game.map"
    path.write_text(drafted.stdout.replace("reviewed = false", "reviewed = true"))
    merged = snowredis_command("merge", "run", path, *urls)
    wrong = "".join(done.stdout + done.stderr for done in (drafted, merged) if done.returncode)
    return wrong, merged.stdout.splitlines()


def report(directory: Path, claims: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Print the merged rows; return each check with true if it passed."""
    merged, error = merge(directory, "")
    maker = maker_finder(claims)
    columns = "id, server, from_ms, to_ms"
    rows = merged.execute(f"SELECT {columns} FROM player UNION ALL SELECT {columns} FROM item").fetchall()  # noqa: S608
    in_shards = sum(count(merged, f"{shard}.{table}") for shard in SHARDS for table in ("player", "item"))

    servers: dict[str, tuple[Counter[tuple[int, int, int]], list[datetime]]] = {}
    right = True
    for an_id, server, from_ms, to_ms in rows:
        parts = LAYOUT.decode(an_id)
        made_by = maker(an_id)
        # a burst runs ahead of the clock
        soon_enough = parts.timestamp_ms <= to_ms + AHEAD_MS
        right = right and made_by == server and from_ms < parts.timestamp_ms + LAYOUT.tick_ms and soon_enough
        lanes, times = servers.setdefault(made_by, (Counter(), []))
        lanes[parts.datacenter, parts.worker, parts.backup] += 1
        times.append(parts.time)

    print("\nthe ids of the merged database, with the labels from the pools' events:")
    for name, (lanes, times) in sorted(servers.items()):
        numbers = ", ".join(
            f"shard {shard} worker id {worker} namespace {namespace}: {made:,} rows"
            for (shard, worker, namespace), made in sorted(lanes.items())
        )
        print(f"  {name}   {min(times):%H:%M:%S} … {max(times):%H:%M:%S} UTC   {numbers}")

    back_lanes, back_times = servers.get(SET_BACK, (Counter(), []))
    back_s = (max(back_times) - min(back_times)).total_seconds() if back_times else 0
    checks = [
        (f"{len(rows):,} rows merged with plain INSERTs, none is missing", not error and len(rows) == in_shards > 0),
        ("every id is unique, over players and items of both shards", len({row[0] for row in rows}) == len(rows)),
        ("foreign keys are intact", not merged.execute("PRAGMA foreign_key_check").fetchall()),
        ("each id names the server that wrote the row, and when it did", right),
        ("rows of the killed server, and of the one in its place, are there", {KILLED, IN_ITS_PLACE} <= set(servers)),
        (
            f"{SET_BACK} continued in another namespace when its clock went back",
            len({lane[2] for lane in back_lanes}) == 2 and back_s >= SET_BACK_S - AHEAD_MS / 1000,
        ),
    ]
    merged.close()
    return checks


def report_of_counters(directory: Path) -> list[tuple[str, bool]]:
    """Merge the databases with counters, in vain, then with `snowredis merge`; return each check."""
    counted, refusal = merge(directory, "-counters")
    tables = ("player", "item")
    both = sum(count(counted, f"eu.{table} JOIN us.{table} USING (id)") for table in tables)
    of = sum(count(counted, f"{shard}.{table}") for shard in SHARDS for table in tables)
    owned = count(counted, "eu.item JOIN eu.player ON player.id = owner")
    owned += count(counted, "us.item JOIN us.player ON player.id = owner")
    counted.close()
    print(f"\nwith a counter for each shard: {refusal or 'no error'}; {both:,} ids of {of:,} rows are in both")
    checks = [("merging the counters fails", "UNIQUE constraint failed" in refusal and both > 0)]
    try:
        import duckdb  # noqa: F401 - merge check needs it
        import sqlalchemy  # noqa: F401
    except ImportError:
        print("snowredis merge is not installed: pip install 'snowredis[merge]'")
        return checks
    _, clashes = check(directory, "", *tables)
    bad = [check(directory, "-counters", table) for table in tables]
    found = sum(ids for _, ids in bad)
    print(f"snowredis merge check: {found:,} ids exist twice")
    wrong, output = mend(directory)
    for line in output:
        print(f"  {line}")
    with contextlib.closing(connect(directory / "mended-eu.db")) as mended:
        rows = sum(count(mended, table) for table in tables)
        intact = not mended.execute("PRAGMA foreign_key_check").fetchall()
        still_owned = count(mended, "item JOIN player ON player.id = owner AND player.server = item.server")
    return [
        *checks,
        ("merge check finds no id twice in the shards that were numbered", clashes == 0),
        ("merge check finds every clash of the counters", found == both and {code for code, _ in bad} == {10}),
        (f"merge draft and run mend it: {rows:,} rows in one database", not wrong and rows == of),
        ("… and every item has the owner that it had", intact and still_owned == owned),
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=Path, help="leave the databases in this directory, which must be empty")
    parser.add_argument("--server", help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.server:
        serve(options.server, options.keep, options.home)
        return 0
    with tempfile.TemporaryDirectory(prefix="shards") as temporary:
        directory: Path = (options.keep or Path(temporary) / "databases").resolve()
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            parser.error(f"{directory} is not empty. Name another directory.")
        for shard in SHARDS:
            connect(directory / f"{shard}.db").executescript(TABLES.format(counter="")).close()
            connect(directory / f"{shard}-counters.db").executescript(TABLES.format(counter="AUTOINCREMENT")).close()
        # a private Redis for each shard, and one for their numbers
        home = Path(temporary).resolve()
        homes = [home / name for name in (*SHARDS, "numbers")]
        try:
            for each in homes:
                snowredis.embedded.start(each)
            number_shards(home)
            ended = run_fleet(directory, home)
            claims = read_claims(home)
        finally:
            for each in homes:
                snowredis.embedded.stop(each)
        (directory / "claims.json").write_text(json.dumps(claims, indent=1), "utf-8")
        checks = [("the other servers ended as expected", ended), *report(directory, claims)]
        checks += report_of_counters(directory)
        print()
        for text, passed in checks:
            print(f"  {'ok    ' if passed else 'FAILED'} {text}")
        return 0 if all(passed for _, passed in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
