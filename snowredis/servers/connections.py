"""Set-up of every redis-py client that snowredis owns: short time limits, no retries, safe to fork.

redis-py limits each connect and each read, so a call that asks several servers one after the other could take the sum.
The connections that are set up here end when the time_limit() of a whole call is over. Nothing here connects.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from snowredis.settings import MAX_SECONDS

try:
    from redis.driver_info import DriverInfo
except ImportError:  # before redis-py 7.2
    _DRIVER: dict[str, Any] = {}
else:
    # without it, redis-py would search all installed packages for its own version
    _DRIVER = {"driver_info": DriverInfo(lib_version=redis.__version__)}

# a script takes microseconds and a round trip under a millisecond: after a second, something is wrong
SOCKET_TIMEOUT_S = 1.0
# several Sentinels are asked one after the other, and then the master
SENTINEL_TIMEOUT_S = 0.5
# a client's own encoding is for the application's values
UNDECODED = {"decode_responses": False, "encoding": "utf-8", "encoding_errors": "strict"}

SENTINEL_PORT, REDIS_PORT = 26379, 6379
# the end of a host whose port is empty or 0: redis-py takes the usual one
NO_PORT = re.compile(r":0*$")
# a connect within a second and a read within another, as with a single server
CALL_LIMIT_S = 2.0

_thread = threading.local()


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit this thread's Redis commands in the with block to *seconds*; of nested limits, the nearest counts."""
    outer_s, now_s = getattr(_thread, "deadline_s", math.inf), time.monotonic()
    if outer_s < now_s - CALL_LIMIT_S:
        # that call is over: a signal handler raised at its end, and somebody keeps the error, which refers to it
        outer_s = math.inf
    _thread.deadline_s = min(outer_s, now_s + seconds)
    try:
        yield
    finally:
        _thread.deadline_s = outer_s


def remaining_s() -> float:
    """Return the seconds left to this thread's call: infinity without a limit, 0 or less after its end."""
    deadline_s: float = getattr(_thread, "deadline_s", math.inf)
    return deadline_s - time.monotonic()


def limits(seconds: float = SOCKET_TIMEOUT_S) -> dict[str, Any]:
    """Return arguments of redis.Redis: time limits for a connect and for a read, and no retries."""
    return {"socket_timeout": seconds, "socket_connect_timeout": seconds, "retry": Retry(NoBackoff(), 0)}


def prepare(client: redis.Redis) -> redis.Redis:
    """Make *client* keep to time_limit() and close its connections with itself, and return it.

    What its first command would read from a file, or import, is loaded now: no process is to be forked while another
    thread imports it.

    Raises TypeError for an unknown option, ValueError or ConnectionError for a wrong value: redis-py would raise them
    at the first command.
    """
    # the pool is this client's alone: closed when the client is finalized
    client.auto_close_connection_pool = True
    pool = client.connection_pool
    pool.connection_class = _limited(pool.connection_class)
    pool.connection_kwargs.update(UNDECODED)
    for name in ("socket_timeout", "socket_connect_timeout"):
        seconds = pool.connection_kwargs.get(name)
        if seconds is not None and not 0 < seconds <= MAX_SECONDS:
            raise ValueError(f"{name} must be a number of seconds above 0 and at most {MAX_SECONDS:.0f}, not {seconds}")
    if not issubclass(pool.connection_class, redis.UnixDomainSocketConnection):
        # the first lookup of a host name imports it
        import encodings.idna  # noqa: F401
    if pool.connection_kwargs.keys().isdisjoint({"driver_info", "lib_name", "lib_version"}):
        pool.connection_kwargs.update(_DRIVER)
    connection = pool.connection_class(**pool.connection_kwargs)
    # made once from the names that the application gave: each connection would create it anew
    if hasattr(connection, "driver_info"):
        pool.connection_kwargs.setdefault("driver_info", connection.driver_info)
    return client


def client_on(pool: redis.ConnectionPool) -> redis.Redis:
    """Return a client of its own on *pool*."""
    return prepare(redis.Redis(connection_pool=pool))


def settings_of_pool(pool: Any, seconds: float = SOCKET_TIMEOUT_S) -> dict[str, Any]:
    """Return the arguments for a copy of *pool* with time limits, without what *pool* added for itself."""
    settings = {
        name: value
        for name, value in pool.connection_kwargs.items()
        if not name.startswith("orig_") and name != "maint_notifications_pool_handler"
    }
    return settings | limits(seconds) | UNDECODED


def clients_in(client: Any) -> list[Any]:
    """Return the clients that a client of redis-py has: of the nodes of a Cluster, or of Sentinels."""
    if manager := getattr(client, "nodes_manager", None):
        nodes = (*manager.nodes_cache.values(), *manager.startup_nodes.values())
        return [node.redis_connection for node in nodes if node.redis_connection is not None]
    pool = getattr(client, "connection_pool", None)
    return pool.sentinel_manager.sentinels if isinstance(pool, SentinelConnectionPool) else []


