"""A registry of shard numbers in Redis, through redis-py."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from snowredis.lease.clients import OwnClient, close_client, fresh_copy, own_client
from snowredis.lease.redis_store import run_script, translated
from snowredis.lease.scripts import Script, text_of
from snowredis.lease.time_limit import CALL_LIMIT_S, time_limit
from snowredis.registry.model import Place
from snowredis.registry.script_registry import ScriptRegistry


class RedisRegistry(ScriptRegistry):
    """A registry in Redis or Valkey, 6.2 or later: one server, a master behind Sentinels, or a Cluster.

    Args:
        server: a URL, a redis-py client, or what own_client() returned for one.
        name: of the registry.
        place: where the caller's layout has the number; None: any.
    """

    def __init__(self, server: Any, name: str, place: Place | None = None) -> None:
        super().__init__(name, place)
        own = server if isinstance(server, OwnClient) else own_client(server)
        self._client, self.where, self._owned = own.client, own.where, own.owned

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
        with translated(self.where), time_limit(CALL_LIMIT_S):
            return run_script(self._client, script, keys, args)

    def _fields(self, *names: str) -> tuple[int, Mapping[str, str]]:
        with translated(self.where), time_limit(CALL_LIMIT_S):
            seconds, micros = self._client.time()
            if names:
                values = self._client.hmget(self._keys[0], names)
                pairs = zip(names, values, strict=True)
            else:
                pairs = self._client.hgetall(self._keys[0]).items()
            fields = {text_of(name): text_of(value) for name, value in pairs if value is not None}
        return seconds * 1000 + micros // 1000, fields

    def _reconnect(self) -> None:
        with contextlib.suppress(Exception):
            self._client.connection_pool.disconnect()

    def after_fork(self) -> None:
        if self._owned:
            self._client = fresh_copy(self._client)

    def close(self) -> None:
        if self._owned:
            close_client(self._client)
