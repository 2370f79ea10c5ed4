"""The settings are declared once: connect(), variables, the command line, the service and the docs follow."""

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
import redis

import snowredis
from snowredis.errors import PREFIX
from snowredis.integrations.asgi import lifespan
from snowredis.kinds.lookup import parse_kind
from snowredis.settings import POOL_DURATIONS, SETTINGS, CommonSettings, Setting, check, from_environment
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.testing import memory_pool
from snowredis.web.service import create_app, settings_from_environment
from tests.support.programs import ROOT

# the settings that the manual describes first
COMMON = ("url", *CommonSettings.__annotations__)
IN_TEXT = [setting for setting in SETTINGS.values() if setting.name != "clock"]


def test_the_manual_of_connect_describes_every_setting_in_the_words_of_its_declaration() -> None:
    manual = inspect.getdoc(snowredis.connect) or ""
    common, rare = (" ".join(part.split()) for part in manual.split("Raises:")[0].split("Rarely needed:"))

    def described(names: Iterable[str]) -> str:
        return " ".join(f"{name}: {SETTINGS[name].help}" for name in names)

    to_do = "in connect() of snowredis/connection.py, write the help of each setting, in the order of declarations"
    assert common.partition("Args: ")[2] == described(COMMON), to_do
    assert rare == described(name for name in SETTINGS if name not in COMMON), to_do


@pytest.mark.parametrize("call", [snowredis.connect, snowredis.aconnect, snowredis.configure, lifespan])
def test_an_unknown_setting_is_refused_at_the_call_with_the_nearest_one(call: Any) -> None:
    with pytest.raises(snowredis.ConfigError, match=r"unknown setting 'poool'\. Did you mean 'pool'\?"):
        call(poool="orders")
    if call is not snowredis.configure:
        with pytest.raises(snowredis.ConfigError, match="ttl must be seconds"):
            call(ttl="soon")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis://h/0?poool=x", "unknown option 'poool' in the URL. Did you mean 'pool'? 'pool' is a setting"),
        ("redis://:pa@h/0?ttl=3", "unknown option 'ttl' in the URL. 'ttl' is a setting: pass ttl=…"),
        ("cluster://h?socket_timout=1", "Did you mean 'socket_timeout'?"),
        # the rest of the password is not shown
        ("redis://:pa?rt=2@h/0", "redis://:***@h/0' is not a Redis URL: it cannot be parsed"),
    ],
)
def test_an_unknown_option_of_a_url_is_named_with_the_nearest_one(url: str, text: str) -> None:
    with pytest.raises(snowredis.ConfigError, match=re.escape(text)):
        snowredis.connect(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://", "it names no host"),
        # as of a template whose variable is empty: each host would use a Redis of its own
        ("redis://:6379/0", "it names no host"),
        ("rediss://user:secret@:6379/0", "it names no host"),
        ("redis://h:/0", "it names no port after the host"),
        ("redis://user:secret@[::1]:0", "it names no port after the host"),
        ("sentinel://h:/master/0", "'h:' is not a host, or a host with a port"),
        ("sentinel://h//0", "the master's name has to come after the Sentinels, then perhaps a database number"),
        ("redis://h/abc", "what comes after the host is no number of a database"),
        ("redis://h/1/2", "what comes after the host is no number of a database"),
        ("redis://h/1?db=2", "it names its db twice"),
        ("redis://h?db=1&db=2", "it names its db twice"),
        ("sentinel://h/master/1?db=2", "it names its db twice"),
        ("redis://h?host=other", "it names its host twice"),
        ("rediss://:secret@h:7000/0?port=6379", "it names its port twice"),
        ("cluster://:secret@h1,h2?password=x", "it names its password twice"),
        ("unix:///run/redis.sock?path=/run/other.sock", "it names its path twice"),
        ("redis://user#1@h/0", "it cannot be parsed"),
        ("redis://user/1@h/0", "it cannot be parsed"),
        ("unix:///run/redis#1", "a # has to be written %23"),
        ("unix://", "it names no socket: three slashes come before its path"),
        ("unix://run/redis.sock", "it names no socket: three slashes come before its path"),
    ],
)
def test_no_other_server_or_database_than_that_of_the_url_is_taken_in_silence(url: str, reason: str) -> None:
    with pytest.raises(
        snowredis.ConfigError, match=f"is not a Redis URL: {re.escape(reason)}. Write redis://"
    ) as caught:
        snowredis.connect(url, pool="orders")
    assert "secret" not in str(caught.value)
    for same in (
        "redis://[::1]:6379/2",
        "redis://h",
        "redis://h/",
        "redis://h/3/",
        "redis://:p%23@h/1",
        "redis://h?db=2",
        "redis://:secret@h?port=6380&username=user",
        "sentinel://h/1?db=1",
    ):
        snowredis.connect(same, pool="orders")


