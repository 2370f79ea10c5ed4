"""Open the store of a pool.

Connects to nothing, except for embedded://, whose server is started if it is not running.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from snowredis.core.layout import Layout
from snowredis.errors import ConfigError
from snowredis.settings import POOL_DURATIONS, SETTINGS, MinReplicas, Server, is_embedded, is_in_memory, required_pool
from snowredis.snowflake.protocol.messages import Store
from snowredis.snowflake.protocol.pool_config import PoolConfig

if TYPE_CHECKING:
    from snowredis.servers.clients import OwnClient
    from snowredis.snowflake.protocol.memory_store import MemoryStore


def layout_of(setting: Layout | str | None) -> Layout:
    """Return the Layout that a setting names. Raises ConfigError, LayoutError; see resolve_layout()."""
    if setting is None or isinstance(setting, Layout):
        return setting or Layout()
    # loaded only for layouts that are named or written as text
    from snowredis.core.presets import resolve_layout

    return resolve_layout(setting)


def pool_config(settings: Mapping[str, Any], url: Server | None = None) -> PoolConfig:
    """Return the pool's constants of *settings*, arguments of connect(), for a server that fails over to none.

    A pool at an embedded *url* has no outage lanes by default: if its directory is removed, the
    next one would wait for a day.
    Its durability is "assured": the server writes each command to its disk before it replies.
    """
    if is_embedded(url):
        settings = {"outage_reserve": 0.0} | {name: value for name, value in settings.items() if value is not None}
        # it has lost nothing that could be detected
        if settings.get("durability", "detect") == "detect":
            settings["durability"] = "assured"
    used = {name: setting.default for name, setting in SETTINGS.items()} | dict(settings)
    layout = layout_of(used["layout"])
    if used["fields"]:
        if used["datacenter"]:
            raise ConfigError("fields say the datacenter bits; leave datacenter out")
        used["datacenter"] = layout.datacenter_of(used["fields"])
    durations = {f"{name}_ms": round(used[name] * 1000) for name in POOL_DURATIONS if used[name] is not None}
    return PoolConfig(
        name=required_pool(used["pool"], url),
        layout=layout,
        # "auto" is not known yet
        datacenter=0 if used["datacenter"] == "auto" else used["datacenter"],
        durability=used["durability"],
        **durations,
    )


def open_store(url: Server, settings: Mapping[str, Any]) -> Store:
    """Open the store of the pool that *settings*, checked arguments of snowredis.connect(), describe.

    Raises:
        ConfigError, LayoutError: a setting, or a combination, that cannot work.
        StoreUnavailable: the server of embedded:// does not start.
    """
    server, config = open_pool(url, settings, creates=True)
    if is_in_memory(server):
        if settings.get("datacenter") == "auto":
            raise ConfigError("a pool in memory has no shard number. Give the number itself, such as datacenter=1")
        memory_store: MemoryStore = server.memory_store(config)
        return memory_store
    from snowredis.snowflake.protocol.redis_store import RedisStore

    kind: type[RedisStore] = RedisStore
    if settings.get("datacenter") == "auto":
        from snowredis.snowflake.protocol.administration import ShardStore

        kind = ShardStore
    store = kind(server, config, min_replicas=settings.get("min_replicas", 0))
    if server.fresh and settings.get("datacenter") != "auto":
        store.create_if_new()
    return store


def open_pool(url: Server, settings: Mapping[str, Any], *, creates: bool = False) -> tuple[Any, PoolConfig]:
    """Return the server, as open_server(), and the pool's constants of checked *settings*, with its failover_slack."""
    config = pool_config(settings, url)
    server = open_server(url, settings.get("min_replicas", 0), creates=creates)
    if settings.get("failover_slack") is None:
        slack_ms = config.failover_slack_ms + getattr(server, "failover_slack_ms", 0)
        config = replace(config, failover_slack_ms=slack_ms)
    return server, config


def open_server(url: Server | OwnClient, min_replicas: MinReplicas, *, creates: bool = False) -> Any:
    """Return a client, or what is in memory; see open_client()."""
    if min_replicas and (is_in_memory(url) or is_embedded(url)):
        raise ConfigError(f"min_replicas={min_replicas!r} needs a Redis with replicas, and this one has none")
    if is_in_memory(url):
        return url
    from snowredis.servers.clients import open_client

    return open_client(url, creates=creates)
