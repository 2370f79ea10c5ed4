"""Open the store of a pool: on one server, or on several independent ones.

The one place that knows every kind of server that snowredis.connect() takes. Connects to nothing, except for
embedded://, whose server is started if it is not running.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from snowredis.core.presets import resolve_layout
from snowredis.errors import ConfigError
from snowredis.settings import POOL_DURATIONS, SETTINGS, MinReplicas, Servers, check_settings, pool_or_default
from snowredis.snowflake.protocol import PoolConfig, Store

if TYPE_CHECKING:
    from snowredis.servers.clients import OwnClient
    from snowredis.snowflake.memory_store import MemoryStore
    from snowredis.snowflake.redis_store import RedisStore


# the registry of datacenter="auto", if no other is named
DEFAULT_REGISTRY = "default"


def open_store_from_settings(url: Servers, settings: Mapping[str, Any]) -> Store:
    """Open the store of the pool that *settings*, arguments of snowredis.connect(), describe.

    Raises:
        ConfigError, LayoutError: a setting, or a combination, that cannot work.
        StoreUnavailable: the server of embedded:// does not start.
    """
    settings = check_settings(settings)
    return open_store(
        url,
        pool_config(settings, url),
        min_replicas=settings.get("min_replicas", 0),
        default_slack=settings.get("failover_slack") is None,
    )


def servers_of(url: Any) -> Sequence[Any]:
    """Return the servers of the setting ``url``, which names one or several."""
    return url if isinstance(url, list | tuple) else [url]


def has_registry(settings: Mapping[str, Any]) -> bool:
    """Return True if *settings* describe a pool that has its number from a registry of shard numbers."""
    return settings.get("registry") is not None or settings.get("datacenter") == "auto"


def pool_config(settings: Mapping[str, Any], url: Servers | None = None) -> PoolConfig:
    """Return the pool's constants of *settings*, arguments of connect(); failover_slack is 0 if it is not given.

    A pool at an embedded *url* has no outage lanes by default: after a crash, the next server would wait for a day.
    """
    if any(map(is_embedded, servers_of(url))):
        settings = {"outage_reserve": 0.0} | {name: value for name, value in settings.items() if value is not None}
    used = {name: setting.default for name, setting in SETTINGS.items()} | dict(settings)
    layout = resolve_layout(used["layout"])
    if used["fields"]:
        if used["datacenter"]:
            raise ConfigError("fields say the datacenter bits; leave datacenter out")
        used["datacenter"] = layout.datacenter_of(used["fields"])
    automatic = used["datacenter"] == "auto"
    durations = {f"{name}_ms": round(used[name] * 1000) for name in POOL_DURATIONS if used[name] is not None}
    return PoolConfig(
        name=pool_or_default(used["pool"]),
        layout=layout,
        # "auto" is not known yet
        datacenter=0 if automatic else used["datacenter"],
        registry=used["registry"] or (DEFAULT_REGISTRY if automatic else ""),
        durability=used["durability"],
        guard_rollbacks=used["guard_rollbacks"],
        **durations,
    )


def open_store(
    url: Servers | Sequence[OwnClient],
    config: PoolConfig,
    *,
    min_replicas: MinReplicas = 0,
    default_slack: bool = False,
) -> Store:
    """Open the store of a pool.

    Args:
        url: a server or a client of open_client(); or a list of independent ones, in the same order in every process.
        config: the pool's constants.
        default_slack: replace the failover_slack of *config* by that of the kind of server.

    Raises ConfigError; StoreUnavailable if the server of embedded:// does not start.
    """
    opened = open_independent(url, min_replicas, creates=True)
    if default_slack:
        slack_ms = max(getattr(server, "failover_slack_ms", 0) for server in opened)
        config = replace(config, failover_slack_ms=slack_ms)
    count = len(opened)
    stores = [
        _store(server, replace(config, share=(index, count)), min_replicas) for index, server in enumerate(opened)
    ]
    if count == 1:
        return stores[0]
    from snowredis.snowflake.sharded_store import ShardedStore

    return ShardedStore(stores, config)


def open_independent(
    url: Servers | Sequence[OwnClient], min_replicas: MinReplicas, *, creates: bool = False
) -> list[Any]:
    """Return a client, or what is in memory, for each of one or several independent servers; see open_client()."""
    servers = servers_of(url)
    if not servers:
        raise ConfigError("the list of URLs is empty. Name at least one server.")
    if min_replicas and any(is_in_memory(server) or is_embedded(server) for server in servers):
        raise ConfigError(f"min_replicas={min_replicas!r} needs a Redis with replicas, and this one has none")
    opened = [server if is_in_memory(server) else open_client(server, creates=creates) for server in servers]
    # what is in memory has no address: each object is a server
    addresses = [getattr(server, "where", server) for server in opened]
    for index, address in enumerate(addresses):
        if address in addresses[:index]:
            name = address if isinstance(address, str) else "memory"
            raise ConfigError(f"the list of URLs names {name} twice. Name each independent server once.")
    return opened


def open_client(server: Any, *, creates: bool = False) -> OwnClient:
    """Return a client for *server*: a URL, a redis-py client, or what this function returned.

    Connects to nothing, but starts the server of embedded:// if it is not running. Raises ConfigError,
    StoreUnavailable.

    Args:
        creates: a pool that does not exist may be created with this client; else its ``fresh`` is False.
    """
    from snowredis.servers.clients import OwnClient, own_client

    if isinstance(server, OwnClient):
        return server
    fresh = False
    if is_embedded(server):
        from snowredis import embedded

        running = embedded.join(server)
        server, fresh = running.url, running.fresh and creates
    return own_client(server, fresh=fresh)


def is_embedded(server: Any) -> bool:
    """Return True for an embedded:// URL."""
    return isinstance(server, str) and server.startswith("embedded:")


def is_in_memory(server: Any) -> bool:
    """Return True for a pool of snowredis.testing."""
    return hasattr(server, "memory_store")


def _store(server: Any, config: PoolConfig, min_replicas: MinReplicas) -> RedisStore | MemoryStore:
    if is_in_memory(server):
        memory_store: MemoryStore = server.memory_store(config)
        return memory_store
    from snowredis.snowflake.redis_store import RedisStore

    store = RedisStore(server, config, min_replicas=min_replicas)
    if server.fresh:
        # the server has forgotten nothing, so a pool that it does not have is new
        store.create(time.time_ns() // 1_000_000)
    return store
