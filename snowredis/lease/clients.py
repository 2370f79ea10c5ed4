"""redis-py clients for our own use: from URLs, and from clients that the application made.

Every client made here replies or fails within about two seconds, and never repeats a command by
itself. Nothing connects before the first command. What the first command needs is imported here, so that no
fork finds another thread in the middle of an import.
"""

from __future__ import annotations

# the first look-up of a host name imports it
import encodings.idna  # noqa: F401
import threading
from dataclasses import dataclass
from typing import Any

import redis
from redis import sentinel
from redis.cluster import RedisCluster
from redis.sentinel import SentinelConnectionPool

from snowredis.lease.cluster import ClusterClient
from snowredis.lease.prepared import SENTINEL_TIMEOUT_S, SOCKET_TIMEOUT_S, cluster_client, limits, prepared
from snowredis.lease.urls import REDIS_PORT, SENTINEL_PORT, client_of_url

# redis-py gives these no types
_Sentinel: Any = sentinel.Sentinel
_SentinelPool: Any = sentinel.SentinelConnectionPool

# a deposed master may go on answering for about so long; see failover_slack of connect()
FAILOVER_SLACK_MS = 15_000
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
    client = client_of_url(server) if is_url else without_retries(server)
    return OwnClient(
        client=client,
        where=address(client),
        owned=client is not server,
        urls=(server,) if is_url else (),
        failover_slack_ms=FAILOVER_SLACK_MS if _fails_over(client) else 0,
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
    return prepared(client)


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
    return cluster_client(nodes, settings, getattr(manager, "address_remap", None))


def _kept(theirs: dict[str, Any], seconds: float = SOCKET_TIMEOUT_S) -> dict[str, Any]:
    """The settings of a connection pool for one of our own: what it noted for its own connections is made anew."""
    kept = {
        name: value
        for name, value in theirs.items()
        if not name.startswith("orig_") and name != "maint_notifications_pool_handler"
    }
    return kept | limits(seconds) | {"decode_responses": False}


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


def is_cluster(client: Any) -> bool:
    return isinstance(client, ClusterClient | RedisCluster)


def _fails_over(client: Any) -> bool:
    return is_cluster(client) or isinstance(getattr(client, "connection_pool", None), SentinelConnectionPool)


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
