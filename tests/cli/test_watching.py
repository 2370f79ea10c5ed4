"""`workers`, `events`, `whois` and `pool show` in bad moments: who died, what is wrong, and how one worker is found."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import snowredis
from snowredis.process.names import owner_text
from snowredis.snowflake.protocol import ClaimRequest, PoolConfig, WorkerStats
from snowredis.snowflake.redis_store import RedisStore
from snowredis.snowflake.replies import Granted, Seen
from tests.support.records import change_record, record_of

Cli = Callable[..., Any]
# host and label of each worker id
FLEET = (("web-1", "api"), ("web-1", "api"), ("web-2", "api"), ("db-1", "jobs"))
# by the worker that died
IDS_MADE = 5


def end_lease(client: redis.Redis, pool: str, worker: int) -> None:
    # the script before has looked at all leases that end in its ms
    time.sleep(0.002)
    seconds, micros = client.time()
    now_ms = seconds * 1000 + micros // 1000
    # lease and reservation end now, and it had renewed once: a claim without a renewal is no death
    claimed_ms = record_of(client, pool, worker).renewed_ms - 9
    stats = WorkerStats(ids_made=IDS_MADE)
    change_record(client, pool, worker, until_ms=now_ms, lease_end_ms=now_ms, claimed_ms=claimed_ms, stats=stats)


@pytest.fixture
def fleet(client: redis.Redis, pool_name: str) -> Iterator[str]:
    """A pool with three living workers, and one, worker 2, that just died."""
    store, now_ms = RedisStore(client, PoolConfig(name=pool_name, outage_reserve_ms=0)), time.time_ns() // 1_000_000
    store.create(now_ms)
    for host, label in FLEET:
        owner = owner_text(host, 7, label)
        claimed = store.claim(ClaimRequest(secrets.token_hex(8), now_ms, now_ms, 0, owner), Seen())
        assert isinstance(claimed, Granted)
    end_lease(client, pool_name, 2)
    yield pool_name
    for key in client.scan_iter(f"snowredis:{{{pool_name}*", count=1000):
        client.delete(key)


def rows(text: str) -> list[list[str]]:
    """Words of the lines of a table below its head, which begins with "worker"."""
    lines = text.splitlines()
    at = max(number for number, line in enumerate(lines) if line.split()[:1] == ["worker"])
    return [line.split() for line in lines[at + 1 :]]


def test_a_dead_worker_is_on_top_with_when_and_who(cli: Cli, fleet: str) -> None:
    shown = cli("workers", "--pool", fleet).out
    assert "status warning: 1 gone without a release" in shown
    assert "ended without a release in the last hour: 1 worker" in shown
    assert "worker 2 on web-2:7 (api)" in " ".join(shown.split())
    assert [row[0] for row in rows(shown)] == ["0", "1", "3"]
    found = json.loads(cli("workers", "--pool", fleet, "--json").out)
    (death,) = found["deaths"]
    assert (death["worker"], death["host"], death["kind"]) == (2, "web-2", "expired")
    assert death["at"].endswith("Z")
    assert [worker["worker"] for worker in found["workers"]] == [0, 1, 3]
    assert "token" not in json.dumps(found)
    for name, argv in (("pool", ["pool", "show", fleet]), ("doctor", ["doctor", "--pool", fleet])):
        assert "1 worker sent no heartbeat until" in " ".join(cli(*argv).out.split()), name


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--host", "web-*"], [0, 1]),
        (["--label", "jobs"], [3]),
        (["--host", "web-1", "--label", "jobs"], []),
        (["--state", "healthy", "--host", "db-?"], [3]),
        (["--state", "silent"], []),
        (["--state", "expired"], [2]),
        (["--all", "--label", "api"], [0, 1, 2]),
    ],
)
def test_workers_are_found_by_state_host_and_label(
    cli: Cli, fleet: str, options: list[str], numbers: list[int]
) -> None:
    found = json.loads(cli("workers", "--pool", fleet, "--json", *options).out)
    assert [worker["worker"] for worker in found["workers"]] == numbers
    shown = cli("workers", "--pool", fleet, *options).out
    assert "no worker matches" in shown if not numbers else [int(row[0]) for row in rows(shown)] == numbers


def test_a_group_is_one_line_with_its_deaths(cli: Cli, fleet: str) -> None:
    lines = cli("workers", "--pool", fleet, "--group-by", "host").out.splitlines()
    head, *groups = [line.split() for line in lines[lines.index("") + 1 :]]
    assert head[:2] == ["host", "workers"]
    # host, workers, healthy, late, silent, no-ids, unknown, died
    assert [group[:8] for group in groups] == [
        ["db-1", "1", "1", "0", "0", "0", "0", "0"],
        ["web-1", "2", "2", "0", "0", "0", "0", "0"],
        ["web-2", "0", "0", "0", "0", "0", "0", "1"],
    ]


def test_events_are_chosen_by_kind_and_worker_id(cli: Cli, fleet: str) -> None:
    def kinds(*options: str) -> list[tuple[str, Any]]:
        lines = cli("events", "--pool", fleet, "--json", *options).out.splitlines()
        return [(event["kind"], event.get("worker")) for event in map(json.loads, lines)]

    assert kinds("--kind", "expired") == [("expired", 2)]
    assert kinds("--worker", "2") == [("claimed", 2), ("expired", 2)]
    assert kinds("--kind", "claimed", "--kind", "floor", "-n", "2") == [("claimed", 2), ("claimed", 3)]
    event = json.loads(cli("events", "--pool", fleet, "--json", "--kind", "expired").out)
    assert event["id"] is None
    assert set(event) >= {"key", "at", "host", "pid", "until", "claimed_at", "heartbeat_at"}
    assert event["stats"]["ids_made"] == IDS_MADE


def test_a_death_that_was_acknowledged_is_no_warning_for_any_command(cli: Cli, fleet: str) -> None:
    options = ("--pool", fleet)
    assert "1 gone" in cli("workers", *options).out
    assert cli("doctor", *options).code != 0
    done = cli("workers", *options, "--acknowledge")
    assert (done.code, f"fell silent in pool {fleet} up to 20" in done.err) == (0, True)
    assert "acknowledged" in done.out
    for command in (("workers", *options), ("pool", "show", fleet)):
        shown = cli(*command).out
        assert "1 gone" not in shown
        assert "acknowledged: 1 worker sent no heartbeat" in " ".join(shown.split())
    (line,) = [line for line in cli("doctor", *options).out.splitlines() if "1 worker sent no" in line]
    assert line.startswith("ok ")
    state = json.loads(cli("workers", *options, "--json").out)
    assert [death["acknowledged"] for death in state["deaths"]] == [True]
    assert state["status"]["level"] == "notice"


def test_of_no_events_none_are_shown(cli: Cli, fleet: str) -> None:
    assert cli("events", "--pool", fleet, "-n", "0").out == ""
    assert len(cli("events", "--pool", fleet, "-n", "1").out.splitlines()) == 1


def test_times_are_in_utc_or_of_this_host(cli: Cli, fleet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        for options, zone in (((), "Z"), (("--local",), "+09:00")):
            (line,) = cli("events", "--pool", fleet, "--kind", "expired", *options).out.splitlines()
            assert line.split()[0].endswith(zone)
            assert f"{zone} " in cli("workers", "--pool", fleet, *options).out
    finally:
        monkeypatch.undo()
        time.tzset()


def test_whois_says_who_has_the_worker_id_now(cli: Cli, fleet: str, server_url: str) -> None:
    with snowredis.connect(server_url, pool=fleet, label="heir", outage_reserve=0) as ids:
        an_id = str(ids.next_id())
        assert "the same process, healthy" in cli("whois", an_id, "--pool", fleet).out
    assert "no process has it" in cli("whois", an_id, "--pool", fleet).out
    found = json.loads(cli("whois", an_id, "--pool", fleet, "--json").out)
    assert (found["id"], found["worker_now"]["state"]) == (an_id, "free")
    assert found["holder"]["ended_at"].endswith("Z")


def test_a_named_pool_is_checked_however_many_there_are(cli: Cli, fleet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snowredis.monitor.doctor.MAX_POOLS", 1)
    assert (cli("pool", "create", "0").code, f"pool {fleet}" in cli("doctor", "--pool", fleet).out) == (0, True)
