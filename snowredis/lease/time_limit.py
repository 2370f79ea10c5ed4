"""One time limit over a whole call, however many servers and round trips the call needs.

redis-py limits each connect and each read. A call that asks several servers one after the other,
as under Sentinel or Cluster, could take the sum. Connections of a class made by limited() also
stop when the time of the call is up. The limit belongs to the calling thread.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

from redis import exceptions

# a connect within a second and a read within another, as with a single server
CALL_LIMIT_S = 2.0

_thread = threading.local()


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit all that this thread asks of Redis in the block to *seconds*. Of nested limits the nearer counts."""
    outer_s = getattr(_thread, "deadline_s", math.inf)
    _thread.deadline_s = min(outer_s, time.monotonic() + seconds)
    try:
        yield
    finally:
        _thread.deadline_s = outer_s


def remaining_s() -> float:
    """Return the seconds that are left to this thread's call: infinity without a limit, 0 or less if it has passed."""
    deadline_s: float = getattr(_thread, "deadline_s", math.inf)
    return deadline_s - time.monotonic()


def _check() -> float:
    left_s = remaining_s()
    if left_s <= 0:
        raise exceptions.TimeoutError("the time limit of this call has passed")
    return left_s


@functools.cache
def limited(connection_class: type[Any]) -> type[Any]:
    """Return a subclass of a redis-py connection class that keeps to time_limit()."""
    if issubclass(connection_class, _Limited):
        return connection_class
    return type(f"Limited{connection_class.__name__}", (_Limited, connection_class), {})


class _Limited:
    """Mixin for a connection class of redis-py."""

    _sock: Any
    socket_timeout: float | None
    socket_connect_timeout: float | None

    def _connect(self) -> Any:
        names = [name for name in ("socket_timeout", "socket_connect_timeout") if hasattr(self, name)]
        usual = {name: getattr(self, name) for name in names}
        left_s = _check()
        try:
            for name, seconds in usual.items():
                setattr(self, name, _nearer(seconds, left_s))
            return super()._connect()  # type: ignore[misc]
        finally:
            for name, seconds in usual.items():
                setattr(self, name, seconds)

    def send_packed_command(self, *args: Any, **kwargs: Any) -> Any:
        left_s = _check()
        if self._sock is not None:
            # reads, too: each follows what was sent
            self._sock.settimeout(_nearer(self.socket_timeout, left_s))
        return super().send_packed_command(*args, **kwargs)  # type: ignore[misc]


def _nearer(seconds: float | None, left_s: float) -> float | None:
    if math.isinf(left_s):
        return seconds
    return left_s if seconds is None else min(seconds, left_s)
