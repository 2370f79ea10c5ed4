"""The constants of a pool, the codes of its scripts, the errors, and the translation of redis-py's errors."""

import copy
import pickle
import re
import traceback
from collections.abc import Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from redis import exceptions
from redis.sentinel import MasterNotFoundError

from scripts._docs.lua import lua_of
from snowredis import errors
from snowredis.core.layout import Layout
from snowredis.core.presets import layouts
from snowredis.errors import ConfigError, SnowredisError, StoreUnavailable
from snowredis.monitor.lease import Owner, parse_owner
from snowredis.process.names import owner_text
from snowredis.servers.runner import translated
from snowredis.servers.scripts import Reason, Script
from snowredis.snowflake.protocol.administration import POOL_SCRIPTS
from snowredis.snowflake.protocol.messages import Alarm, AlarmReason, Created, LossReason
from snowredis.snowflake.protocol.pool_config import MAX_TTL_MS, PoolConfig
from snowredis.snowflake.protocol.record import EventKind, FloorReason
from snowredis.snowflake.protocol.redis_store import RedisStore
from tests.support.holder import create
from tests.support.servers import RedisServer

DAY_MS = 24 * 3_600_000

# --- the constants of a pool -----------------------------------------------------------------------


def test_what_is_not_given_follows_from_the_ttl() -> None:
    config = PoolConfig(name="orders")
    assert (config.ttl_ms, config.max_clock_lead_ms, config.failover_slack_ms) == (30_000, 2_500, 2_500)
    assert (config.heartbeat_ms, config.floor_ms) == (10_000, 35_000)
    # where a failover takes the rest of the ttl, renewals come twice as often
    assert PoolConfig(name="orders", failover_slack_ms=17_499).heartbeat_ms == 10_000
    assert PoolConfig(name="orders", failover_slack_ms=17_500).heartbeat_ms == 5_000
    assert config.layout == Layout()
    assert PoolConfig(name="orders", max_clock_lead_ms=0).max_clock_lead_ms == 0


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a:b", "{a}", "a\n", "é", "٣", 7])
def test_another_pool_name_is_refused_and_shown(name: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        PoolConfig(name=name)
    assert str(caught.value).startswith("pool must be 1 to 64 letters")
    assert str(caught.value).endswith(f"not {name!r}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ttl_ms": 30.0}, "ttl_ms must be a whole number of milliseconds, not 30.0"),
        ({"ttl_ms": True}, "ttl_ms must be a whole number of milliseconds, not True"),
        ({"failover_slack_ms": None}, "failover_slack_ms must be a whole number of milliseconds, not None"),
        ({"ttl_ms": -1}, "ttl_ms=-1 is out of range: 0 to 86400000 ms"),
        ({"failover_slack_ms": -2}, "failover_slack_ms=-2 is out of range"),
        ({"max_clock_lead_ms": -2}, "max_clock_lead_ms=-2 is out of range"),
        ({"ttl_ms": MAX_TTL_MS + 1}, "ttl_ms=86400001 is out of range: 0 to 86400000 ms (a day) can be used"),
        ({"datacenter": 1}, "datacenter=1 does not fit 0 datacenter bits: 0 to 0 can be used"),
        ({"datacenter": -1}, "datacenter=-1 does not fit"),
        ({"datacenter": 32, "layout": layouts["twitter"]}, "datacenter=32 does not fit 5 datacenter bits: 0 to 31"),
        ({"datacenter": "1"}, "datacenter must be a whole number, or 'auto', not '1'"),
        ({"datacenter": 0.5}, "datacenter must be a whole number, or 'auto', not 0.5"),
        ({"durability": "some"}, "durability must be one of detect, assured, none, not 'some'"),
        ({"durability": None}, "durability must be one of detect, assured, none, not None"),
        ({"outage_reserve_ms": DAY_MS, "layout": Layout(backup_bits=0)}, "has no backup bits"),
        ({"outage_reserve_ms": 30_000}, "longer than the ttl"),
        ({"outage_reserve_ms": 32 * DAY_MS}, f"outage_reserve_ms={32 * DAY_MS} is out of range"),
        ({"outage_reserve_ms": -2}, "outage_reserve_ms=-2 is out of range"),
        ({"ttl_ms": 0}, "ttl 0 ms is too short: it must be 100 ms at least"),
        ({"ttl_ms": 99}, "ttl 99 ms is too short"),
        (
            {"ttl_ms": 600, "max_clock_lead_ms": 100, "failover_slack_ms": 400},
            "max_clock_lead 100 + failover_slack 400 + one heartbeat 100 = 600 ms",
        ),
    ],
)
def test_a_constant_that_cannot_work_is_refused_with_the_reason(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PoolConfig(name="orders", **settings)
    assert message in str(caught.value)


small_ms = st.integers(0, 40_000)


@given(ttl=small_ms, lead=st.one_of(st.just(-1), small_ms), slack=st.one_of(st.just(-1), small_ms))
def test_the_ttl_that_an_error_advises_works(ttl: int, lead: int, slack: int) -> None:
    settings: dict[str, Any] = {"max_clock_lead_ms": lead, "failover_slack_ms": slack}
    try:
        config = PoolConfig(name="orders", ttl_ms=ttl, **settings)
    except ConfigError as error:
        advised = int(str(error).partition("Raise ttl to ")[2].partition(" ms")[0])
        assert advised > ttl
        PoolConfig(name="orders", ttl_ms=advised, **settings)
    else:
        # a holder that heard from Redis one heartbeat ago can still be told from a dead one
        least = config.max_clock_lead_ms + config.failover_slack_ms + config.heartbeat_ms
        assert config.ttl_ms > least


def test_a_signature_has_all_constants_in_one_order() -> None:
    assert PoolConfig(name="orders", outage_reserve_ms=0).signature == (
        "format=1 layout=41/0/2/10/10;tick_ms=1;epoch_ms=1735689600000;worker_last=0 datacenter=0 ttl_ms=30000 "
        "max_clock_lead_ms=2500 failover_slack_ms=2500 outage_reserve_ms=0 durability=detect"
    )


# --- who holds a lease ------------------------------------------------------------------------------

# as renew.lua and claim.lua check it
OWNER = re.compile(rb"{[^\x00-\x1f\x7f]*}")


@hypothesis.settings(max_examples=40)
@given(host=st.text(max_size=120), pid=st.integers(0, 2**31), label=st.text(max_size=120))
@example(host="h", pid=1, label="\x7f\x00\n\x1b[31m\x85")
@example(host="h", pid=1, label="\N{GRINNING FACE}" * 300)
@example(host="\N{GRINNING FACE}" * 300, pid=2**31, label='"' * 50 + "\\" * 50)
@example(host="h", pid=1, label="\ud83d")
def test_any_host_name_and_label_make_an_owner_that_the_scripts_take(host: str, pid: int, label: str) -> None:
    text = owner_text(host, pid, label, generator="5a" * 6, lane_until=10**14 - 1, taken=10**14 - 1).encode()
    assert OWNER.fullmatch(text)
    assert len(text) <= 1000
    shown_host, shown_pid, shown_label, *_ = parse_owner(text.decode())
    assert (len(shown_host), shown_pid, len(shown_label)) == (len(host[:100]), pid, len(label[:100]))


def test_an_owner_keeps_what_can_be_printed() -> None:
    label = 'größe \N{GRINNING FACE} "a\\b"'
    assert parse_owner(owner_text("web-1", 7, label)) == Owner("web-1", 7, label)
    full = Owner("web-1", 7, "", "x", "0.1.0", "ab", 12, 34, 1)
    more = {"generator": "ab", "lane_until": 12, "taken": 34, "refused": "x", "version": "0.1.0", "outage": 1}
    assert parse_owner(owner_text("web-1", 7, "", **more)) == full
    assert parse_owner('{"pid":7,"lane_until":-1}').lane_until_ms == 0
    assert (
        parse_owner(owner_text("web-1", 7, "a\x7fb\nc"))[2] == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    )


@pytest.mark.parametrize(
    ("owner", "host", "pid"),
    [
        ("", "", 0),
        ("{", "", 0),
        ("[1, 2]", "", 0),
        ("null", "", 0),
        ('{"host":null,"pid":"7"}', "", 0),
        ('{"host":["x"],"label":{},"pid":true}', "", 0),
        ('{"pid":1e999}', "", 0),
        ('{"pid":%s}' % ("9" * 5_000), "", 0),
        ("[" * 200_000, "", 0),
        ('{"host":"\x1b[31m|a|b","pid":7}', "", 0),
        ('{"host":"\\u001b[31m|a|b","pid":7}', "\x1b[31m|a|b", 7),
        ('{"host":"\\ud800","pid":7}', "?", 7),
        ('{"host":"line\\nbreak","pid":-1}', "line\nbreak", 0),
    ],
    ids=lambda value: str(value)[:20].encode("unicode_escape").decode(),
)
def test_an_owner_that_is_hostile_is_read_as_far_as_it_can_be_shown(owner: str, host: str, pid: int) -> None:
    found = parse_owner(owner)
    assert (found.host, found.pid) == (host, pid)
    found.host.encode()


# --- errors of redis-py ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (exceptions.ConnectionError("Connection refused"), StoreUnavailable, "Connection refused"),
        (exceptions.TimeoutError("Timeout reading from socket"), StoreUnavailable, "socket. It is slow or hangs"),
        (exceptions.BusyLoadingError("loading"), StoreUnavailable, "loading"),
        (exceptions.ConnectionError(), StoreUnavailable, "used: ConnectionError"),
        (OSError(101, "Network is unreachable"), StoreUnavailable, "Network is unreachable"),
        (exceptions.ResponseError("WRONGTYPE Operation"), StoreUnavailable, "Use another name or database"),
        (
            exceptions.ResponseError("OOM command not allowed when > 'maxmemory'. script: on @user_script:415."),
            StoreUnavailable,
            "not allowed when > 'maxmemory'). Raise its maxmemory",
        ),
        (exceptions.ResponseError("BUSY Redis is busy running a script."), StoreUnavailable, "end it with SCRIPT KILL"),
        (exceptions.ResponseError("NOREPLICAS Not enough"), StoreUnavailable, "min-replicas-to-write: connect"),
        (exceptions.AuthenticationError("invalid password"), StoreUnavailable, "(WRONGPASS): invalid password"),
        (exceptions.NoPermissionError("no permissions"), StoreUnavailable, "a command: no permissions"),
        (exceptions.ResponseError("WRONGPASS invalid"), StoreUnavailable, "password (WRONGPASS)"),
        (exceptions.ResponseError("NOAUTH Authentication"), StoreUnavailable, "requires a password, and none was"),
        (
            exceptions.AuthenticationError("HELLO must be called with the client already authenticated, o"),
            StoreUnavailable,
            "requires a password, and none was given",
        ),
        (exceptions.ResponseError("ERR ACL failure in script: User app"), StoreUnavailable, "a command: ERR ACL"),
        (exceptions.ResponseError("ERR \x1b[2J\n\x9b"), StoreUnavailable, "ERR \ufffd[2J\ufffd\ufffd"),
        (exceptions.ReadOnlyError("You can't write"), StoreUnavailable, "does not accept writes: You can't write"),
        (exceptions.ResponseError("@user_script: 9: -READONLY You can't write"), StoreUnavailable, "READONLY"),
        (exceptions.ResponseError("SNOWREDIS bad argument ttl_ms"), ConfigError, "refused ttl_ms"),
        (exceptions.ResponseError("DB index is out of range"), ConfigError, "has no database of this number"),
        (exceptions.ConnectionError("Invalid Database"), ConfigError, "Correct it in the URL"),
        (UnicodeDecodeError("utf-16", b"\xff", 0, 1, "truncated data"), StoreUnavailable, "another encoding"),
        (MasterNotFoundError("No master found for 'm'"), StoreUnavailable, "the master's name and the Sentinels' addr"),
        (exceptions.MasterDownError("Link with MASTER"), StoreUnavailable, "wait for the failover to end"),
        (exceptions.ClusterDownError("Hash slot not served"), StoreUnavailable, "check CLUSTER INFO"),
        (exceptions.SlotNotCoveredError("slot 3"), StoreUnavailable, "check CLUSTER INFO"),
        (exceptions.RedisClusterException("cannot be connected"), StoreUnavailable, "those of a Redis Cluster"),
    ],
    ids=lambda value: None if isinstance(value, str) else getattr(value, "__name__", str(value)[:20]),
)
def test_an_error_of_redis_py_becomes_ours(error: Exception, kind: type[SnowredisError], text: str) -> None:
    with pytest.raises(kind) as caught, translated("host:6379/0"):
        raise error
    assert type(caught.value) is kind
    assert text in str(caught.value)
    assert caught.value.__cause__ is error
    # what a person sees: one traceback, and the text of the cause
    assert "".join(traceback.format_exception(caught.value)).count("Traceback") == 1
    if isinstance(caught.value, StoreUnavailable):
        assert caught.value.where == "host:6379/0"
        assert caught.value.is_read_only == any(mark in str(error) for mark in ("NOREPLICAS", "can't write"))


