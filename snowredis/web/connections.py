"""Connections of one process: how many there may be, and which one is closed to make room for another.

Pure: no socket, no clock; the caller passes the time. http_protocol.py reports what happens on each connection.

A connection that waits for a request may be closed, so waiting connections never keep others out: a new connection
replaces the one that has waited longest, first among those that owe a request that they began.

uvicorn's HTTP protocol with time limits and limits of connections, which uvicorn does not have.

A request has to be complete within a time, a response has to be read within a time, and a client that waits makes room
for others (see connections.py). Uses httptools, as uvicorn does if it is installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import socket
import struct
import termios
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from snowredis.web.access import PROBES, Scope
from snowredis.web.messages import Problem, Send, send_body
from snowredis.web.settings import Limits

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


log = logging.getLogger("snowredis")

# limit for request line and headers; uvicorn has none with httptools
MAX_HEAD_BYTES = 32_768
# requests that a client may send before it gets a response; browsers send one
MAX_PIPELINED = 64
_SWEEP_S = 1.0
# SO_LINGER of 0 s
_RESET = struct.pack("ii", 1, 0)
# at the end: how long a request may be on its way on a connection that waits for one
_LINGER_S = 0.3
_REFUSED = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
)
_TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def protocol_class(
    limits: Limits, is_limited: Callable[[str], bool] = lambda _: True
) -> type[HttpToolsProtocol]:
    """Return a protocol class for uvicorn, for one process.

    Args:
        is_limited: false for an address with any number of connections: a trusted proxy.
    """
    guard = ConnectionGuard(limits, is_limited)

    class LimitedProtocol(GuardedProtocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.guard = guard

    return LimitedProtocol


class ConnectionGuard:
    """The connections of a process, and the timer that looks for those over a time limit."""

    def __init__(self, limits: Limits, is_limited: Callable[[str], bool]) -> None:
        self.connections = Connections(limits)
        self._is_limited = is_limited
        self._response_timeout_s = limits.response_timeout_s
        # connection -> since when a response waits for its client
        self._unread: dict[GuardedProtocol, float] = {}
        self._sweeping = False

    def limited_address(self, client: tuple[str, int] | None) -> str | None:
        """Return the address that counts for the limit per address, if any."""
        return client[0] if client and self._is_limited(client[0]) else None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the timer; it ends with the last connection."""
        if not self._sweeping:
            self._sweeping = True
            loop.call_later(_SWEEP_S, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s = loop.time()
        for connection in self.connections.overdue(now_s):
            connection.time_out()
        unread = {}
        for connection in list(self.connections.everyone):
            if connection.transport.get_write_buffer_size():
                since_s = self._unread.get(connection, now_s)
                if now_s - since_s >= self._response_timeout_s:
                    connection.drop()
                else:
                    unread[connection] = since_s
        self._unread = unread
        self._sweeping = bool(self.connections.everyone)
        if self._sweeping:
            loop.call_later(_SWEEP_S, self._sweep, loop)


class GuardedProtocol(HttpToolsProtocol):
    """One connection."""

    guard: ConnectionGuard
    address: str | None = None
    since_s = 0.0
    # between the first byte and the end of a request, and of its head
    _in_message = False
    _in_head = False
    _head_bytes = 0
    # no further request is read
    _last = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # requests in progress and in the pipeline, the oldest first
        self._cycles: deque[Any] = deque()

    # --- the connection ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.guard.limited_address(self.client)
        outcome = self.guard.connections.add(self, self.loop.time())
        if outcome == "refused":
            transport.write(_REFUSED)
            transport.close()
        elif outcome == "probes":
            self.app = _probes_only(self.app)
        self.guard.start(self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        self.guard.connections.remove(self)
        # uvicorn tells only the newest, so that all others fail to write
        for cycle in self._cycles:
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close it at once, also if a response waits for its client, which the system would go on sending."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def time_out(self) -> None:
        """Close it after a time limit; respond if some of a request arrived."""
        if self._has_unread_bytes():
            return
        self.guard.connections.remove(self)
        if self._in_message and (self.cycle is None or not self.cycle.response_started or self._in_head):
            self.transport.write(_TIMED_OUT)
        self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return true while requests are in progress: a client may close its half and still wait for responses."""
        if self.cycle is None or self.cycle.response_complete or self._in_head:
            return False
        self._close_after_responses()
        return True

    def shutdown(self) -> None:
        """Close it after the responses in progress, and after a request that is on its way."""
        self._last = True
        if self.cycle is not None and not self.cycle.response_complete:
            self._close_after_responses()
        else:
            self.loop.call_later(_LINGER_S, self._close_unless_busy)

    def _close_unless_busy(self) -> None:
        waits = self.cycle is None or self.cycle.response_complete
        if waits and not self._in_head and not self._has_unread_bytes() and not self.transport.is_closing():
            self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, unless a request has just arrived."""
        if not self._has_unread_bytes():
            super().timeout_keep_alive_handler()

    def _close_after_responses(self) -> None:
        # the newest request is first in the pipeline
        newest = self.pipeline[0][0] if self.pipeline else self.cycle
        newest.keep_alive = False

    def _has_unread_bytes(self) -> bool:
        """Return true if the system has bytes of the client that were not read yet."""
        sock = self.transport.get_extra_info("socket")
        if sock is None or sock.fileno() < 0:
            return False
        waiting: int = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.FIONREAD, b"\0" * 4))[0]
        return waiting > 0

    # --- requests ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_message:
            self.guard.connections.request_began(self, self.loop.time())
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")
        else:
            self._head_bytes = 0

    def on_message_begin(self) -> None:
        self._in_message = self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if len(self.pipeline) >= MAX_PIPELINED:
            self.drop()
        if self.transport.is_closing():
            return
        super().on_headers_complete()
        self._cycles.append(self.cycle)
        if self._last:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        if not self.transport.is_closing():
            super().on_message_complete()
            self.guard.connections.request_complete(self)

    def on_response_complete(self) -> None:
        self._cycles.popleft()
        super().on_response_complete()
        # the next request of the pipeline is in progress otherwise
        if self.cycle.response_complete:
            self.guard.connections.response_complete(self, self.loop.time(), began=self._in_message)


def _probes_only(app: Any) -> Any:
    """Return an application that passes only probes on to *app*."""

    async def respond(scope: Scope, receive: Any, send: Send) -> None:
        if scope["path"] in PROBES:
            await app(scope, receive, send)
            return
        problem = Problem(503, "Busy", "all connections of this process are busy. Try again.", 1)
        await send_body(
            send, problem.body(), status=503, more=[*problem.headers(), (b"connection", b"close")]
        )

    return respond