def test_a_mistyped_setting_in_the_url_of_a_kind_is_refused() -> None:
    for url, near in (("snowflake+redis://h?poool=x", "pool"), ("segment+redis://h?tagg=x", "tag")):
        with pytest.raises(snowredis.ConfigError, match=f"Did you mean '{near}'"):
            snowredis.generator(url)


def test_no_option_of_redis_is_taken_for_a_mistyped_setting() -> None:
    options = [
        name
        for kind in (redis.Redis, redis.Connection, redis.SSLConnection)
        for name in inspect.signature(kind).parameters
    ]
    assert "socket_timeout" in options
    query = "&".join(f"{name}=1" for name in options if name != "url")
    for kind in ("snowflake", "segment", "dated"):
        assert parse_kind(f"{kind}+redis://h?{query}").settings.keys() == {"url"}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_every_default_can_be_used(setting: Setting) -> None:
    check(setting.name, setting.default)


def test_a_duration_is_in_seconds_unless_its_name_ends_in_ms() -> None:
    for setting in SETTINGS.values():
        in_ms, in_s = "milliseconds" in setting.kind.what, setting.kind.what.startswith("seconds")
        assert in_ms == setting.name.endswith("_ms")
        assert in_s == (setting.kind.parse is float)


def test_the_pool_keeps_its_durations_in_milliseconds() -> None:
    assert {f"{name}_ms" for name in POOL_DURATIONS} == {
        name for name in PoolConfig.__dataclass_fields__ if name.endswith("_ms")
    }


def test_every_setting_but_the_clock_of_tests_has_a_variable() -> None:
    texts = {"min_replicas": "all", "fields": "region=1"}
    environment = {setting.variable: texts.get(setting.name, str(setting.default or "7")) for setting in IN_TEXT}
    assert list(from_environment(environment)) == [setting.name for setting in IN_TEXT]
    with pytest.raises(snowredis.ConfigError, match=r"SNOWREDIS_TTL must be seconds, .*, not 'soon'"):
        from_environment({"SNOWREDIS_TTL": "soon"})


# everything that makes ids, called with no url and no pool; tags of numbers are in no pool
NUMBERS: list[Callable[[], Any]] = [
    partial(snowredis.generator, "segment"),
    partial(snowredis.generator, "dated", tag="x"),
]
SNOWFLAKES: list[Callable[[], Any]] = [
    snowredis.connect,
    partial(snowredis.connect, ttl=5),
    partial(snowredis.generator, "snowflake"),
    lambda: asyncio.run(snowredis.aconnect(label="x").__aenter__()),
    snowredis.next_id,
    lambda: asyncio.run(snowredis.anext_id()),
    create_app,
]


def test_what_makes_ids_takes_the_url_and_the_pool_of_the_environment_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SNOWREDIS_URL", "redis://:secret@elsewhere:1/7")
    monkeypatch.setenv("SNOWREDIS_POOL", "orders")
    monkeypatch.setenv("SNOWREDIS_LAYOUT", "twitter")
    for make in SNOWFLAKES[:3]:
        ids = make()
        assert (ids.pool, ids._lease_manager.store.where) == ("orders", "elsewhere:1/7")
        assert ids.layout == snowredis.layouts["twitter"]
    segment, dated = (make() for make in NUMBERS)
    assert segment._stores[0].where == dated._server.store.where == "elsewhere:1/7"
    assert create_app().pools.names == ["orders"]
    pools = snowredis.WorkerPool()
    assert (pools.name, pools.where) == ("orders", "elsewhere:1/7")
    given = snowredis.connect(memory_pool(), pool="given", layout="js-safe")
    assert (given.pool, given.layout) == ("given", snowredis.layouts["js-safe"])
    monkeypatch.setenv("SNOWREDIS_POOL", "not a name")
    with pytest.raises(snowredis.ConfigError, match="SNOWREDIS_POOL must be"):
        snowredis.connect()