def test_a_mistake_of_ours_is_not_taken_for_an_error_of_redis() -> None:
    with pytest.raises(ZeroDivisionError), translated("host"):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "reply",
    [
        [],
        [b"created"],
        [b"created", b"x", b"i", b"1", b"0", b""],
        [b"created", b"1", b"i", b"", b"0", b""],
        [b"created", b"1", b"i", b"1", b"0", b"no-such-alarm 1 2"],
        [b"created", b"1", b"i", b"1", b"0", b"", b"more"],
        [b"released", b"1", b"i", b"1", b"0", b""],
        [b"signature"],
        [b"broken"],
    ],
)
def test_a_reply_that_no_script_sends_is_an_error(reply: list[bytes]) -> None:
    class Proxy(RedisStore):
        def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> list[bytes | str]:
            # the nonce of the request, which every script sends last
            return [*reply, str(args[1])]

    store = Proxy("redis://host", PoolConfig(name="orders"))
    with pytest.raises(StoreUnavailable, match="unknown reply"):
        create(store, 0)


def test_the_answer_to_another_question_is_taken_for_none_and_its_connection_is_dropped(server: RedisServer) -> None:
    """So it is after a fork within a call, when parent and child have read each other's replies."""
    late: list[Any] = []

    class OneBehind(RedisStore):
        def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
            late.append(super().run(script, keys, args))
            return late.pop(0) if len(late) > 1 else late[0]

    store = OneBehind(server.url, PoolConfig(name="behind"))
    assert isinstance(create(store, 0), Created)
    connected = server.client().info("clients")["connected_clients"]
    with pytest.raises(StoreUnavailable, match="another request"):
        create(store, 0)
    assert server.client().info("clients")["connected_clients"] < connected
    store.close()


