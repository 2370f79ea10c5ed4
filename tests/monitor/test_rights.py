"""The ACL rules of docs/how-to/monitoring.md, on a real Redis: enough for what they are for, and for nothing else."""

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import redis

import snowredis
from snowredis.cli import main
from snowredis.errors import StoreUnavailable
from snowredis.monitor.checks import ok
from snowredis.monitor.doctor import _ARGUMENTS, _OF_SCRIPTS, Call, calls_in, calls_of_pools, diagnose
from snowredis.numbers import create_tag, stores
from snowredis.snowflake.protocol.messages import WorkerStats
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.worker_pool import WorkerPool
from tests.support.holder import create
from tests.support.servers import RedisServer, redis_server

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "monitoring.md"
RULES = dict(re.findall(r"```acl (\w+)\n(.*?)\n```", PAGE.read_text("utf-8"), re.DOTALL))
POOL = "orders"


@pytest.fixture
def url_of(own_server: RedisServer) -> Callable[[str], str]:
    """The server's URL as the user of one of the page's rules."""
    client = own_server.client()
    if tuple(map(int, str(client.info("server")["redis_version"]).split(".")[:2])) < (7, 0):
        pytest.skip("the rules are written for Redis 7")

    def make(kind: str) -> str:
        words = RULES[kind].split()
        assert words[:2] == ["ACL", "SETUSER"]
        client.execute_command(*words)
        return f"unix://{words[2]}:SECRET@{own_server.socket}"

    WorkerPool(own_server.url, POOL).create(PoolConfig(name=POOL, ttl_ms=3_000))
    return make


def refused(url: str, *command: str) -> bool:
    client = redis.Redis.from_url(url)
    try:
        client.execute_command(*command)
    except redis.exceptions.NoPermissionError:
        return True
    finally:
        client.close()
    return False


KEY = "snowredis:{orders}"
HARM = [
    ("FLUSHALL",),
    ("CONFIG", "GET", "*"),
    ("KEYS", "*"),
    ("ACL", "LIST"),
    ("SHUTDOWN",),
    ("SCRIPT", "FLUSH"),
    ("GET", "somebody:else"),
    ("HGET", "snowredis:other", "x"),
    ("HGETALL", KEY),
    ("EVAL", "return redis.call('GET', KEYS[1])", "1", "somebody:else"),
]


