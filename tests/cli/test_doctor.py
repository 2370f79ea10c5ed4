"""`doctor`: findings on badly configured servers, and exit codes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.monitor import checks
from snowredis.monitor.checks import ok
from snowredis.servers import runner
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.worker_pool import WorkerPool
from tests.cli.conftest import Cli
from tests.support.servers import RedisServer, redis_server


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path, "--appendonly", "yes") as running:
        yield running


@pytest.fixture(autouse=True)
def good_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the checks of the host that the tests run on."""
    monkeypatch.setattr(checks, "check_crash_records", lambda: ok("not checked here"))


def found(offline: Cli, server: RedisServer, *argv: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
    result = offline("doctor", "--json", "--url", server.url, *argv)
    by_check: dict[str, list[dict[str, str]]] = {}
    for line in result.out.splitlines():
        each = json.loads(line)
        by_check.setdefault(each["subject"] or each["code"], []).append(each)
    return result.code, by_check


def make(server: RedisServer, name: str, **settings: Any) -> None:
    WorkerPool(server.url, name).create(PoolConfig(name=name, **settings))


def bad(findings: dict[str, list[dict[str, str]]]) -> list[tuple[str, str]]:
    return [
        (check, one["level"])
        for check, several in findings.items()
        for one in several
        if one["level"] in ("warning", "critical")
    ]


def test_where_all_is_well_it_exits_with_0(offline: Cli, own: RedisServer) -> None:
    make(own, "orders")
    with snowredis.connect(own.url, pool="orders") as ids:
        ids.next_id()
        code, findings = found(offline, own)
    assert (code, bad(findings)) == (0, [])
    of_the_server = {"redis", "eviction", "persistence", "replication", "clock", "rights"}
    assert set(findings) >= of_the_server | {"crash records", "pool orders"}
    assert "0 critical, 0 warning" in offline("doctor", "--url", own.url).out


def test_every_finding_that_is_not_good_says_what_to_do(offline: Cli, own: RedisServer) -> None:
    client = own.client()
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.config_set("maxmemory", "100mb")
    client.config_set("appendonly", "no")
    make(own, "orders", layout=snowredis.Layout(worker_bits=1, backup_bits=0))
    make(own, "invoices", layout=snowredis.Layout(worker_bits=1, backup_bits=0))
    client.hset("snowredis:{orders}", mapping={"alarms": 1, "mismatch": "1|\x1b[31m"})
    for junk in ("junk", "", "no name"):
        client.set(f"snowredis:{{{junk}}}", "of another program")
    options: Any = {"pool": "orders", "layout": snowredis.Layout(worker_bits=1, backup_bits=0), "label": "same"}
    with snowredis.connect(own.url, **options) as one, snowredis.connect(own.url, **options) as two:
        one.next_id()
        two.next_id()
        code, findings = found(offline, own)
        shown = offline("doctor", "--url", own.url, "--pool", "orders")
    assert code == 9
    assert sorted(bad(findings)) == sorted(
        [
            ("eviction", "critical"),
            ("persistence", "warning"),
            ("pool orders", "critical"),  # the alarm
            ("pool orders", "critical"),  # full
            ("pool junk", "warning"),
            ("pool no name", "warning"),
        ]
    )
    for several in findings.values():
        assert all(one["advice"] for one in several if one["level"] in ("warning", "critical"))
    assert shown.code == 9
    assert all(char == "\n" or char.isprintable() for char in shown.out)
    assert "pool invoices" not in shown.out


@pytest.mark.parametrize(
    ("durability", "level", "text"),
    [
        ("detect", "critical", "with this URL no worker id can be leased: it refuses INFO inside scripts"),
        ("assured", "ok", "the creator of the pool stated that no acknowledged write is lost"),
        ("none", "ok", "every new worker waits 35.0 s"),
    ],
)
def test_of_a_pool_on_a_server_without_info_it_says_what_its_durability_means(
    offline: Cli, tmp_path: Path, durability: str, level: str, text: str
) -> None:
    key = "snowredis:{orders}"
    with redis_server(tmp_path, "--rename-command", "INFO", "") as silent:
        make(silent, "orders", durability="none")
        if durability != "none":
            signature = PoolConfig(name="orders", durability=durability).signature
            silent.client().hset(key, "signature", signature)
        findings = found(offline, silent)[1]
    (finding,) = [one for one in findings["pool orders"] if one["code"] == "durability"]
    assert finding["level"] == level
    assert text in finding["text"]
    for remedy in ("+info", "--durability assured", "--durability none"):
        assert remedy in finding["advice"] or level == "ok"


def test_while_redis_takes_no_writes_nobody_may_deploy(offline: Cli, own: RedisServer) -> None:
    make(own, "orders")
    with snowredis.connect(own.url, pool="orders") as ids:
        ids.next_id()
        own.client().config_set("maxmemory", 1)
        said = {one["code"]: one["text"] for one in found(offline, own)[1]["pool orders"]}
        own.client().config_set("maxmemory", 0)
    assert "may I deploy now? no: Redis takes no renewals" in said["deploy"]
    assert "may I restart Redis now? unknown" in said["restart"]


def test_an_assured_pool_on_a_redis_without_a_log_is_a_warning(offline: Cli, own: RedisServer) -> None:
    own.client().config_set("appendonly", "no")
    make(own, "orders", durability="assured")
    texts = [one["text"] for one in found(offline, own)[1]["pool orders"] if one["level"] == "warning"]
    assert len(texts) == 1
    assert "a restart loses acknowledged writes" in texts[0]


def test_a_redis_that_does_not_answer_has_its_own_exit_code(offline: Cli, tmp_path: Path) -> None:
    result = offline("doctor", "--url", f"unix://{tmp_path}/nobody.sock", code=4)
    assert "critical" in result.out
    assert "nothing else was checked. Meanwhile, do not restart workers" in " ".join(result.out.split())
    listed = offline("workers", "--url", f"unix://{tmp_path}/nobody.sock", code=4)
    assert "Meanwhile, do not restart workers: those with ids go on" in listed.err


def test_replicas_without_a_slack_are_warned_of(own: RedisServer) -> None:
    finding = checks._replication({"role": "master", "connected_slaves": 2}, own.client())
    assert finding.level == "warning"
    assert "min_replicas" in finding.advice
    assert checks._replication({"role": "slave"}, own.client()).level == "critical"
    own.client().config_set("min-replicas-to-write", "1")
    assert checks._replication({"role": "master", "connected_slaves": 2}, own.client()).level == "ok"


def test_an_old_redis_and_a_failed_snapshot_are_errors(own: RedisServer) -> None:
    assert checks._version({"redis_version": "6.0.16"}, own.client()).level == "critical"
    valkey = checks._version({"redis_version": "7.2.4", "valkey_version": "8.0.1"}, own.client())
    assert valkey.text.startswith("Valkey 8.0.1")
    assert checks._persistence({"rdb_last_bgsave_status": "err"}, own.client()).level == "critical"
    own.client().config_set("save", "60 1")
    assert "snapshots (60 1)" in checks._persistence({"aof_enabled": 0}, own.client()).text


def test_a_pool_that_is_not_there_is_an_error(offline: Cli, own: RedisServer) -> None:
    code, findings = found(offline, own, "--pool", "nothing-here")
    assert code == 9
    assert "nothing-here" in findings["pool nothing-here"][0]["text"]


def test_a_clock_that_runs_ahead_is_an_error(own: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    real = runner.server_now_ms
    monkeypatch.setattr(checks, "server_now_ms", lambda client, key: real(client, key) - 3_000)
    assert checks._clock(own.client(), "orders").level == "critical"
    monkeypatch.setattr(checks, "server_now_ms", lambda client, key: real(client, key) + 900)
    assert checks._clock(own.client(), "orders").level == "warning"


def test_the_exit_codes_are_those_that_the_help_says(offline: Cli) -> None:
    from snowredis.cli.exit_codes import ExitCode

    text = " ".join(offline("doctor", "--help").out.split())
    assert f"with {ExitCode.ERROR:d} if there are warnings" in text
    assert f"with {ExitCode.REDIS_UNAVAILABLE:d} if Redis does not answer" in text
    assert f"with {ExitCode.FOUND_ERRORS:d} if there are critical problems" in text
