"""Create redis-py clients from URLs. Nothing here connects, and no error shows a password."""

from __future__ import annotations

import re
import socket
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from redis import connection, sentinel

from snowredis.errors import ConfigError
from snowredis.lease.cluster import ClusterClient
from snowredis.lease.connections import SENTINEL_TIMEOUT_S, limits, prepare

# redis-py gives these no types
_Sentinel: Any = sentinel.Sentinel
_parse_url: Any = connection.parse_url

SENTINEL_PORT, REDIS_PORT = 26379, 6379


def client_of_url(url: str) -> Any:
    """Return a client for *url*: a redis.Redis or a ClusterClient. Does not connect. Raises ConfigError."""
    scheme = url.partition(":")[0]
    if scheme == "unix" and not hasattr(socket, "AF_UNIX"):
        raise ConfigError(
            f"{redacted(url)!r} names a unix socket, which Python does not have on this system: nothing was connected. "
            "Use redis://host:6379/0."
        )
    create = {"sentinel": _from_sentinel_url, "cluster": _from_cluster_url}.get(scheme, _from_redis_url)
    try:
        return create(url)
    except (ValueError, TypeError) as error:
        # a "/" or "#" in a password moves the rest of it into the error's text: neither that nor the error is shown
        reason = str(error) if redacted(url) == url else "it cannot be parsed"
        raise ConfigError(
            f"{redacted(url)!r} is not a Redis URL: {reason}. Write redis://host:6379/0, rediss://…, "
            "unix:///path/to.sock, embedded://, sentinel://host:26379,host:26379/MASTER/0 or "
            "cluster://host:7000,host:7001, and special characters of a password as %2F, %23, %40."
        ) from None


def _from_redis_url(url: str) -> redis.Redis:
    return prepare(redis.Redis.from_url(url, **limits()))


def _from_sentinel_url(url: str) -> redis.Redis:
    hosts, path, options = _split(url, SENTINEL_PORT)
    master, _, db = path.strip("/").partition("/")
    if not master or not re.fullmatch(r"\d*", db, re.ASCII):
        raise ValueError("the master's name has to come after the Sentinels, then perhaps a database number")
    tls = options.pop("ssl", False)
    to_sentinels: dict[str, Any] = limits(SENTINEL_TIMEOUT_S) | ({"ssl": True} if tls else {})
    for name in ("username", "password"):
        if f"sentinel_{name}" in options:
            to_sentinels[name] = options.pop(f"sentinel_{name}")
    others = int(options.pop("min_other_sentinels", 0))
    sentinels = _Sentinel(hosts, min_other_sentinels=others, sentinel_kwargs=to_sentinels)
    settings = limits() | options | {"db": int(db or options.get("db", 0))}
    client: redis.Redis = sentinels.master_for(unquote(master), **settings, **({"ssl": True} if tls else {}))
    for sentinel_client in sentinels.sentinels:
        prepare(sentinel_client)
    return prepare(client)


def _from_cluster_url(url: str) -> ClusterClient:
    hosts, path, options = _split(url, REDIS_PORT)
    if path.strip("/") not in ("", "0") or options.pop("db", 0):
        raise ValueError("a Cluster has no databases but 0")
    settings = limits() | options
    if not settings.get("ssl"):
        settings.pop("ssl", None)
    return ClusterClient(hosts, settings)


def _split(url: str, default_port: int) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
    """Return the hosts with ports, the path, and credentials and options as redis-py parses them. Raises ValueError."""
    match = re.fullmatch(r"\w+://(?:([^/?#]*)@)?([^/?#@]+)(/[^?#]*)?(?:\?([^#]*))?", url)
    if match is None:
        raise ValueError("hosts, separated by commas, have to come after ://")
    credentials, hosts, path, query = match.groups(default="")
    options: dict[str, Any] = dict(_parse_url(f"redis://{credentials}@host/?{query}"))
    del options["host"]
    if "ssl" in options:
        options["ssl"] = str(options["ssl"]).lower() in ("1", "true", "yes")
    addresses = []
    for host in hosts.split(","):
        parts = urlsplit(f"//{host}")
        if not parts.hostname:
            raise ValueError(f"{host!r} is not a host")
        addresses.append((parts.hostname, parts.port or default_port))
    return addresses, path, options


def redacted(url: str) -> str:
    """Return *url* without its password."""
    url = re.sub(r"(?<=[?&_]password=)[^&#]*", "***", url)
    head, at, tail = url.rpartition("@")
    scheme, slashes, credentials = head.partition("//")
    if not at or ":" not in credentials:
        return url
    return f"{scheme}{slashes}{credentials.partition(':')[0]}:***@{tail}"
