"""Clients for one server, Sentinel and Cluster: from URLs and from clients of the application."""

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelManagedSSLConnection

import snowredis
from snowredis.errors import ConfigError, LeaseExpired, StoreUnavailable
from snowredis.servers.clients import address, client_of_url, fresh_copy, open_client, without_retries
from snowredis.servers.connections import SENTINEL_TIMEOUT_S, SOCKET_TIMEOUT_S
from snowredis.servers.failover import ClusterClient
from snowredis.servers.refusals import redacted
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.redis_store import RedisStore
from tests.support.pools import new_pool
from tests.support.servers import RedisServer

SENTINEL_URL = "sentinel://app:s3cret@b:26380,a,[::1]:26381/orders-master/3?sentinel_password=hush&client_name=web"


def settings(client: Any) -> dict[str, Any]:
    return dict(client.connection_pool.connection_kwargs)


def assert_gives_up_soon(client: Any, seconds: float = SOCKET_TIMEOUT_S) -> None:
    assert settings(client)["retry"].get_retries() == 0
    assert settings(client)["socket_timeout"] == seconds
    # a socket file is connected to at once
    unlimited = seconds if "path" in settings(client) else None
    assert settings(client).get("socket_connect_timeout", unlimited) == seconds


def assert_both_give_up_soon(client: Any) -> None:
    assert_gives_up_soon(client)
    for sentinel in client.connection_pool.sentinel_manager.sentinels:
        assert_gives_up_soon(sentinel, SENTINEL_TIMEOUT_S)


def test_a_sentinel_url_says_sentinels_master_database_and_both_passwords() -> None:
    client = client_of_url(SENTINEL_URL)
    pool = client.connection_pool
    assert pool.service_name == "orders-master"
    said = {"username": "app", "password": "s3cret", "db": 3, "client_name": "web"}
    assert settings(client).items() >= said.items()
    sentinels = [settings(sentinel) for sentinel in pool.sentinel_manager.sentinels]
    assert [(each["host"], each["port"]) for each in sentinels] == [("b", 26380), ("a", 26379), ("::1", 26381)]
    assert {(each.get("username"), each["password"]) for each in sentinels} == {(None, "hush")}
    assert_both_give_up_soon(client)


def test_the_address_of_a_sentinel_client_is_in_one_order_and_has_no_password() -> None:
    client = client_of_url(SENTINEL_URL)
    expected = "sentinel://::1:26381,a:26379,b:26380/orders-master/3"
    assert address(client) == expected
    # whichever answered last is moved to the front
    client.connection_pool.sentinel_manager.sentinels.reverse()
    assert address(client) == expected
    assert RedisStore(client, PoolConfig(name="p")).where == expected


def test_a_sentinel_client_is_taken_over_without_its_retries() -> None:
    theirs = Sentinel(
        [("a", 1), ("b", 2)],
        min_other_sentinels=1,
        sentinel_kwargs={"password": "hush", "socket_timeout": 50},
        retry=Retry(ExponentialBackoff(), 10),
        password="s3cret",
        decode_responses=True,
    ).master_for("m", db=4)
    ours = without_retries(theirs)
    assert ours is not theirs
    assert_both_give_up_soon(ours)
    assert address(ours) == address(theirs) == "sentinel://a:1,b:2/m/4"
    assert (settings(ours)["password"], settings(ours)["decode_responses"]) == ("s3cret", False)
    manager = ours.connection_pool.sentinel_manager
    assert manager.min_other_sentinels == 1
    assert [settings(sentinel)["password"] for sentinel in manager.sentinels] == ["hush", "hush"]
    # each notes the addresses for itself
    assert settings(ours)["connection_pool"] is not settings(theirs)["connection_pool"]
    assert settings(theirs)["retry"].get_retries() == 10


def test_tls_under_sentinel_is_for_the_sentinels_too_and_is_kept() -> None:
    theirs = Sentinel([("a", 1)], sentinel_kwargs={"ssl": True}).master_for("m", ssl=True, ssl_ca_certs="/ca")
    for ours in (client_of_url("sentinel://a/m?ssl=true"), without_retries(theirs)):
        assert issubclass(ours.connection_pool.connection_class, SentinelManagedSSLConnection)
        (sentinel,) = ours.connection_pool.sentinel_manager.sentinels
        assert issubclass(sentinel.connection_pool.connection_class, redis.SSLConnection)
    assert settings(ours)["ssl_ca_certs"] == "/ca"


@pytest.mark.parametrize("url", ["redis://:s3cret@a/4", "unix:///a.sock", SENTINEL_URL, "cluster://a,b:7001"])
def test_a_forked_child_gets_a_client_of_the_same_server_that_shares_nothing(url: str) -> None:
    inherited = client_of_url(url)
    child = fresh_copy(inherited)
    assert child is not inherited
    assert address(child) == address(inherited)
    if not isinstance(inherited, ClusterClient):
        assert child.connection_pool is not inherited.connection_pool
        assert settings(child).get("password") == settings(inherited).get("password")
        if not url.startswith("unix:"):
            assert_gives_up_soon(child)
        # its finalizer closes no connection of the parent
        sentinels = getattr(inherited.connection_pool, "sentinel_manager", Sentinel([])).sentinels
        assert not any(client.auto_close_connection_pool for client in (inherited, *sentinels))


