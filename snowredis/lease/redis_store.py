"""A Store in Redis, through redis-py. The one place that translates redis-py's errors.

Never retries: that would run a script again with an old clock reading and delay the heartbeat. The caller's loop
repeats calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from redis import exceptions
from redis.sentinel import MasterNotFoundError

from snowredis.errors import ConfigError, StoreReadOnly, StoreRefused, StoreUnavailable
from snowredis.lease.clients import OwnClient, fresh_copy, is_cluster, own_client
from snowredis.lease.model import DEFAULT_MAX_EVENTS, PoolConfig, StoredField
from snowredis.lease.replicas import Acknowledged
from snowredis.lease.scripts import Script, ScriptStore, text_of
from snowredis.lease.time_limit import CALL_LIMIT_S, time_limit
from snowredis.settings import MinReplicas, check

# the last two, of Redis 6.2 and 7.0 and of 7.2: the user may run a script, but not a command in it
_REFUSALS = ("NOPERM", "NOAUTH", "WRONGPASS", "The user executing the script can't", "ACL failure in script")
# the first match counts
_ADVICE: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    (
        (MasterNotFoundError,),
        "The Sentinels know no master of that name: a failover may be in progress; else check the name and "
        "the Sentinels' addresses",
    ),
    ((exceptions.MasterDownError,), "This replica has lost its master: wait for the failover to end"),
    (
        (exceptions.ClusterDownError, exceptions.SlotNotCoveredError, exceptions.TryAgainError),
        "No node of the Cluster serves this pool's slot: a failover or a move may be in progress; else check "
        "CLUSTER INFO",
    ),
    (
        (exceptions.RedisClusterException,),
        "Check that the nodes are those of a Redis Cluster, and that its slots are served",
    ),
)


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    """Raise redis-py's errors in the with block as ConfigError, StoreUnavailable or one of its subclasses.

    *where* is the server's address, for messages.
    """
    try:
        yield
    except (exceptions.AuthenticationError, exceptions.NoPermissionError) as error:
        raise StoreRefused(where, str(error)) from error
    except exceptions.ReadOnlyError as error:
        raise StoreReadOnly(where, str(error)) from error
    except exceptions.ResponseError as error:
        text = str(error)
        if "SNOWREDIS bad argument" in text:
            name = text.rpartition(" ")[2]
            raise ConfigError(f"the script refused {name}: it is out of range. Check the settings") from error
        if any(mark in text for mark in _REFUSALS):
            raise StoreRefused(where, text) from error
        if "READONLY" in text or "can't write against a read only replica" in text.lower():
            raise StoreReadOnly(where, text) from error
        if "WRONGTYPE" in text:
            raise StoreUnavailable(where, f"another program uses the keys of this pool ({text})") from error
        raise StoreUnavailable(where, _advice(error, text)) from error
    except (exceptions.RedisError, exceptions.RedisClusterException, OSError) as error:
        raise StoreUnavailable(where, _advice(error, str(error) or type(error).__name__)) from error


def _advice(error: Exception, text: str) -> str:
    """Return *text* and, where there is any for this kind of error, advice."""
    for kinds, advice in _ADVICE:
        if isinstance(error, kinds):
            return f"{text.rstrip('.')}. {advice}"
    return text


class RedisStore(ScriptStore):
    """A pool in Redis or Valkey, 6.2 or later: one server, a master behind Sentinels, or a Cluster.

    Args:
        server: a URL, a redis-py client, or what own_client() returned for one.
        config: of the pool.
        min_replicas: how many replicas must have each change, 0 or more, or "all".
        max_events: length at which the stream of events is trimmed.
    """

    def __init__(
        self,
        server: Any,
        config: PoolConfig,
        *,
        min_replicas: MinReplicas = 0,
        max_events: int = DEFAULT_MAX_EVENTS,
    ) -> None:
        super().__init__(config, max_events=max_events)
        check("min_replicas", min_replicas)
        own = server if isinstance(server, OwnClient) else own_client(server)
        self._client, self.where, self._owned, self.urls = own.client, own.where, own.owned, own.urls
        self._acknowledged = Acknowledged(min_replicas, self.where) if min_replicas else None

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
        with translated(self.where), time_limit(CALL_LIMIT_S):
            if self._acknowledged is not None:
                return list(self._acknowledged.run(self._client, script, keys, args))
            try:
                reply = self._client.evalsha(script.sha, len(keys), *keys, *args)
            except exceptions.NoScriptError:
                reply = self._client.eval(script.source, len(keys), *keys, *args)
        return list(reply)

    def stored(self, field: StoredField) -> str:
        """Return a field of the pool in this Redis; "" if there is no pool.

        Blocks for a round trip, CALL_LIMIT_S at most. Raises StoreUnavailable and its subclasses.
        """
        with translated(self.where), time_limit(CALL_LIMIT_S):
            return text_of(self._client.hget(self._keys[0], field) or "")

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks."""
        if self._owned:
            self._client = fresh_copy(self._client)

    def _reconnect(self) -> None:
        with contextlib.suppress(exceptions.RedisError, OSError, AttributeError):
            if not is_cluster(self._client):
                self._client.connection_pool.disconnect()
            elif self._owned:
                self._client.close()

    def close(self) -> None:
        if self._owned:
            with contextlib.suppress(exceptions.RedisError, OSError):
                self._client.close()
