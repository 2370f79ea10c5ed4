"""`workers`, `events` and `whois`: who died, what happened, who made an id, and how it can stand in two tables."""

import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator

import pytest
import redis

import snowredis
from snowredis.core.as_json import decoded, to_json
from snowredis.process.names import owner_text
from snowredis.snowflake.protocol.messages import ClaimRequest, Granted, Seen, WorkerStats
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.redis_store import RedisStore
from tests.cli.conftest import Cli
from tests.support import warm
from tests.support.holder import create
from tests.support.records import change_record, record_of

pytestmark = pytest.mark.usefixtures("nothing_left")
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
def fleet(client: redis.Redis, pool_name: str) -> str:
    """A pool with three living workers, and one, worker 2, that just died."""
    store, now_ms = RedisStore(client, PoolConfig(name=pool_name, outage_reserve_ms=0)), time.time_ns() // 1_000_000
    create(store, now_ms)
    for host, label in FLEET:
        owner = owner_text(host, 7, label)
        claimed = store.ask(ClaimRequest(Seen(), now_ms, secrets.token_hex(8), owner))
        assert isinstance(claimed, Granted)
    end_lease(client, pool_name, 2)
    return pool_name


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


def test_json_of_a_command_is_that_of_the_api_byte_by_byte(
    cli: Cli, fleet: str, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # both readings are of one moment: texts say how long is left
    now_ms = time.time_ns() // 1_000_000
    monkeypatch.setattr("snowredis.monitor.pool_reader.server_now_ms", lambda *_: now_ms)

    def lines(*records: object) -> str:
        return "".join(f"{json.dumps(to_json(record))}\n" for record in records)

    with contextlib.closing(snowredis.WorkerPool(server_url, fleet)) as pool:
        an_id = 1 << 40
        assert cli("events", "--pool", fleet, "--json").out == lines(*pool.events())
        assert cli("workers", "--pool", fleet, "--json").out == lines(pool.read())
        assert cli("pool", "show", fleet, "--json").out == lines(pool.info())
        shown = cli("whois", str(an_id), str(an_id + 1), "--pool", fleet, "--json").out
        assert shown == lines(*pool.whois_all([an_id, an_id + 1]))
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


# --- events ----------------------------------------------------------------------------------------


def test_the_newest_are_shown_one_a_line(
    cli: Cli, pool_name: str, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("pool", "create", pool_name)
    for number in range(3):
        with snowredis.connect(server_url, pool=pool_name, label=f"n{number}") as ids:
            ids.next_id()
    monkeypatch.setattr("snowredis.cli.commands.workers.NEWEST_EVENTS", 3)
    result = cli("events", "--pool", pool_name, code=0)
    assert [line.split()[1] for line in result.out.splitlines()[1:]] == ["released", "claimed", "released"]
    assert "n2" in result.out
    everything = [json.loads(line) for line in cli("events", "--pool", pool_name, "--json").out.splitlines()]
    assert [event["kind"] for event in everything] == ["floor", *["claimed", "released"] * 3]
    assert (everything[0]["reason"], everything[0]["text"]) == ("no-pool", "the pool was created as a new one")
    assert everything[1]["label"] == "n0"


def test_events_that_somebody_made_up_do_nothing(cli: Cli, pool_name: str, client: redis.Redis) -> None:
    cli("pool", "create", pool_name)
    key = f"snowredis:{{{pool_name}}}:events"
    client.xadd(key, {"event": "alarm", "worker": "-1", "at": "99999999999999", "reason": "\x1b[2J\u202ealarm"})
    client.xadd(key, {"event": "claimed", "worker": "1", "at": "-5", "owner": "[" * 5000, "until": "-1"})
    client.xadd(key, {"something": "else"})
    result = cli("events", "--pool", pool_name, code=0)
    # no time is negative
    assert len(result.out.splitlines()) == 1 + 2
    assert all(char == "\n" or char.isprintable() for char in result.out)


# --- whois -----------------------------------------------------------------------------------------


@pytest.fixture
def ids(cli: Cli, pool_name: str, server_url: str) -> Iterator[snowredis.SnowflakeGenerator]:
    cli("pool", "create", pool_name)
    with snowredis.connect(server_url, pool=pool_name, label="web 1") as made:
        yield made


def test_it_says_host_pid_label_and_lease(cli: Cli, pool_name: str, ids: snowredis.SnowflakeGenerator) -> None:
    an_id = ids.next_id()
    result = cli("whois", str(an_id), "--pool", pool_name)
    assert (result.code, result.err) == (0, "")
    for part in (str(an_id), socket.gethostname(), str(os.getpid()), "web 1", "alive", "certain"):
        assert part in result.out
    ids.close()
    assert "released" in cli("whois", str(an_id), "--pool", pool_name).out


def test_any_form_of_an_id_will_do(cli: Cli, pool_name: str, ids: snowredis.SnowflakeGenerator) -> None:
    an_id = ids.next_id()
    text = snowredis.encode(an_id, "base62")
    found = json.loads(cli("whois", text, "--json", "--pool", pool_name).out)
    assert found["id"] == str(an_id)
    assert found["maker"]["label"] == "web 1"
    assert found["certainty"] == "certain"
    assert cli("whois", "no id!", "--pool", pool_name).code == 3


def test_what_cannot_be_known_is_said_so_with_another_exit_code(
    cli: Cli, pool_name: str, ids: snowredis.SnowflakeGenerator
) -> None:
    an_id = ids.next_id() + (1 << 60)
    result = cli("whois", str(an_id), "--pool", pool_name, code=1)
    assert "unknown" in result.out
    assert "future" in result.out


def test_two_different_ids_are_two_answers(cli: Cli, pool_name: str, ids: snowredis.SnowflakeGenerator) -> None:
    one, two = map(str, ids.next_ids(2))
    lines = cli("whois", one, two, one, "--pool", pool_name, "--json").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [one, two]


def test_who_made_an_id_of_a_deleted_pool_is_unknown(
    cli: Cli, pool_name: str, ids: snowredis.SnowflakeGenerator
) -> None:
    an_id = str(ids.next_id())
    ids.close()
    assert cli("pool", "delete", pool_name, "--yes").code == 0
    gone = cli("whois", an_id, "--pool", pool_name)
    assert (gone.code, gone.out, f"there is no pool {pool_name!r}" in gone.err) == (5, "", True)
    # the next pool of that name knows nothing of the one before
    assert cli("pool", "create", pool_name, "--yes").code == 0
    found = json.loads(cli("whois", an_id, "--pool", pool_name, "--json").out)
    assert (found["certainty"], found["maker"]) == ("unknown", None)
