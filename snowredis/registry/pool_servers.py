"""The servers of one pool, before its shard number is known: what they store, and the store once it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from snowredis.errors import StoreUnavailable
from snowredis.lease.model import PoolConfig, Store, StoredField
from snowredis.lease.open import is_in_memory, open_servers, open_store
from snowredis.settings import MinReplicas


class PoolServers:
    """The servers of a pool.

    Args:
        url: as connect() takes it.
        config: of the pool; its datacenter and registration are not known.
        min_replicas, default_slack: as of open_store().

    Connects to nothing, but starts the server of embedded:// if it is not running. Raises ConfigError,
    StoreUnavailable.
    """

    def __init__(
        self, url: Any, config: PoolConfig, *, min_replicas: MinReplicas = 0, default_slack: bool = False
    ) -> None:
        self._config, self._options = config, (min_replicas, default_slack)
        self._servers = open_servers(url, config, min_replicas=min_replicas)
        self.redundant = len(self._servers) > 1

    @property
    def where(self) -> str:
        """The addresses, without passwords."""
        return ", ".join(getattr(server, "where", "memory") for server in self._servers)

    @property
    def urls(self) -> Sequence[str]:
        """The URLs with which another process reaches the servers; none if one was opened without."""
        urls = [url for server in self._servers for url in getattr(server, "urls", ())]
        return urls if len(urls) == len(self._servers) else ()

    @property
    def first(self) -> Any:
        """The first server: a client, or a pool in memory."""
        return self._servers[0]

    def stored(self, field: StoredField) -> str:
        """Return a field of the pool on the first server that has it; "" if no server has the pool.

        Raises StoreUnavailable if one is not available and no other has the field.
        """
        unavailable: StoreUnavailable | None = None
        for server in self._servers:
            try:
                if is_in_memory(server):
                    text: str = server.stored(self._config.name, field)
                else:
                    text = self._reader(server).stored(field)
            except StoreUnavailable as error:
                unavailable = error
                continue
            if text:
                return text
        if unavailable is not None:
            raise unavailable
        return ""

    def _reader(self, server: Any) -> Any:
        from snowredis.lease.redis_store import RedisStore

        return RedisStore(server, replace(self._config, share=(0, 1)))

    def open_store(self, config: PoolConfig) -> Store:
        """Open the store of the pool with these constants."""
        min_replicas, default_slack = self._options
        return open_store(self._servers, config, min_replicas=min_replicas, default_slack=default_slack)

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks."""
        if all(map(is_in_memory, self._servers)):
            return
        from snowredis.lease.clients import fresh_copy

        self._servers = [
            server._replace(client=fresh_copy(server.client)) if getattr(server, "owned", False) else server
            for server in self._servers
        ]

    def close(self) -> None:
        """Close the connections, except those of a client of the application's that is used as it is."""
        for server in self._servers:
            if getattr(server, "owned", False):
                from snowredis.lease.clients import close_client

                close_client(server.client)