def test_a_cluster_url_connects_to_nothing_yet() -> None:
    client = client_of_url("cluster://app:s3cret@b:7001,a")
    assert isinstance(client, ClusterClient)
    assert address(client) == "cluster://a:6379,b:7001"
    assert without_retries(client) is client
    client.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("bogus://host", "schemes"),
        ("redis://host:port", "'port'"),
        ("redis://host/0?socket_timeout=x", "socket_timeout"),
        ("unix:///s?socket_timeout=0", "socket_timeout must be a number of seconds above 0"),
        ("cluster://h?socket_timeout=inf", "socket_timeout must be a number of seconds above 0"),
        ("cluster://h?protocol=9", "protocol must be either 2 or 3"),
        ("redis://host/0?no_such_option=1", "no_such_option"),
        ("redis://:sec/ret@host", "it cannot be parsed"),
        ("redis://:sec#ret@host", "it cannot be parsed"),
        ("redis://:sec@[::1/0", "it cannot be parsed"),
        ("redis://[::1/0", "Invalid IPv6 URL"),
        ("bogus://:secret@host", "bogus://:***@host"),
        # redis-py raises errors of other classes for these
        ("rediss://a?ssl_cert_reqs=maybe", "Flag: maybe. Write"),
        ("redis://a?cache_config=1", "get_cache_class"),
        ("redis://a?db=b", "connection URL. Write"),
        (" redis://a", "one of the following schemes"),
        ("sentinel://a:26379", "the master's name"),
        ("sentinel://a/m/x", "the master's name"),
        ("sentinel:///m", "hosts, separated by commas"),
        ("sentinel://a,,b/m", "'' is not a host"),
        ("sentinel://a:port/m", "Port"),
        ("sentinel://a/m?no_such_option=1", "no_such_option"),
        ("sentinel://:sec/ret@a/m", "it cannot be parsed"),
        ("cluster://a/1", "no databases"),
        ("cluster://a?no_such_option=1", "no_such_option"),
        ("cluster://:sec/ret@a", "it cannot be parsed"),
        ("cluster:a", "hosts, separated by commas"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_and_no_password_is_shown(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a Redis URL|Options in a URL are those of redis-py") as caught:
        open_client(url)
    assert message in str(caught.value)
    # a traceback does not show it either, but for the line that has it
    assert "sec" not in str(caught.value).replace("separated", "").replace("seconds", "")
    assert caught.value.__suppress_context__


def test_crash_records_tell_servers_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def locator_in(name: str) -> str:
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        return open_client(redis.Redis(unix_socket_path="r.sock")).locator

    paths = [locator_in("a"), locator_in("b")]
    urls = ["redis://h", "redis://h:6380", "redis://h/1", "redis://me:pw@h", "rediss://h", "cluster://h"]
    urls += ["sentinel://h/m", "sentinel://h/n"]
    found = [*paths, *(open_client(url).locator for url in urls)]
    assert len({*found}) == len(found)
    assert paths[0] == open_client(f"unix://{tmp_path}/a/r.sock").locator
    assert not any("pw" in each for each in found)


def test_a_client_with_an_unknown_address_has_no_crash_records() -> None:
    class Wrapped:
        def evalsha(self, *_: Any) -> None: ...

    client = open_client(Wrapped())
    assert (client.where, client.locator) == ("Wrapped", "")


def test_connect_takes_that_slack_unless_told_otherwise() -> None:
    def slack_of(url: Any, **options: Any) -> int:
        return snowredis.connect(url, **options)._config.failover_slack_ms

    # a twelfth of the ttl is for clocks that differ
    assert slack_of("sentinel://a/m") == 17_500
    assert slack_of("sentinel://a/m", failover_slack=0) == 0
    assert slack_of("cluster://b") == 17_500
    assert slack_of("redis://a") == 2_500


def test_a_database_that_does_not_exist_is_a_mistake_in_the_url(server: RedisServer) -> None:
    with pytest.raises(ConfigError, match="no database") as caught:
        snowredis.connect(f"{server.url}?db=99").claim()
    assert not caught.value.retry


def test_tls_on_a_port_without_it_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        port = plain.getsockname()[1]
        with pytest.raises(StoreUnavailable, match="that this port speaks TLS, and"):
            snowredis.connect(f"rediss://127.0.0.1:{port}", claim_timeout=0).claim()


def test_no_worker_id_is_not_called_worker_id_minus_one() -> None:
    assert "worker id -1" not in str(LeaseExpired("orders", -1, "Redis keeps losing its state"))


@pytest.mark.timeout(60)
def test_a_blocking_pool_of_the_application_is_not_waited_for(server: RedisServer) -> None:
    pool = redis.BlockingConnectionPool.from_url(server.url, max_connections=1, timeout=None)
    theirs = redis.Redis(connection_pool=pool)
    with theirs.pipeline() as pipe:
        # the only connection of the pool
        pipe.watch("mine")
        with snowredis.connect(theirs, pool=new_pool(server.url)) as ids:
            assert ids.next_id() > 0


@pytest.mark.parametrize("options", [{"encoding": "utf-16"}, {"encoding": "utf-16", "decode_responses": True}])
def test_a_client_with_another_encoding_works(server: RedisServer, options: dict[str, Any]) -> None:
    theirs = redis.Redis.from_url(server.url, **options)
    with snowredis.connect(theirs, pool=new_pool(server.url)) as ids:
        assert ids.next_id() > 0


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://:secret@host:6379/0", "redis://:***@host:6379/0"),
        ("rediss://app:secret@host", "rediss://app:***@host"),
        ("redis://app:sec@ret@host", "redis://app:***@host"),
        ("redis://app:sec:ret@host", "redis://app:***@host"),
        ("redis://:se/cret@host", "redis://:***@host"),
        ("redis://app@host", "redis://app@host"),
        (":secret@host:6379/0", "***@host:6379/0"),
        ("redis:/app:secret@host", "***@host"),
        ("unix://app:secret@/run/redis.sock?db=1", "unix://app:***@/run/redis.sock?db=1"),
        ("redis://host/0?password=secret", "redis://host/0?password=***"),
        ("redis://host/0?db=1&password=sec%26ret&a=b", "redis://host/0?db=1&password=***&a=b"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        (
            "sentinel://app:s3cret@b:1,a,[::1]:2/m/3?sentinel_password=h&a=b",
            "sentinel://app:***@b:1,a,[::1]:2/m/3?sentinel_password=***&a=b",
        ),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redacted(url) == shown


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://app:secret@host:6380/2", "host:6380/2"),
        ("redis://host", "host:6379/0"),
        ("rediss://:secret@host", "rediss://host:6379/0"),
        ("unix://:secret@/run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
    ],
)
def test_an_address_says_where_and_no_password_and_its_client_gives_up_soon(url: str, where: str) -> None:
    client = client_of_url(url)
    assert address(client) == where
    assert RedisStore(client, PoolConfig(name="orders")).where == where
    assert_gives_up_soon(client)


def test_a_clients_settings_are_kept_but_for_retries_and_time_outs() -> None:
    given: dict[str, Any] = {"host": "host", "port": 6380, "db": 2, "username": "app", "password": "secret"}
    given["client_name"] = "web"
    limits: dict[str, Any] = {"socket_timeout": 60, "socket_connect_timeout": 50}
    theirs = redis.Redis(**given, **limits, decode_responses=True, retry=Retry(ExponentialBackoff(), 10))
    ours = without_retries(theirs)
    assert ours is not theirs
    assert_gives_up_soon(ours)
    assert settings(ours).items() >= given.items()
    assert settings(ours)["decode_responses"] is False
    # theirs is as it was
    before = settings(theirs)
    assert (before["socket_timeout"], before["retry"].get_retries()) == (60, 10)
    assert before["decode_responses"] is True


def test_what_a_pool_notes_for_its_own_connections_is_not_taken_over() -> None:
    theirs = redis.Redis(host="host", socket_timeout=60, protocol=3)
    ours = without_retries(theirs)
    for name, value in settings(ours).items():
        if name.startswith("orig_socket"):
            assert value == SOCKET_TIMEOUT_S
        if name.endswith("pool_handler"):
            assert value.pool is ours.connection_pool


def test_a_client_with_tls_keeps_its_certificates() -> None:
    theirs = redis.Redis(
        host="host", ssl=True, ssl_ca_certs="/ca.pem", ssl_certfile="/me.pem", ssl_check_hostname=False
    )
    ours = without_retries(theirs)
    assert issubclass(ours.connection_pool.connection_class, redis.SSLConnection)
    connection = ours.connection_pool.connection_class(**settings(ours))
    assert (connection.ca_certs, connection.certfile, connection.check_hostname) == ("/ca.pem", "/me.pem", False)
    assert connection.cert_reqs is ssl.CERT_REQUIRED
    assert_gives_up_soon(ours)


class Own(redis.Redis):
    """A client of a class of the application's own."""


def test_a_client_of_another_kind_is_used_as_it_is_in_a_forked_child_too() -> None:
    for theirs in (Own(), object()):
        assert without_retries(theirs) is theirs
    inherited = Own()
    assert fresh_copy(inherited) is inherited
    assert inherited.auto_close_connection_pool is True


def test_a_client_of_another_kind_that_may_wait_for_ever_is_refused() -> None:
    for theirs in (Own(socket_timeout=None), Own.from_url("redis://host", socket_timeout=None)):
        with pytest.raises(snowredis.ConfigError, match=r"of class Own without socket_timeout.* socket_timeout=1"):
            snowredis.connect(theirs, pool="orders")
    for theirs in (Own(socket_timeout=1), redis.Redis(socket_timeout=None)):
        snowredis.connect(theirs, pool="orders").close()
