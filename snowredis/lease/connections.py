"""Connections of redis-py that keep to the time limit of a whole call."""

from __future__ import annotations

import functools
import math
from typing import Any

from redis import exceptions

from snowredis.lease.time_limit import remaining_s


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


def _check() -> float:
    left_s = remaining_s()
    if left_s <= 0:
        raise exceptions.TimeoutError("the time limit of this call has passed")
    return left_s


def _nearer(seconds: float | None, left_s: float) -> float | None:
    if math.isinf(left_s):
        return seconds
    return left_s if seconds is None else min(seconds, left_s)