# --- our errors ------------------------------------------------------------------------------------

SAMPLES: dict[str, tuple[Any, ...]] = {
    "SnowredisError": ("odd",),
    "ConfigError": ("odd",),
    "PoolNotFound": ("orders", "unix:///run/redis.sock", ("users", "bills")),
    "LayoutError": ("odd",),
    "InvalidId": ("odd",),
    "LayoutMismatch": ("orders", "odd", "even"),
    "PoolExhausted": ("orders", 1024, 4321),
    "LeaseExpired": ("orders", 17, "Redis is away"),
    "LeaseLost": ("orders", 18, "the pool is full"),
    "ClockMovedBack": (4711, "backup", False),
    "ClockSkewed": (4712, 32_500),
    "StoreUnavailable": ("host:6379/0", "not this command", "Allow it", "no-permission"),
    "GeneratorClosed": ("orders", "segment", True),
}


def test_every_error_has_a_sample_here_and_a_line_in_the_tree() -> None:
    classes = {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, SnowredisError)
    }
    assert classes == set(errors.__all__) == set(SAMPLES)
    assert errors.__doc__ is not None
    assert all(f"{name} " in errors.__doc__ or f"{name}\n" in errors.__doc__ for name in classes)


def test_errors_are_kinds_of_these() -> None:
    parents: dict[type, type] = dict.fromkeys((errors.ConfigError, errors.LayoutError, errors.InvalidId), ValueError)
    parents |= {errors.PoolNotFound: SnowredisError, errors.LeaseLost: errors.LeaseExpired}
    assert [error for error, parent in parents.items() if not issubclass(error, parent)] == []


