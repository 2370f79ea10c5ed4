"""`workers`, `events`, `whois` and `pool show` in bad moments: who died, what is wrong, and how one worker is found."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import snowredis
from snowredis.core.as_json import to_json
from snowredis.core.decoded import decoded
from snowredis.process.names import owner_text
from snowredis.snowflake.protocol.messages import ClaimRequest, Granted, Seen, WorkerStats
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.redis_store import RedisStore
from tests.support import warm
from tests.support.holder import create
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
    create(store, now_ms)
    for host, label in FLEET:
        owner = owner_text(host, 7, label)
        claimed = store.ask(ClaimRequest(Seen(), now_ms, secrets.token_hex(8), owner))
        assert isinstance(claimed, Granted)
    end_lease(client, pool_name, 2)
    yield pool_name
    for key in client.scan_iter(f"snowredis:{{{pool_name}*", count=1000):
        client.delete(key)


def test_a_lease_that_expired_is_shown_with_when_and_who(cli: Cli, fleet: str) -> None:
    shown = cli("workers", "--pool", fleet).out
    assert "status warning: 1 silent" in shown
    (row,) = [line.split() for line in shown.splitlines() if line.split()[:2] == ["2", "expired"]]
    assert row[2:5] == ["web-2", "7", "api"]
    found = json.loads(cli("workers", "--pool", fleet, "--json").out)
    assert [(lease["worker"], lease["state"]) for lease in found["leases"]] == [
        (0, "alive"),
        (1, "alive"),
        (3, "alive"),
        (2, "expired"),
    ]
    assert (found["leases"][3]["ids_made"], found["leases"][3]["ends_at"][-1]) == (IDS_MADE, "Z")
    assert "token" not in json.dumps(found)
    for name, argv in (("pool", ["pool", "show", fleet]), ("doctor", ["doctor", "--pool", fleet])):
        assert "1 worker (2 on web-2:7) sent no heartbeat since" in " ".join(cli(*argv).out.split()), name


def test_json_of_a_command_is_that_of_the_api_byte_by_byte(cli: Cli, fleet: str, server_url: str) -> None:
    def lines(*records: object) -> str:
        return "".join(f"{json.dumps(to_json(record))}\n" for record in records)

    def steady(text: str) -> str:
        """Leave out the time of the reading."""
        return re.sub(r'"at": "[^"]+"', "", text)

    with contextlib.closing(snowredis.WorkerPool(server_url, fleet)) as pool:
        an_id = 1 << 40
        assert cli("events", "--pool", fleet, "--json").out == lines(*pool.events())
        assert steady(cli("workers", "--pool", fleet, "--json").out) == steady(lines(pool.read()))
        assert steady(cli("pool", "show", fleet, "--json").out) == steady(lines(pool.info()))
        shown = cli("whois", str(an_id), str(an_id + 1), "--pool", fleet, "--json").out
        assert steady(shown) == steady(lines(*pool.whois_all([an_id, an_id + 1])))
    assert cli("decode", str(an_id), "--json").out == lines(decoded(snowredis.Layout(), an_id, "decimal"))


def test_a_named_pool_is_checked_however_many_there_are(cli: Cli, fleet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snowredis.monitor.doctor.MAX_POOLS", 1)
    assert (cli("pool", "create", "0").code, f"pool {fleet}" in cli("doctor", "--pool", fleet).out) == (0, True)


@pytest.mark.parametrize(
    "words",
    [["doctor", "--pool", "nonexist"], ["decode", "!!!"], ["nonsense"], ["workers", "--pool", "nonexist"]],
    ids=" ".join,
)
def test_a_reader_that_has_gone_changes_no_exit_code(
    command: Callable[..., list[str]], process_environment: dict[str, str], words: list[str]
) -> None:
    want = warm.run(command(*words), env=process_environment, capture_output=True, check=False).returncode
    reading, writing = os.pipe()
    os.close(reading)
    got = warm.run(command(*words), env=process_environment, stdout=writing, stderr=writing, check=False).returncode
    os.close(writing)
    assert want
    assert got == want
