"""The pool in a real Redis, through redis-py. The one place that knows redis-py and its errors.

Never retries by itself: a retry inside the client would run a script again with an old
clock reading and hold the heartbeat up; the caller's own loop repeats.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from snowredis.errors import ConfigError, StoreReadOnly, StoreRefused, StoreUnavailable
from snowredis.lease.model import DEFAULT_MAX_EVENTS, PoolConfig
from snowredis.lease.scripts import Script, ScriptStore

# a script takes microseconds and a round trip under a millisecond: a second says that something is wrong
SOCKET_TIMEOUT_S = 1.0
# the last two: a script may be run, but not a command in it; of Redis 6.2 and 7.0, and of 7.2
_REFUSALS = ("NOPERM", "NOAUTH", "WRONGPASS", "The user executing the script can't", "ACL failure in script")


def connect_client(url: str) -> redis.Redis:
    """A client for *url* that answers or fails within a second, and never repeats a command by itself."""
    try:
        client = redis.Redis.from_url(
            url,
            socket_timeout=SOCKET_TIMEOUT_S,
            socket_connect_timeout=SOCKET_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
        )
        # does not connect; an option that there is not would show only at the first command
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError) as error:
        # what "/" or "#" cuts off a password stands in the error's text: neither that nor the error is shown
        reason = str(error) if redacted(url) == url else "it cannot be read"
        raise ConfigError(
            f"{redacted(url)!r} is no Redis URL: {reason}. Write redis://host:6379/0, rediss://…, "
            "unix:///path/to.sock or embedded://, and special characters of a password as %2F, %23, %40."
        ) from None
    return client


def without_retries(client: Any) -> Any:
    """A client like *client* for our own use, with short time-outs and no retries, where that can be had."""
    if type(client) is not redis.Redis or type(client.connection_pool) is not redis.ConnectionPool:
        return client
    pool = client.connection_pool
    # what the other pool noted for itself, for its own connections, is made anew
    kept = {
        name: value
        for name, value in pool.connection_kwargs.items()
        if not name.startswith("orig_") and name != "maint_notifications_pool_handler"
    }
    settings = {
        **kept,
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": SOCKET_TIMEOUT_S,
        "retry": Retry(NoBackoff(), 0),
        "decode_responses": False,
    }
    if pool.connection_class is redis.UnixDomainSocketConnection:
        settings.pop("socket_connect_timeout")
    return redis.Redis(
        connection_pool=redis.ConnectionPool(connection_class=pool.connection_class, **settings)
    )


def redacted(url: str) -> str:
    """*url* without its password."""
    url = re.sub(r"(?<=[?&]password=)[^&#]*", "***", url)
    head, at, tail = url.rpartition("@")
    scheme, slashes, credentials = head.partition("//")
    if not at or ":" not in credentials:
        return url
    return f"{scheme}{slashes}{credentials.partition(':')[0]}:***@{tail}"


def address(client: Any) -> str:
    """Where *client* connects to, for messages; no password."""
    settings = getattr(getattr(client, "connection_pool", None), "connection_kwargs", {})
    if "path" in settings:
        return f"unix://{settings['path']}"
    if "host" in settings:
        return f"{settings['host']}:{settings.get('port', 6379)}/{settings.get('db', 0)}"
    return type(client).__name__


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn redis-py's errors into ours."""
    try:
        yield
    except (exceptions.AuthenticationError, exceptions.NoPermissionError) as error:
        raise StoreRefused(where, str(error)) from error
    except exceptions.ReadOnlyError as error:
        raise StoreReadOnly(where, str(error)) from error
    except exceptions.ResponseError as error:
        text = str(error)
        if "SNOWREDIS bad argument" in text:
            raise ConfigError(f"the script refused {text.rpartition(' ')[2]}: it is out of range") from error
        if any(mark in text for mark in _REFUSALS):
            raise StoreRefused(where, text) from error
        if "READONLY" in text or "can't write against a read only replica" in text.lower():
            raise StoreReadOnly(where, text) from error
        if "WRONGTYPE" in text:
            raise StoreUnavailable(where, f"another program uses the keys of this pool ({text})") from error
        raise StoreUnavailable(where, text) from error
    except (exceptions.RedisError, OSError) as error:
        raise StoreUnavailable(where, str(error) or type(error).__name__) from error


class RedisStore(ScriptStore):
    """A pool in Redis or Valkey, 6.2 or later."""

    def __init__(
        self,
        client: Any,
        config: PoolConfig,
        *,
        guard_rollbacks: bool = False,
        max_events: int = DEFAULT_MAX_EVENTS,
    ) -> None:
        super().__init__(config, guard_rollbacks=guard_rollbacks, max_events=max_events)
        self._client = without_retries(client)
        # a client that the application gave us is the application's to close
        self._owned = self._client is not client
        self._where = address(client)

    @classmethod
    def from_url(cls, url: str, config: PoolConfig, **options: Any) -> RedisStore:
        store = cls(connect_client(url), config, **options)
        store._owned = True
        return store

    @property
    def where(self) -> str:
        return self._where

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
        with translated(self._where):
            try:
                reply = self._client.evalsha(script.sha, len(keys), *keys, *args)
            except exceptions.NoScriptError:
                reply = self._client.eval(script.source, len(keys), *keys, *args)
        return list(reply)

    def close(self) -> None:
        if self._owned:
            with contextlib.suppress(exceptions.RedisError, OSError):
                self._client.close()
