"""redis-py clients that only snowredis uses: from URLs, and like the application's clients.

Those of Sentinels and of a Cluster are made in failover.py, which is loaded where it is used.

Every command returns or fails within about two seconds, and redis-py never repeats it. Nothing connects before the
first command, and no error shows a password.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import socket
import threading
from typing import Any, NamedTuple

import redis
from redis import sentinel
from redis.cluster import RedisCluster
from redis.sentinel import SentinelConnectionPool

from snowredis.errors import ConfigError, shown
from snowredis.servers.connections import (
    REDIS_PORT,
    SENTINEL_PORT,
    OwnCluster,
    client_on,
    close_connections,
    limits,
    prepare,
    settings_of_pool,
)
from snowredis.settings import SETTINGS, is_embedded, nearest


def client_of_url(url: str) -> Any:
    """Return a client for *url*: a redis.Redis or a ClusterClient. Does not connect. Raises ConfigError."""
    scheme = url.partition(":")[0]
    if scheme == "unix" and not hasattr(socket, "AF_UNIX"):
        raise ConfigError(
            f"{redacted(url)!r} names a unix socket, which Python does not have on this system: nothing was connected. "
            "Use redis://host:6379/0."
        )
    try:
        if scheme == "sentinel":
            from snowredis.servers.failover import from_sentinel_url

            return from_sentinel_url(url)
        if scheme == "cluster":
            from snowredis.servers.failover import from_cluster_url

            return from_cluster_url(url)
        return prepare(redis.Redis.from_url(url, **limits()))
    # nothing connects here: a ConnectionError is about a value
    except (ValueError, TypeError, redis.ConnectionError) as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        # a password ends before the last "@"
        if unknown and re.search(rf"[?&]{unknown[1]}=", url.rpartition("@")[2]):
            raise ConfigError(_unknown_option(unknown[1])) from None
        # a "/" or "#" in a password moves the rest of it into the error's text: neither that nor the error is shown
        reason = str(error) if redacted(url) == url else "it cannot be parsed"
        raise ConfigError(
            f"{redacted(url)!r} is not a Redis URL: {reason}. Write redis://host:6379/0, rediss://…, "
            "unix:///path/to.sock, embedded://, sentinel://host:26379,host:26379/MASTER/0 or "
            "cluster://host:7000,host:7001, and special characters of a password as %2F, %23, %40."
        ) from None


def _unknown_option(name: str) -> str:
    """Return the error's text for *name* in the query of a URL."""
    options = inspect.signature(redis.Redis).parameters
    near = nearest(name, options, cutoff=0.8) or nearest(name, SETTINGS)
    hint = f"Did you mean {near!r}? " if near and near != name else ""
    if near in SETTINGS:
        hint += f"{near!r} is a setting: pass {near}=… beside the URL. "
    return (
        f"unknown option {name!r} in the URL. {hint}Options in a URL are those of redis-py, such as socket_timeout "
        "and client_name."
    )


def redacted(url: str) -> str:
    """Return *url* without its password."""
    url = re.sub(r"(?<=[?&_]password=)[^&#]*", "***", url)
    head, at, tail = url.rpartition("@")
    scheme, slashes, credentials = head.partition("//")
    if not at or ":" not in credentials:
        return url
    return f"{scheme}{slashes}{credentials.partition(':')[0]}:***@{tail}"


# the address of a server with TLS begins like this
TLS_PREFIX = "rediss://"
# how long a deposed master may go on answering; see failover_slack of connect()
FAILOVER_SLACK_MS = 15_000
# clients that this process inherited in a fork
_inherited: list[Any] = []


class OwnClient(NamedTuple):
    """A redis-py client that only snowredis uses.

    Attributes:
        where: the address, without password, for messages.
        locator: what tells the server from all others that processes here reach; empty if that is unknown.
        owned: False for the application's own client: its class is unknown here, so it is used as it is and not closed.
        failover_slack_ms: how long a deposed master may go on answering there.
        fresh: True for an embedded server that no reservation of an earlier one concerns.
    """

    client: Any
    where: str
    locator: str
    owned: bool
    failover_slack_ms: int
    fresh: bool


def open_client(server: Any, *, creates: bool = False) -> OwnClient:
    """Return a client for *server*: a URL, a redis-py client, or what this function returned.

    Connects to nothing, but starts the server of embedded:// if it is not running. Raises ConfigError,
    StoreUnavailable.

    Args:
        creates: a pool that does not exist may be created with this client; else its ``fresh`` is False.
    """
    if isinstance(server, OwnClient):
        return server
    fresh = False
    if is_embedded(server):
        from snowredis import embedded

        running = embedded.join(server)
        server, fresh = running.url, running.fresh and creates
    _check_kind(server)
    client = client_of_url(server) if isinstance(server, str) else without_retries(server)
    return OwnClient(
        client=client,
        where=address(client),
        locator=_locator(client),
        owned=client is not server,
        failover_slack_ms=FAILOVER_SLACK_MS if _fails_over(client) else 0,
        fresh=fresh,
    )