@pytest.mark.parametrize("name", SAMPLES)
def test_an_error_survives_pickling_and_carries_its_values(name: str) -> None:
    error = getattr(errors, name)(*SAMPLES[name])
    assert error.args == SAMPLES[name]
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert again.args == error.args
        assert str(again) == str(error)
        assert vars(again) == vars(error)
    for value in SAMPLES[name]:
        texts = value if isinstance(value, tuple) else (value,)
        # a code, or a yes or no, chooses the text
        assert (
            isinstance(value, bool)
            or value == getattr(error, "code", None)
            or all(str(text) in str(error) for text in texts)
        )
        assert value in vars(error).values() or error.args == ("odd",)


def test_a_clock_behind_and_a_clock_ahead_are_told_apart() -> None:
    assert "4712 ms ahead of the clock of Redis" in str(errors.ClockSkewed(4712, 1))
    assert "4712 ms behind the clock of Redis" in str(errors.ClockSkewed(-4712, 1))


# --- codes of the scripts --------------------------------------------------------------------------

LUA = "\n".join(map(lua_of, ("pool", *POOL_SCRIPTS)))


@pytest.mark.parametrize(
    ("codes", "written"),
    [
        (EventKind, r"\bevent(?:_of_end)?\(pool, [\w.]+, ([^,]*'),"),
        (FloorReason, r"\bbegin_incarnation\(pool, (.*'.*), \w+\)|^local function loss_of([\s\S]*?\n)end"),
        (AlarmReason, r"pool\.alarm = table\.concat\(\{ ('[^']*')"),
    ],
)
def test_the_scripts_write_each_code_and_no_other(codes: type[Reason], written: str) -> None:
    found = "\n".join(match[match.lastindex or 0] for match in re.finditer(written, LUA, re.MULTILINE))
    quoted = set(re.findall(r"'([a-z-]+)'", found)) - {"detect"}
    assert quoted == {str(code) for code in codes}


def test_a_refused_renewal_says_why_by_a_code() -> None:
    assert set(re.findall(r"\breason = '([^']*)'", lua_of("renew"))) == {str(code) for code in LossReason}


@pytest.mark.parametrize("codes", [FloorReason, LossReason, AlarmReason])
def test_a_code_is_no_text_and_every_text_is_another(codes: type[Reason]) -> None:
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)
    assert len({code.text for code in codes}) == len(codes)
    assert not {code.text for code in codes} & set(codes)


def test_an_alarm_is_read_as_it_is_stored() -> None:
    alarm = Alarm.parse("ids-may-repeat 17 42")
    assert alarm == Alarm(AlarmReason.IDS_MAY_REPEAT, 17, 42)
    assert alarm.text == "ids may have been repeated between 1970-01-01T00:00:00.017Z and 1970-01-01T00:00:00.042Z"
    for text in ("", "ids-may-repeat", "ids-may-repeat 1 x", "other 1 2"):
        with pytest.raises(ValueError, match=r"."):
            Alarm.parse(text)
