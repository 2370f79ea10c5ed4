"""A TagStore in Redis, through redis-py: one server, a master behind Sentinels, or a Cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snowredis.lease.redis_store import RedisScripts, translated
from snowredis.lease.scripts import text_of
from snowredis.lease.time_limit import CALL_LIMIT_S, time_limit
from snowredis.segment.model import TagConfig
from snowredis.segment.scripts import ScriptTagStore
from snowredis.settings import MinReplicas


class RedisTagStore(RedisScripts, ScriptTagStore):
    """The state of a tag in Redis or Valkey, 6.2 or later.

    Args:
        server: a URL, a redis-py client, or what own_client() returned for one.
        config: of the tag.
        min_replicas: how many replicas must have each change, 0 or more, or "all".
    """

    def __init__(self, server: Any, config: TagConfig, *, min_replicas: MinReplicas = 0) -> None:
        ScriptTagStore.__init__(self, config)
        RedisScripts.__init__(self, server, min_replicas)

    def read(self) -> Mapping[str, str]:
        """Return the stored fields of the tag; none if there is no such tag. Runs no script and writes nothing."""
        with translated(self.where), time_limit(CALL_LIMIT_S):
            fields: Mapping[Any, Any] = self._client.hgetall(self._keys[0])
        return {text_of(name): text_of(value) for name, value in fields.items()}

    def delete(self) -> bool:
        """Delete the tag. Returns False if there was none."""
        with translated(self.where), time_limit(CALL_LIMIT_S):
            return bool(self._client.delete(*self._keys))
