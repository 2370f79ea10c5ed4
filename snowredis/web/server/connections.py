"""Connections of one process: how many there may be, and which one is closed to make room for another.

Pure: no socket, no clock; the caller passes the time. http_protocol.py reports what happens on each connection.

A connection that waits for a request may be closed, so waiting connections never keep others out: a new connection
replaces the one that has waited longest, first among those that owe a request that they began.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from snowredis.web.limits import Limits

# connections above the limit, for probes only
PROBE_RESERVE = 100


class Connection(Protocol):
    """Interface of a connection.

    Attributes:
        address: of the client; None if it is not limited: a unix socket, or a trusted proxy.
        since_s: since when it waits for a request, or for the rest of one.
    """

    address: str | None
    since_s: float

    def drop(self) -> None:
        """Close it at once."""


class Connections:
    """All connections of a process.

    Attributes:
        unfinished: those without a complete request, new ones too; the longest wait first.
        idle: those between two requests; the longest wait first.
        everyone: these and the busy ones.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._per_address: dict[str, int] = {}
        self.everyone: set[Any] = set()
        self.unfinished: dict[Any, None] = {}
        self.idle: dict[Any, None] = {}

    def add(self, new: Connection, now_s: float) -> str:
        """Add a connection that waits for its first request; drop another if there is no room.

        Returns:
            "open"; "probes": all others are busy, so serve only probes; "refused": it was not added.
        """
        limits, address, result = self._limits, new.address, "open"
        if address is not None:
            here = self._per_address.get(address, 0)
            if here >= limits.max_connections_per_address and not self._make_room(address):
                return "refused"
        if len(self.everyone) >= limits.max_connections and not self._make_room(None):
            if len(self.everyone) >= limits.max_connections + PROBE_RESERVE:
                return "refused"
            result = "probes"
        if address is not None:
            self._per_address[address] = self._per_address.get(address, 0) + 1
        self.everyone.add(new)
        new.since_s = now_s
        self.unfinished[new] = None
        return result

    def remove(self, connection: Connection) -> None:
        """Forget a connection that was closed. May be called again."""
        if connection not in self.everyone:
            return
        self.everyone.discard(connection)
        self.idle.pop(connection, None)
        self.unfinished.pop(connection, None)
        address = connection.address
        if address is not None:
            left = self._per_address[address] - 1
            if left:
                self._per_address[address] = left
            else:
                del self._per_address[address]

    def request_began(self, connection: Connection, now_s: float) -> None:
        """Note the first byte of a request that is not complete."""
        if self.idle.pop(connection, connection) is None:
            connection.since_s = now_s
            self.unfinished[connection] = None

    def request_complete(self, connection: Connection) -> None:
        """Note that a connection is busy: its request is complete."""
        self.unfinished.pop(connection, None)
        self.idle.pop(connection, None)

    def response_complete(self, connection: Connection, now_s: float, *, began: bool) -> None:
        """Note that a connection waits for its next request, or for the rest of one that *began* already."""
        if connection in self.everyone and connection not in self.unfinished:
            connection.since_s = now_s
            (self.unfinished if began else self.idle)[connection] = None

    def overdue(self, now_s: float) -> list[Any]:
        """Return the connections that have waited for longer than the time limits."""
        limits = self._limits
        unfinished = _until(self.unfinished, now_s - limits.request_timeout_s)
        return unfinished + _until(self.idle, now_s - limits.keep_alive_s)

    def _make_room(self, address: str | None) -> bool:
        """Drop the connection that waited longest, of *address* if it is given. Return false if all are busy."""
        for waiting in (self.unfinished, self.idle):
            for connection in waiting:
                if address in (None, connection.address):
                    # first, since drop() may call this again
                    self.remove(connection)
                    connection.drop()
                    return True
        return False


def _until(waiting: Iterable[Any], latest_s: float) -> list[Any]:
    """Return the first connections of *waiting*, up to those that wait since *latest_s*."""
    found = []
    for connection in waiting:
        if connection.since_s > latest_s:
            break
        found.append(connection)
    return found
