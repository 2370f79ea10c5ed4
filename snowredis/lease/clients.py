"""redis-py clients for our own use: from URLs, and from clients that the application made.

Every client made here answers or fails within about two seconds, and never repeats a command by
itself. Nothing connects before the first command, to a Cluster neither. What the first command
needs is imported here, so that no fork finds another thread in the middle of an import.
"""

from __future__ import annotations

# the first look-up of a host name imports it
import encodings.idna  # noqa: F401
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from redis import cluster, connection, sentinel
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from snowredis.errors import ConfigError
from snowredis.lease.cluster import ClusterClient
from snowredis.lease.connections import limited

# redis-py gives these no types
_Sentinel: Any = sentinel.Sentinel
_SentinelPool: Any = sentinel.SentinelConnectionPool
_ClusterNode: Any = cluster.ClusterNode
_parse_url: Any = connection.parse_url

# a script takes microseconds and a round trip under a millisecond: a second says that something is wrong
SOCKET_TIMEOUT_S = 1.0
# there are several Sentinels, asked one after the other, and then comes the master
SENTINEL_TIMEOUT_S = 0.5
# a deposed master may go on answering for about so long; see failover_slack of connect()
FAILOVER_SLACK_MS = 15_000
SENTINEL_PORT, REDIS_PORT = 26379, 6379
# clients that this process inherited in a fork
_of_parents: list[Any] = []


@dataclass(frozen=True, slots=True)
class OwnClient:
    """A redis-py client that is used by nobody else.

    Attributes:
        where: the address, without password, for messages.
        owned: False: the application's client, of a class that is not known here; it is used as it is and not closed.
        urls: the URL with which another process reaches the same server; none if it was made of a client.
        failover_slack_ms: how long a deposed master may go on answering there.
    """

    client: Any
    where: str
    owned: bool
    urls: tuple[str, ...]
    failover_slack_ms: int


def own_client(server: Any) -> OwnClient:
    """Return a client for *server*, a URL or a redis-py client. Does not connect; raises ConfigError."""
    is_url = isinstance(server, str)
    client = connect_client(server) if is_url else without_retries(server)
    return OwnClient(
        client=client,
        where=address(client),
        owned=client is not server,
        urls=(server,) if is_url else (),
        failover_slack_ms=FAILOVER_SLACK_MS if _fails_over(client) else 0,
    )


def connect_client(url: str) -> Any:
    """A client for *url*: redis.Redis, or a ClusterClient. Raises ConfigError; does not connect."""
    scheme = url.partition(":")[0]
    make = {"sentinel": _from_sentinel_url, "cluster": _from_cluster_url}.get(scheme, _from_redis_url)
    try:
        return make(url)
    except (ValueError, TypeError) as error:
        # what "/" or "#" cuts off a password stands in the error's text: neither that nor the error is shown
        reason = str(error) if redacted(url) == url else "it cannot be read"
        raise ConfigError(
            f"{redacted(url)!r} is no Redis URL: {reason}. Write redis://host:6379/0, rediss://…, "
            "unix:///path/to.sock, embedded://, sentinel://host:26379,host:26379/MASTER/0 or "
            "cluster://host:7000,host:7001, and special characters of a password as %2F, %23, %40."
        ) from None


def _from_redis_url(url: str) -> redis.Redis:
    return _prepared(redis.Redis.from_url(url, **_limits()))


def _from_sentinel_url(url: str) -> redis.Redis:
    hosts, path, options = _split(url, SENTINEL_PORT)
    master, _, db = path.strip("/").partition("/")
    if not master or not re.fullmatch(r"\d*", db, re.ASCII):
        raise ValueError("the master's name has to come after the Sentinels, then perhaps a database number")
    tls = options.pop("ssl", False)
    to_sentinels: dict[str, Any] = _limits(SENTINEL_TIMEOUT_S) | ({"ssl": True} if tls else {})
    for name in ("username", "password"):
        if f"sentinel_{name}" in options:
            to_sentinels[name] = options.pop(f"sentinel_{name}")
    others = int(options.pop("min_other_sentinels", 0))
    sentinels = _Sentinel(hosts, min_other_sentinels=others, sentinel_kwargs=to_sentinels)
    settings = _limits() | options | {"db": int(db or options.get("db", 0))}
    client: redis.Redis = sentinels.master_for(unquote(master), **settings, **({"ssl": True} if tls else {}))
    for one in sentinels.sentinels:
        _prepared(one)
    return _prepared(client)