def test_a_generator_claims_renews_and_releases_and_can_do_nothing_else(url_of: Callable[[str], str]) -> None:
    url = url_of("generator")
    ids: Any = snowredis.connect(url, pool=POOL, ttl=3)
    ids.next_ids(10)
    ids._lease_manager.send_renewal(WorkerStats(10, 1))
    assert ids.lease.renewals == 1
    ids.close()
    # create is what `snowredis pool create` runs
    create(ids._lease_manager.store, time.time_ns() // 1_000_000)
    for command in HARM:
        assert refused(url, *command), command
    # a pool of another name is none of its business
    with pytest.raises(StoreUnavailable), snowredis.connect(url, pool="other", ttl=3) as other:
        other.next_id()


def test_a_generator_makes_a_lost_index_anew(url_of: Callable[[str], str], own_server: RedisServer) -> None:
    url = url_of("generator")
    with snowredis.connect(url, pool=POOL, ttl=3) as one:
        one.next_id()
        own_server.client().delete(f"{KEY}:leases")
        with snowredis.connect(url, pool=POOL, ttl=3) as two:
            two.next_id()
            assert one.lease is not None
            assert two.lease is not None
            assert one.lease.worker != two.lease.worker


def test_the_rules_of_a_generator_are_what_its_scripts_use() -> None:
    needed = needed_commands(calls_of_pools())
    assert allowed_by("generator") == needed == {*_ARGUMENTS, *_OF_SCRIPTS, "time", "info"}
    assert keys_of("generator") == set(pool_keys(POOL))


def needed_commands(calls: Iterable[Call]) -> set[str]:
    """Return the commands of *calls*, and those that run scripts."""
    return {command for command, _ in calls} | set(_OF_SCRIPTS)


def allowed_by(rule: str) -> set[str]:
    return {word[1:] for word in RULES[rule].split() if word.startswith("+")}


def keys_of(rule: str) -> set[str]:
    return {word[1:] for word in RULES[rule].split() if word.startswith("~")}


def test_the_rule_of_tags_is_what_their_scripts_use() -> None:
    assert allowed_by("numbers") == needed_commands(calls_in([stores.load("take")]))
    assert keys_of("numbers") == set(stores.tag_keys("invoices"))


def test_a_generator_of_a_tag_makes_numbers_and_can_do_nothing_else(
    url_of: Callable[[str], str], own_server: RedisServer
) -> None:
    create_tag(own_server.url, "invoices")
    url = url_of("numbers")
    with snowredis.generator("segment", url=url, tag="invoices") as ids:
        assert ids.next_ids(2_000)[-1] == 2_000
    assert main(["numbers", "show", "invoices", "--url", url]) == 0
    assert main(["numbers", "open", "invoices", "--from", "5000", "--yes", "--url", url]) == 0
    for command in HARM:
        assert refused(url, *command), command


# what is taken from the rule of generators, and what doctor says then
LACKS = [
    ((), "ok: user orders-app may run all commands that generators of pool orders need"),
    (("+hset",), "warning: user orders-app may not run the 'hset' command of pool orders"),
    (
        ("~snowredis:{orders}:events", "+evalsha"),
        "warning: user orders-app may not access the 'snowredis:{orders}:events' key nor run the 'evalsha' command of "
        "pool orders",
    ),
]


@pytest.mark.parametrize(("lacks", "text"), LACKS)
def test_doctor_says_which_rights_on_a_pool_are_missing(
    url_of: Callable[[str], str], own_server: RedisServer, lacks: tuple[str, ...], text: str
) -> None:
    url = url_of("generator")
    words = [word for word in RULES["generator"].split() if word not in lacks]
    own_server.client().execute_command(*words, "+acl|whoami", "+acl|dryrun")
    rights = [each for each in diagnose(url, POOL) if each.code == "rights"]
    assert [f"{each.level}: {each.text}" for each in rights] == [text]


@pytest.mark.parametrize(
    ("renamed", "text"),
    [
        ("config", "ok: user default may run all commands that generators of pool orders need"),
        ("hset", "warning: user default may not run the 'hset' command of pool orders"),
        ("evalsha", "warning: user default may not run the 'evalsha' command of pool orders"),
        ("acl", "unknown: scripts are allowed; ACL DRYRUN is not, so other rights are not known"),
    ],
)
def test_doctor_says_which_commands_of_generators_were_renamed(tmp_path: Path, renamed: str, text: str) -> None:
    with redis_server(tmp_path, "--rename-command", renamed, "") as server:
        found = diagnose(server.url, POOL)
    assert [f"{each.level}: {each.text}" for each in found if each.code == "rights"] == [text]


@pytest.mark.parametrize(
    ("rule", "texts"),
    [
        ("generator", ["rights not known", "the 'xrange' command", "those that are enough for monitoring"]),
        ("monitor", ["no script runs for this user", "identified was not checked", "the 'eval' command"]),
    ],
)
def test_doctor_names_what_these_users_keep_it_from_checking_and_finds_no_problem(
    url_of: Callable[[str], str],
    rule: str,
    texts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # the host that the tests run on is not checked
    monkeypatch.setattr("snowredis.monitor.checks.check_crash_records", lambda: ok(""))
    url = url_of(rule)
    code = main(["doctor", "--url", url, "--pool", POOL])
    shown = " ".join(capsys.readouterr().out.replace("other rights are", "rights").split())
    assert (code, "0 critical, 0 warning" in shown) == (0, True), shown
    assert [text for text in texts if text not in shown] == []
    assert "refused access" not in shown


def test_whoever_looks_sees_everything_and_changes_nothing(
    url_of: Callable[[str], str], own_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = url_of("monitor")
    with snowredis.connect(own_server.url, pool=POOL, ttl=3, label="web") as ids:
        an_id = str(ids.next_id())
        for argv in (
            ["workers", "--pool", POOL],
            ["workers", "--pool", POOL, "--json"],
            ["pool", "show"],
            ["pool", "show", POOL],
            ["whois", an_id, "--pool", POOL],
            ["whois", an_id, an_id, "--pool", POOL],
            ["whois", an_id, "--pool", POOL, "--json"],
            ["events", "--pool", POOL],
            ["events", "--pool", POOL, "--json"],
        ):
            assert main([*argv, "--url", url]) == 0, argv
        out, err = capsys.readouterr()
        assert err == ""
        held = ids._lease_manager.held
        assert held.token not in out
        assert held.lease.token_hash not in out
        own_server.client().delete(f"{KEY}:leases")
        assert [worker.label for worker in WorkerPool(url, POOL).workers()] == ["web"]
    assert WorkerPool(url, POOL).events(since="0")[0].kind == "floor"
    for command in (
        *HARM,
        ("DEL", KEY),
        ("HSET", KEY, "floor", "0"),
        ("XADD", f"{KEY}:events", "*", "a", "b"),
        ("XTRIM", f"{KEY}:events", "MAXLEN", "0"),
        ("ZADD", f"{KEY}:leases", "1", "1"),
        ("EVAL", "return 1", "0"),
    ):
        # other pools are there to be seen, too
        if command[1:2] != ("snowredis:other",):
            assert refused(url, *command), command
    assert main(["pool", "delete", POOL, "--yes", "--force", "--url", url]) == 4
    assert main(["generate", "--pool", POOL, "--url", url]) == 4


def test_nobody_finds_a_token_in_redis(url_of: Callable[[str], str], own_server: RedisServer) -> None:
    with snowredis.connect(own_server.url, pool=POOL, ttl=3) as ids:
        ids.next_id()
        held: Any = ids._lease_manager.held
        client = own_server.client()
        everything = f"{client.hgetall(KEY)} {client.xrange(f'{KEY}:events')} {client.zrange(f'{KEY}:leases', 0, -1)}"
    assert held.lease.token_hash in everything
    assert held.token not in everything
