"""Open the store of a pool: on one server, or on several independent ones.

The one place that knows every kind of server that snowredis.connect() takes. Connects to nothing, but for
embedded://, whose server is started if it does not run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from snowredis.core.presets import resolve_layout
from snowredis.errors import ConfigError
from snowredis.lease.model import PoolConfig, Store
from snowredis.settings import POOL_DURATIONS, SETTINGS, MinReplicas, check_all

if TYPE_CHECKING:
    import redis

    from snowredis.lease.clients import OwnClient
    from snowredis.lease.memory_store import MemoryStore
    from snowredis.lease.redis_store import RedisStore


class InMemory(Protocol):
    """Pools in this process' memory: those of snowredis.testing."""

    def memory_store(self, config: PoolConfig) -> MemoryStore:
        """Return the store of the pool *config.name*."""


Server: TypeAlias = "str | redis.Redis | redis.RedisCluster | InMemory"
Servers: TypeAlias = "Server | Sequence[Server]"


@dataclass(frozen=True, slots=True)
class _Source:
    """One server, not yet used.

    Attributes:
        identity: the same for two sources only if they are one server.
    """

    identity: object
    where: str
    failover_slack_ms: int
    open: Callable[[PoolConfig], RedisStore | MemoryStore]


def open_store_from_settings(url: Servers, settings: Mapping[str, Any]) -> Store:
    """Open the store of the pool that *settings*, arguments of snowredis.connect(), describe.

    Raises:
        ConfigError, LayoutError: a setting, or a combination, that cannot work.
        StoreUnavailable: the server of embedded:// does not start.
    """
    check_all(settings)
    return open_store(
        url,
        pool_config(settings),
        min_replicas=settings.get("min_replicas", 0),
        default_slack=settings.get("failover_slack") is None,
    )


def pool_config(settings: Mapping[str, Any]) -> PoolConfig:
    """Return the pool's constants of *settings*, those of connect() by name; failover_slack is 0 if it is missing."""
    used = {name: setting.default for name, setting in SETTINGS.items()} | dict(settings)
    spans = {f"{name}_ms": round(used[name] * 1000) for name in POOL_DURATIONS if used[name] is not None}
    return PoolConfig(
        name=used["pool"],
        layout=resolve_layout(used["layout"]),
        datacenter=used["datacenter"],
        durability=used["durability"],
        guard_rollbacks=used["guard_rollbacks"],
        **spans,
    )


def open_store(
    url: Servers, config: PoolConfig, *, min_replicas: MinReplicas = 0, default_slack: bool = False
) -> Store:
    """Open the store of a pool.

    Args:
        url: a server, or a list of independent servers in the same order in every process.
        config: the pool's constants.
        default_slack: replace the failover_slack of *config* by that of the kind of server.
    """
    servers: Sequence[Any] = url if isinstance(url, list | tuple) else [url]
    if not servers:
        raise ConfigError("there is no server in the list of URLs. Name one at least.")
    sources = [_source(server, config, min_replicas) for server in servers]
    for index, source in enumerate(sources):
        if any(source.identity == other.identity for other in sources[:index]):
            raise ConfigError(
                f"the list of URLs names {source.where} twice, and independent servers have worker ids of their own "
                "each. Name each server once."
            )
    if default_slack:
        config = replace(config, failover_slack_ms=max(source.failover_slack_ms for source in sources))
    if len(sources) == 1:
        return sources[0].open(config)
    from snowredis.lease.sharded_store import ShardedStore

    count = len(sources)
    return ShardedStore(
        [source.open(replace(config, share=(index, count))) for index, source in enumerate(sources)], config
    )


def open_client(server: Any) -> OwnClient:
    """Return a client for *server*, a URL or a redis-py client; the server of embedded:// is started if need be."""
    from snowredis import embedded
    from snowredis.lease.clients import own_client

    return own_client(embedded.resolve(server) if is_embedded(server) else server)


def is_embedded(server: Any) -> bool:
    return isinstance(server, str) and server.startswith("embedded:")


def is_in_memory(server: Any) -> bool:
    return hasattr(server, "memory_store")


def _source(server: Any, config: PoolConfig, min_replicas: MinReplicas) -> _Source:
    if min_replicas and (is_in_memory(server) or is_embedded(server)):
        raise ConfigError(f"min_replicas={min_replicas!r} needs a Redis with replicas, and this one has none")
    if is_in_memory(server):
        return _Source(id(server), "memory", 0, server.memory_store)
    from snowredis.lease.clients import own_client
    from snowredis.lease.redis_store import RedisStore

    fresh = False
    if is_embedded(server):
        from snowredis import embedded

        reach_ms = config.ttl_ms + config.max_clock_lead_ms + config.layout.tick_ms
        running = embedded.join(server, reach_ms=reach_ms)
        server, fresh = running.url, running.fresh
    own = own_client(server)

    def open_redis(config: PoolConfig) -> RedisStore:
        store = RedisStore(own, config, min_replicas=min_replicas)
        if fresh:
            # nobody of an earlier server's life is left, so a pool that is absent is new
            store.create(time.time_ns() // 1_000_000)
        return store

    return _Source(own.where, own.where, own.failover_slack_ms, open_redis)
