"""redis-py clients that only snowredis uses: from URLs, and like the application's clients.

Those of Sentinels and of a Cluster are made in failover.py, which is loaded where it is used.

Every command returns or fails within about two seconds, and redis-py never repeats it. Nothing connects before the
first command, and no error shows a password.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import redis
from redis import sentinel
from redis.cluster import RedisCluster
from redis.sentinel import SentinelConnectionPool

from snowredis.servers.connections import (
    NO_PORT,
    REDIS_PORT,
    SENTINEL_PORT,
    OwnCluster,
    client_on,
    clients_in,
    close_connections,
    limits,
    prepare,
    settings_of_pool,
)
from snowredis.settings import is_embedded


def client_of_url(url: str) -> Any:
    """Return a client for *url*: a redis.Redis or a ClusterClient. Does not connect. Raises ConfigError."""
    scheme = url.partition(":")[0]
    if scheme == "unix" and not hasattr(socket, "AF_UNIX"):
        from snowredis.servers.refusals import no_unix_sockets

        raise no_unix_sockets(url)
    # as celery spells it
    url = re.sub(r"(?<=[?&]ssl_cert_reqs=)CERT_\w+", lambda found: found[0].removeprefix("CERT_").lower(), url)
    if "ssl_" in url:
        from snowredis.servers.refusals import check_certificates

        check_certificates(url)
    gap = ""
    try:
        gap = (_gap(url) if scheme in ("redis", "rediss", "unix") else "") or _twice(url)
        if not gap:
            return _made_from(url, scheme)
        reason = gap
    # nothing connects here: an error of redis-py is about a value
    except (ValueError, TypeError, AttributeError, redis.RedisError) as error:
        reason = str(error)
    from snowredis.servers.refusals import unusable_url

    raise unusable_url(url, reason, is_ours=bool(gap)) from None


def _made_from(url: str, scheme: str) -> Any:
    if scheme in ("sentinel", "cluster"):
        from snowredis.servers.failover import from_cluster_url, from_sentinel_url

        return from_sentinel_url(url) if scheme == "sentinel" else from_cluster_url(url)
    return prepare(redis.Redis.from_url(url, **limits()))


def _gap(url: str) -> str:
    """Return why redis-py would take another server or database than *url* means; empty: it would not.

    Raises ValueError.
    """
    scheme, address, path, query, fragment = urlsplit(url)
    server = address.rpartition("@")[2]
    host = server.partition(":")[0]
    if "@" in fragment or (scheme != "unix" and ("@" in path or ("@" in query and not host))):
        # a password with a sign that ends the address
        return "it cannot be parsed"
    if fragment:
        return "a # has to be written %23"
    if scheme == "unix":
        return "" if path and not server else "it names no socket: three slashes come before its path"
    if not host:
        return "it names no host"
    if NO_PORT.search(server):
        return "it names no port after the host"
    if not re.fullmatch(r"/?|/[0-9]+/?", path):
        return "what comes after the host is no number of a database"
    return ""


def _twice(url: str) -> str:
    """Return an error's text if *url* names its server, database or user twice, of which redis-py takes one."""
    # by hand: urlsplit() refuses several hosts of which one is an address of IPv6
    scheme, _, rest = url.partition("#")[0].partition("://")
    rest, _, query = rest.partition("?")
    address, _, path = rest.partition("/")
    credentials, _, server = address.rpartition("@")
    user, _, password = credentials.partition(":")
    named: dict[str, Any] = {
        "host": server,
        "port": re.search(r":\d+$", server),
        "username": user,
        "password": password,
    }
    # a sentinel:// URL names its master before the database
    named |= {"path": path} if scheme == "unix" else {"db": any(path.strip("/").split("/")[scheme == "sentinel" :])}
    names = [*re.findall(rf"(?:^|&)({'|'.join(named)})=", query), *(name for name in named if named[name])]
    return next((f"it names its {name} twice" for name in names if names.count(name) > 1), "")


# the address of a server with TLS begins like this
TLS_PREFIX = "rediss://"
# how long a deposed master may go on answering; a part of failover_slack of connect()
FAILOVER_SLACK_MS = 15_000
# clients that this process inherited in a fork
_inherited: list[Any] = []


class OwnClient(NamedTuple):
    """A redis-py client that only snowredis uses.

    Attributes:
        owned: False for the application's own client: its class is unknown here, so it is used as it is and not closed.
        fresh: True for an embedded server that no reservation of an earlier one concerns.
    """

    client: Any
    owned: bool
    fresh: bool

    @property
    def where(self) -> str:
        """The address, without password, for messages."""
        return address(self.client)

    @property
    def failover_slack_ms(self) -> int:
        """Time for which a deposed master may go on answering there."""
        # asked for its pool, a client of a Cluster would connect
        pool = None if is_cluster(self.client) else getattr(self.client, "connection_pool", None)
        return FAILOVER_SLACK_MS if is_cluster(self.client) or isinstance(pool, SentinelConnectionPool) else 0

    @property
    def locator(self) -> str:
        """Text that tells the server from all others that processes here reach; empty if that is unknown.

        A path may be relative to the directory of this process, and a proxy may choose the server by the user.
        """
        known = _known_address(self.client)
        # a client of a Cluster would connect
        settings = {} if is_cluster(self.client) or not known else self.client.connection_pool.connection_kwargs
        # the directory may have been removed
        with contextlib.suppress(OSError):
            if path := settings.get("path"):
                known = f"unix://{os.path.abspath(path)}?db={settings.get('db', 0)}"
            return known and f"{settings.get('username') or ''}@{known}"
        return ""


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
    if not isinstance(server, str) or "://" in server.lstrip().partition(" ")[2]:
        # no URL: loaded only for these
        from snowredis.servers.refusals import check_kind

        check_kind(server)
    client = client_of_url(server) if isinstance(server, str) else without_retries(server)
    if client is server:
        from snowredis.servers.refusals import check_limits

        check_limits(client)
    return OwnClient(client, client is not server, fresh)


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
    for part in clients_in(client):
        _disarm(part)
    if isinstance(client, RedisCluster):
        manager: Any = client.nodes_manager
        client._lock = manager._lock = threading.RLock()
    else:
        client.auto_close_connection_pool = False


def close_client(client: Any) -> None:
    """Close all connections of a client that open_client() made, also those to its Sentinels. Never raises."""
    if isinstance(client, OwnCluster):
        client.close()
    else:
        close_connections(client)


def is_cluster(client: Any) -> bool:
    return isinstance(client, OwnCluster | RedisCluster)


def address(client: Any) -> str:
    """Return where *client* connects to, without password, for messages."""
    return _known_address(client) or type(client).__name__


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