def test_nothing_that_makes_ids_guesses_a_url_or_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SNOWREDIS_URL", "SNOWREDIS_POOL"):
        monkeypatch.delenv(name)
    for make in SNOWFLAKES + NUMBERS:
        with pytest.raises(snowredis.ConfigError, match=r"SNOWREDIS_URL is not set.*SNOWREDIS_POOL.*embedded://"):
            make()
    monkeypatch.setenv("SNOWREDIS_URL", "")
    for make in SNOWFLAKES:
        with pytest.raises(snowredis.ConfigError, match="SNOWREDIS_URL must be a URL, such as redis://"):
            make()
    monkeypatch.setenv("SNOWREDIS_URL", "redis://elsewhere:1/7")
    for make in SNOWFLAKES:
        with pytest.raises(snowredis.ConfigError, match="SNOWREDIS_POOL is not set"):
            make()
    # no other process can have one in memory
    assert snowredis.connect(memory_pool()).next_id() > 0


# as Kubernetes sets them for the Services "snowredis", "snowredis-serve" and "snowredis-pool"
OF_KUBERNETES = {
    f"SNOWREDIS_{service}{name}": "tcp://10.0.0.11:6379"
    for service in ("", "SERVE_", "POOL_")
    for name in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_REDIS", "PORT", "PORT_6379_TCP", "PORT_6379_TCP_PROTO")
}


def test_variables_of_other_programs_are_ignored_and_mistyped_ones_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    others = OF_KUBERNETES | {"SNOWREDIS_CLOCK": "x", "SNOWREDIS_HELM_RELEASE": "x", "PATH": "/bin"}
    assert from_environment(others) == {}
    named = {"SNOWREDIS_URL": "redis://h", "SNOWREDIS_POOL": "orders"}
    url, options = settings_from_environment(others | named)
    assert (url, options["pools"]) == ("redis://h", ["orders"])
    assert not caplog.records
    for _ in range(2):
        assert from_environment({"SNOWREDIS_POOOL": "x", "SNOWREDIS_TTL": "3"}) == {"ttl": 3.0}
    settings_from_environment({"SNOWREDIS_SERVE_TOKENN": "x", **named})
    assert [record.getMessage() for record in caplog.records] == [
        "the variable SNOWREDIS_POOOL is unknown, and ignored. Did you mean SNOWREDIS_POOL?",
        "the variable SNOWREDIS_SERVE_TOKENN is unknown, and ignored. Did you mean SNOWREDIS_SERVE_TOKEN?",
    ]


def test_numbers_of_numpy_are_numbers_everywhere() -> None:
    i: Any = np.int64
    f: Any = np.float32
    layout = snowredis.Layout(timestamp_bits=i(41), worker_bits=i(10), tick_ms=i(1), epoch_ms=i(1735689600000))
    assert layout == snowredis.Layout()
    assert {type(getattr(layout, name)) for name in ("timestamp_bits", "epoch_ms")} == {int}
    an_id = layout.compose(tick=i(1 << 40), worker=i(1023), sequence=i(7))
    assert (type(an_id), layout.decode(i(an_id))) == (int, layout.decode(an_id))
    assert layout.id_range(i(1735689600000), i(1735689600001)) == layout.id_range(1735689600000, 1735689600001)
    assert snowredis.parse(snowredis.encode(i(an_id), "base62"), "base62") == an_id
    pool = snowredis.testing.memory_pool()
    numbers: Any = {"ttl": f(3), "max_ahead_ms": i(5), "max_wait_ms": i(5)}
    with snowredis.connect(pool, pool="p", datacenter=i(0), claim_timeout=f(0.5), **numbers) as ids:
        assert len(ids.next_ids(i(3))) == 3
    assert PoolConfig(name="p", ttl_ms=i(3000)).signature == PoolConfig(name="p", ttl_ms=3000).signature
    wrongs: list[Any] = [np.True_, True, 1.0, "1", None]
    for wrong in wrongs:
        with pytest.raises(snowredis.SnowredisError):
            layout.decode(wrong)


def test_other_variables_that_the_library_reads_are_not_taken_for_settings() -> None:
    read = set()
    for path in [*(ROOT / "snowredis").rglob("*.py"), *(ROOT / "snowredis").rglob("*.c")]:
        read |= set(re.findall(rf"{PREFIX}[A-Z_]+", path.read_text("utf-8")))
    ours = {setting.variable for setting in IN_TEXT}
    others = {name: "x" for name in read - ours if not name.endswith("_")}
    assert from_environment(others) == {}
