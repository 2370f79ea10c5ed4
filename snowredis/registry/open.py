"""Open the store of a pool that settings describe: with a registry of shard numbers, if they name one."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from snowredis.lease.open import Servers, is_in_memory, open_client, open_store_from_settings, pool_config
from snowredis.settings import check

if TYPE_CHECKING:
    from snowredis.lease.model import PoolConfig, Store
    from snowredis.registry.model import Place, Registry
    from snowredis.registry.pool_servers import PoolServers

# the rest of this package is loaded for pools of a registry only


def open_pool(url: Servers, settings: Mapping[str, Any]) -> Store:
    """Open the store of the pool that *settings*, arguments of snowredis.connect(), describe. Connects to nothing.

    Raises:
        ConfigError, LayoutError: a setting, or a combination, that cannot work.
        StoreUnavailable: the server of embedded:// does not start.
    """
    settings = {name: check(name, value) for name, value in settings.items()}
    if settings.get("registry") is None and settings.get("datacenter") != "auto":
        return open_store_from_settings(url, settings)
    from snowredis.registry.registered_store import RegisteredStore

    config, servers, registry = open_registered(url, settings)
    wanted = settings.get("datacenter", 0)
    return RegisteredStore(
        config,
        servers,
        registry,
        # 0 is what connect() has without a word: a pool whose registry is named has its number
        wanted=None if wanted in ("auto", 0) else wanted,
        owner=owner_of(servers),
    )


def open_registered(url: Servers, settings: Mapping[str, Any]) -> tuple[PoolConfig, PoolServers, Registry]:
    """Return the constants of a pool of a registry, without its number; its servers; and the registry."""
    from snowredis.registry.model import Place
    from snowredis.registry.pool_servers import PoolServers

    config = pool_config(settings)
    place = Place.of(config.layout)
    servers = PoolServers(
        url,
        config,
        min_replicas=settings.get("min_replicas", 0),
        default_slack=settings.get("failover_slack") is None,
    )
    server = settings.get("registry_url")
    return config, servers, open_registry(servers.first if server is None else server, config.registry, place)


def open_registry(server: Any, name: str, place: Place | None = None) -> Registry:
    """Return the registry of that name at *server*: a URL, a redis-py client, or a pool of snowredis.testing.

    Args:
        place: where the caller's layout has the number; None: any.
    """
    check("registry", name)
    if is_in_memory(server):
        registry: Registry = server.memory_registry(name, place)
        return registry
    from snowredis.registry.redis_registry import RedisRegistry

    return RedisRegistry(open_client(server), name, place)


def owner_of(servers: PoolServers) -> str:
    """Return text that tells people where a pool is."""
    return f"host {socket.gethostname()}, pool at {servers.where}"[:300]