def _check_kind(server: Any) -> None:
    """Raise ConfigError unless *server* is a URL, or can run commands and wait for their replies."""
    kinds = type(server).__mro__
    wrong = ""
    if any(kind.__module__.startswith("redis.asyncio") for kind in kinds):
        wrong = (
            "a client of redis.asyncio, whose commands have to be awaited. Pass its URL, or a redis.Redis; "
            "snowredis.aconnect() does not block the event loop with them"
        )
    elif isinstance(server, redis.client.Pipeline | redis.cluster.ClusterPipeline):
        wrong = "a pipeline, whose commands run later. Pass the client itself"
    elif isinstance(server, sentinel.Sentinel):
        wrong = "a client of the Sentinels only. Pass its master_for(NAME), or the URL sentinel://HOSTS/NAME/0"
    elif isinstance(server, list | tuple) or (isinstance(server, str) and "://" in server.partition(" ")[2]):
        wrong = "a list of servers. Name one: a Redis, or a Sentinel or Cluster that fails over"
    elif isinstance(server, type) or (not isinstance(server, str) and not callable(getattr(server, "evalsha", None))):
        wrong = f"{shown(server)}. Pass the URL of a Redis, such as redis://localhost:6379/0, or a redis.Redis"
    if wrong:
        raise ConfigError(f"url cannot be {wrong}.")


def without_retries(client: Any) -> Any:
    """Return a copy of *client* with short timeouts and without retries, or *client* if its class is unknown here."""
    if type(client) is RedisCluster:
        from snowredis.servers.failover import cluster_without_retries

        return cluster_without_retries(client)
    if type(client) is not redis.Redis:
        return client
    pool = client.connection_pool
    if type(pool) is SentinelConnectionPool and type(pool.sentinel_manager) is sentinel.Sentinel:
        from snowredis.servers.failover import sentinel_without_retries

        return sentinel_without_retries(pool)
    if type(pool) not in (redis.ConnectionPool, redis.BlockingConnectionPool):
        return client
    settings = settings_of_pool(pool)
    if issubclass(pool.connection_class, redis.UnixDomainSocketConnection):
        settings.pop("socket_connect_timeout", None)
    return client_on(redis.ConnectionPool(connection_class=pool.connection_class, **settings))


def fresh_copy(client: Any) -> Any:
    """Return a client like *client*, for a forked child, without the parent's connections and locks.

    Takes no lock and closes no socket, neither now nor when *client* is finalized: another thread of the parent may
    have held a lock at the fork, and the parent may be using a connection. A client of a class that without_retries()
    does not know is returned as it is.
    """
    # referred to for ever, since a client closes its connections when it is finalized
    _inherited.append(client)
    if isinstance(client, OwnCluster):
        for part in client.parts():
            _disarm(part)
        return client.fresh_copy()
    fresh = without_retries(client)
    if fresh is not client:
        _disarm(client)
    return fresh


def _disarm(client: Any) -> None:
    """Let *client* be finalized, at the end of the process, without taking a lock of the parent process."""
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
        for sentinel_client in pool.sentinel_manager.sentinels:
            _disarm(sentinel_client)


def close_client(client: Any) -> None:
    """Close all connections of a client that open_client() made, also those to its Sentinels. Never raises."""
    if isinstance(client, OwnCluster):
        client.close()
    else:
        close_connections(client)


def is_cluster(client: Any) -> bool:
    return isinstance(client, OwnCluster | RedisCluster)


def _fails_over(client: Any) -> bool:
    return is_cluster(client) or isinstance(getattr(client, "connection_pool", None), SentinelConnectionPool)


def address(client: Any) -> str:
    """Return where *client* connects to, without password, for messages."""
    return _known_address(client) or type(client).__name__


def _locator(client: Any) -> str:
    """Return what tells the server of *client* from all others that processes here reach; empty if that is unknown.

    A path may be relative to the directory of this process, and a proxy may choose the server by the user.
    """
    known = _known_address(client)
    # a client of a Cluster would connect
    settings = {} if is_cluster(client) or not known else client.connection_pool.connection_kwargs
    # the directory may have been removed
    with contextlib.suppress(OSError):
        if path := settings.get("path"):
            known = f"unix://{os.path.abspath(path)}?db={settings.get('db', 0)}"
        return known and f"{settings.get('username') or ''}@{known}"
    return ""


def _known_address(client: Any) -> str:
    """Return the address of a client of redis-py; of others, an empty text."""
    if isinstance(client, OwnCluster):
        return f"cluster://{_hosts(client.nodes)}"
    if isinstance(client, RedisCluster):
        nodes: list[Any] = getattr(client, "get_nodes", list)()
        return f"cluster://{_hosts((node.host, node.port) for node in nodes)}"
    pool = getattr(client, "connection_pool", None)
    settings = getattr(pool, "connection_kwargs", {})
    if isinstance(pool, SentinelConnectionPool):
        connections = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
        sentinels = [(c.get("host", "localhost"), c.get("port", SENTINEL_PORT)) for c in connections]
        return f"sentinel://{_hosts(sentinels)}/{pool.service_name}/{settings.get('db', 0)}"
    if "path" in settings:
        database = settings.get("db", 0)
        return f"unix://{settings['path']}" + f"?db={database}" * bool(database)
    if "host" in settings:
        tls = issubclass(getattr(pool, "connection_class", object), redis.SSLConnection)
        return f"{TLS_PREFIX * tls}{settings['host']}:{settings.get('port', REDIS_PORT)}/{settings.get('db', 0)}"
    return ""


def _hosts(nodes: Any) -> str:
    """Return the addresses as text, in a fixed order: redis-py changes the order of nodes."""
    return ",".join(f"{host}:{port}" for host, port in sorted(nodes))