def _from_cluster_url(url: str) -> ClusterClient:
    hosts, path, options = _split(url, REDIS_PORT)
    if path.strip("/") not in ("", "0") or options.pop("db", 0):
        raise ValueError("a Cluster has no databases but 0")
    settings = _limits() | options
    if not settings.get("ssl"):
        settings.pop("ssl", None)
    return _cluster_client(hosts, settings)


def _split(url: str, default_port: int) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
    """Hosts with ports; the path; credentials and options as redis-py reads them."""
    match = re.fullmatch(r"\w+://(?:([^/?#]*)@)?([^/?#@]+)(/[^?#]*)?(?:\?([^#]*))?", url)
    if match is None:
        raise ValueError("hosts, separated by commas, have to come after ://")
    credentials, hosts, path, query = match.groups(default="")
    options: dict[str, Any] = dict(_parse_url(f"redis://{credentials}@host/?{query}"))
    del options["host"]
    if "ssl" in options:
        options["ssl"] = str(options["ssl"]).lower() in ("1", "true", "yes")
    found = []
    for host in hosts.split(","):
        parts = urlsplit(f"//{host}")
        if not parts.hostname:
            raise ValueError(f"{host!r} is no host")
        found.append((parts.hostname, parts.port or default_port))
    return found, path, options


def _limits(seconds: float = SOCKET_TIMEOUT_S) -> dict[str, Any]:
    return {
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "retry": Retry(NoBackoff(), 0),
    }


def _prepared(client: redis.Redis) -> redis.Redis:
    """Make *client* keep to time limits, and do now what would read a file at its first command. Does not connect.

    Raises TypeError for an option that there is not, which would show only at the first command.
    """
    pool = client.connection_pool
    pool.connection_class = limited(pool.connection_class)
    connection = pool.connection_class(**pool.connection_kwargs)
    # since redis-py 7.2: the version that it tells the server is read from its metadata for each connection
    if hasattr(connection, "driver_info"):
        pool.connection_kwargs.setdefault("driver_info", connection.driver_info)
    return client


def _cluster(nodes: Sequence[tuple[str, int]], settings: dict[str, Any], **options: Any) -> RedisCluster:
    if int(redis.__version__.partition(".")[0]) < 6:
        # there, `retry` is of connections only
        options["cluster_error_retry_attempts"] = 0
    return RedisCluster(
        startup_nodes=[_ClusterNode(host, port) for host, port in nodes],
        retry=Retry(NoBackoff(), 0),
        # other pools' slots are no business of this one
        require_full_coverage=False,
        # the first redirection shows that the slots have moved
        reinitialize_steps=1,
        **options,
        **{name: value for name, value in settings.items() if name != "retry"},
    )


def _cluster_client(
    nodes: Sequence[tuple[str, int]],
    settings: dict[str, Any],
    address_remap: Callable[[tuple[str, int]], tuple[str, int]] | None = None,
) -> ClusterClient:
    node = _prepared(redis.Redis(**settings))
    settings |= {
        name: at for name, at in node.connection_pool.connection_kwargs.items() if name == "driver_info"
    }
    options = {} if address_remap is None else {"address_remap": address_remap}
    return ClusterClient(
        nodes, settings, lambda: _cluster(nodes, settings, **options), address_remap=address_remap
    )


def without_retries(client: Any) -> Any:
    """A client like *client* for our own use, with short time-outs and no retries, where that can be had."""
    if type(client) is RedisCluster:
        return _cluster_without_retries(client)
    if type(client) is not redis.Redis:
        return client
    pool = client.connection_pool
    if type(pool) is SentinelConnectionPool and type(pool.sentinel_manager) is _Sentinel:
        return _sentinel_without_retries(pool)
    if type(pool) is not redis.ConnectionPool:
        return client
    settings = _kept(pool.connection_kwargs)
    if issubclass(pool.connection_class, redis.UnixDomainSocketConnection):
        settings.pop("socket_connect_timeout", None)
    return _on_pool(redis.ConnectionPool(connection_class=pool.connection_class, **settings))


def _on_pool(pool: redis.ConnectionPool) -> redis.Redis:
    client = redis.Redis(connection_pool=pool)
    # the pool is this client's alone
    client.auto_close_connection_pool = True
    return _prepared(client)


def _sentinel_without_retries(pool: Any) -> redis.Redis:
    theirs = pool.sentinel_manager
    ours = _Sentinel([], min_other_sentinels=theirs.min_other_sentinels)
    # since redis-py 6.3
    if getattr(theirs, "_force_master_ip", None) is not None:
        ours._force_master_ip = theirs._force_master_ip
    ours.sentinels = [
        _on_pool(
            redis.ConnectionPool(
                connection_class=one.connection_pool.connection_class,
                **_kept(one.connection_pool.connection_kwargs, SENTINEL_TIMEOUT_S),
            )
        )
        for one in theirs.sentinels
    ]
    settings = _kept(pool.connection_kwargs)
    # of the other pool; this one notes its own
    settings.pop("connection_pool", None)
    return _on_pool(
        _SentinelPool(
            pool.service_name,
            ours,
            connection_class=pool.connection_class,
            is_master=pool.is_master,
            check_connection=pool.check_connection,
            **settings,
        )
    )