def close_connections(client: Any) -> None:
    """Close all connections of a redis-py client that prepare() returned, or of a RedisCluster. Never raises."""
    for part in clients_in(client):
        close_connections(part)
    with contextlib.suppress(exceptions.RedisError, OSError):
        client.close()
        # redis-py 5.0.0 closes no connection in close()
        if pool := getattr(client, "connection_pool", None):
            pool.disconnect()


@functools.cache
def _limited(connection_class: type[Any]) -> type[Any]:
    """Return a subclass of a redis-py connection class that keeps to time_limit()."""
    if issubclass(connection_class, _Limited):
        return connection_class
    bases: tuple[type[Any], ...] = (_Limited, connection_class)
    if issubclass(connection_class, redis.Connection):
        from snowredis.servers.resolving import ResolvedConnection

        # last: below what wraps the socket of a connection, such as TLS
        bases = (*(base for base in bases if base is not redis.Connection), ResolvedConnection)
    return type(f"Limited{connection_class.__name__}", bases, {})


class _Limited:
    """Mixin for redis-py's connection classes: connects, writes and reads end at the time_limit() of the call.

    A program that becomes a daemon closes all of its descriptors, and its next files and sockets get their numbers. So
    before each use, the socket's number must still belong to what was connected: else it is forgotten, not closed.
    """

    _sock: Any
    _file: tuple[int, int] | None = None
    socket_timeout: float | None
    socket_connect_timeout: float | None

    def connect(self) -> None:
        # called before each command
        self._forget_what_is_not_ours()
        super().connect()  # type: ignore[misc]

    def disconnect(self, *args: Any, **kwargs: Any) -> None:
        self._forget_what_is_not_ours()
        super().disconnect(*args, **kwargs)  # type: ignore[misc]

    def _forget_what_is_not_ours(self) -> None:
        own = self._sock
        if own is not None and _file_of(own) != self._file:
            own.detach()
            # without a number, it closes nothing
            super().disconnect()  # type: ignore[misc]

    def _connect(self) -> Any:
        names = [name for name in ("socket_timeout", "socket_connect_timeout") if hasattr(self, name)]
        configured = {name: getattr(self, name) for name in names}
        left_s = _remaining_s()
        try:
            for name, seconds in configured.items():
                setattr(self, name, _shorter(seconds, left_s))
            connected = super()._connect()  # type: ignore[misc]
            self._file = _file_of(connected)
            return _TimedSocket(connected)
        except Exception as error:
            error.is_unsent = True  # type: ignore[attr-defined]
            raise
        finally:
            for name, seconds in configured.items():
                setattr(self, name, seconds)

    def send_packed_command(self, *args: Any, **kwargs: Any) -> Any:
        left_s = _remaining_s()
        if self._sock is not None:
            self._sock.settimeout(_shorter(self.socket_timeout, left_s))
        return super().send_packed_command(*args, **kwargs)  # type: ignore[misc]


class _TimedSocket:
    """A socket whose reads end at the time_limit() of the call: a reply may come byte by byte, each in time."""

    def __init__(self, connected: Any) -> None:
        self._connected = connected

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connected, name)

    def recv(self, *args: Any) -> Any:
        self._shorten()
        return self._connected.recv(*args)

    def recv_into(self, *args: Any) -> Any:
        # redis-py with hiredis
        self._shorten()
        return self._connected.recv_into(*args)

    def _shorten(self) -> None:
        seconds = self._connected.gettimeout()
        # 0: only what is there already
        if seconds != 0:
            self._connected.settimeout(_shorter(seconds, _remaining_s()))


def _file_of(connected: Any) -> tuple[int, int] | None:
    """Return what the number of a socket refers to: a device and a file of it; None if it is closed."""
    try:
        status = os.fstat(connected.fileno())
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _remaining_s() -> float:
    """Return remaining_s(). Raises redis-py's TimeoutError if no time is left."""
    left_s = remaining_s()
    if left_s <= 0:
        raise exceptions.TimeoutError("the time limit of this call has passed")
    return left_s


def _shorter(seconds: float | None, left_s: float) -> float | None:
    if math.isinf(left_s):
        return seconds
    return left_s if seconds is None else min(seconds, left_s)


class OwnCluster:
    """Base class of ClusterClient in failover.py, which is loaded only where it is used.

    Attributes:
        nodes: host and port of those that are asked for the slots.
    """

    nodes: Sequence[tuple[str, int]]

    # methods
    parts: Any
    fresh_copy: Any
    close: Any
