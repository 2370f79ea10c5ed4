"""Clients of a master behind Sentinels: from URLs, and like the application's. Loaded only for those."""

from __future__ import annotations

import copy
import re
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from redis import connection, sentinel

from snowredis.servers.connections import (
    SENTINEL_PORT,
    SENTINEL_TIMEOUT_S,
    client_on,
    limits,
    prepare,
    settings_of_pool,
)

# redis-py gives these no types
_Sentinel: Any = sentinel.Sentinel
_SentinelPool: Any = sentinel.SentinelConnectionPool
_parse_url: Any = connection.parse_url


def from_sentinel_url(url: str) -> redis.Redis:
    """Return a client for sentinel://HOSTS/MASTER/DB. Raises ValueError, TypeError."""
    hosts, path, options = split_url(url, SENTINEL_PORT)
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


def split_url(url: str, default_port: int) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
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


def sentinel_without_retries(pool: Any) -> redis.Redis:
    """Return a client like one on *pool*, with short timeouts and without retries, also of its Sentinels."""
    manager = pool.sentinel_manager
    # with its other settings
    manager_copy = copy.copy(manager)
    manager_copy.sentinels = [
        client_on(
            redis.ConnectionPool(
                connection_class=sentinel_client.connection_pool.connection_class,
                **settings_of_pool(sentinel_client.connection_pool, SENTINEL_TIMEOUT_S),
            )
        )
        for sentinel_client in manager.sentinels
    ]
    settings = settings_of_pool(pool)
    # the pool adds itself
    settings.pop("connection_pool", None)
    return client_on(
        _SentinelPool(
            pool.service_name,
            manager_copy,
            connection_class=pool.connection_class,
            is_master=pool.is_master,
            check_connection=pool.check_connection,
            **settings,
        )
    )