def _cluster_without_retries(client: Any) -> Any:
    manager = client.nodes_manager
    nodes = [(node.host, node.port) for node in (client.get_nodes() or manager.startup_nodes.values())]
    settings = _kept(manager.connection_kwargs)
    # each node's, or made anew by the client
    for name in ("host", "port", "db", "redis_connect_func", "himport_registry", "cache"):
        settings.pop(name, None)
    # of a client that was made from a URL
    if issubclass(settings.pop("connection_class", object), redis.SSLConnection):
        settings["ssl"] = True
    return _cluster_client(nodes, settings, getattr(manager, "address_remap", None))


def fresh_copy(client: Any) -> Any:
    """Return a client like *client*, for a forked child: no connection and no lock of the parent's in it.

    Takes no lock, closes no socket, and sees to it that nothing does when *client* goes: a lock may have been held by
    another thread of the parent at the fork, and a connection may be in use there. A client of a kind that
    without_retries() does not know is returned as it is.
    """
    # kept, since an object that goes closes its connections
    _of_parents.append(client)
    if isinstance(client, ClusterClient):
        for part in client.parts():
            _disarm(part)
        return client.fresh_copy()
    copy = without_retries(client)
    if copy is not client:
        _disarm(client)
    return copy


def _disarm(client: Any) -> None:
    """Make *client* one that can be finalized, at the end of the process, without a lock of its parent's."""
    if isinstance(client, RedisCluster):
        manager: Any = client.nodes_manager
        client._lock = manager._lock = threading.RLock()
        for node in [*manager.nodes_cache.values(), *manager.startup_nodes.values()]:
            if node.redis_connection is not None:
                _disarm(node.redis_connection)
        return
    client.auto_close_connection_pool = False
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        for one in pool.sentinel_manager.sentinels:
            _disarm(one)


def _kept(theirs: dict[str, Any], seconds: float = SOCKET_TIMEOUT_S) -> dict[str, Any]:
    """The settings of a connection pool for one of our own: what it noted for its own connections is made anew."""
    kept = {
        name: value
        for name, value in theirs.items()
        if not name.startswith("orig_") and name != "maint_notifications_pool_handler"
    }
    return kept | _limits(seconds) | {"decode_responses": False}


def is_cluster(client: Any) -> bool:
    return isinstance(client, ClusterClient | RedisCluster)


def _fails_over(client: Any) -> bool:
    return is_cluster(client) or isinstance(getattr(client, "connection_pool", None), SentinelConnectionPool)


def redacted(url: str) -> str:
    """*url* without its password."""
    url = re.sub(r"(?<=[?&_]password=)[^&#]*", "***", url)
    head, at, tail = url.rpartition("@")
    scheme, slashes, credentials = head.partition("//")
    if not at or ":" not in credentials:
        return url
    return f"{scheme}{slashes}{credentials.partition(':')[0]}:***@{tail}"


def address(client: Any) -> str:
    """Where *client* connects to, for messages; no password."""
    if isinstance(client, ClusterClient):
        return f"cluster://{_hosts(client.nodes)}"
    if isinstance(client, RedisCluster):
        nodes: list[Any] = getattr(client, "get_nodes", list)()
        return f"cluster://{_hosts((node.host, node.port) for node in nodes)}"
    pool = getattr(client, "connection_pool", None)
    settings = getattr(pool, "connection_kwargs", {})
    if isinstance(pool, SentinelConnectionPool):
        sentinels = [
            (at.get("host", "localhost"), at.get("port", SENTINEL_PORT))
            for one in pool.sentinel_manager.sentinels
            for at in [one.connection_pool.connection_kwargs]
        ]
        return f"sentinel://{_hosts(sentinels)}/{pool.service_name}/{settings.get('db', 0)}"
    if "path" in settings:
        return f"unix://{settings['path']}"
    if "host" in settings:
        return f"{settings['host']}:{settings.get('port', REDIS_PORT)}/{settings.get('db', 0)}"
    return type(client).__name__


def _hosts(nodes: Any) -> str:
    """In one order, whichever of them answered last."""
    return ",".join(f"{host}:{port}" for host, port in sorted(nodes))
