"""Connections of one process: how many there may be, and how long a client may take.

uvicorn has no time limit for a client that sends a request slowly or does not read its response, and no limit for the
head of a request. GuardedProtocol adds them. It stands between the socket and uvicorn's own protocol, passes complete
requests on, one at a time, and learns from the application when a response is complete. Only the documented interfaces
of asyncio and ASGI are used.

A request for an id that differs from the one before on its connection only in headers that nothing reads, such as the
id of a trace, is answered without uvicorn: see GuardedProtocol.repeat().

A connection that waits for a request may be closed, so waiting connections never keep others out: a new connection
replaces the one that has waited longest, first among those that owe a request that they began.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from snowredis.web.access import PROBES
from snowredis.web.messages import CONNECTION, HttpProblem, send_body
from snowredis.web.settings import Limits

log = logging.getLogger("snowredis")

# connections above the limit, for probes only
PROBE_RESERVE = 100
# limit for request line and headers, and for requests that a client sends before it gets a response
MAX_HEAD_BYTES = 32_768
_SWEEP_S = 1.0
# how long a request may be on its way on a connection that is about to be closed
_LINGER_S = 0.3
# SO_LINGER of 0 s
_RESET = struct.pack("ii", 1, 0)
_BODY = re.compile(rb"\r\n(content-length|transfer-encoding)[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)
# a header that no response to a request for an id depends on: neither the service nor uvicorn reads it
_UNREAD_HEADER = re.compile(
    rb"\r\n(?!(?:accept|authorization|connection|content-length|cookie|expect|host|proxy-connection|sec-fetch-site|"
    rb"transfer-encoding|upgrade):)[a-z0-9-]+:[\t -~\x80-\xff]*(?=\r\n)",
    re.IGNORECASE,
)
_END = b"content-length: 0\r\nconnection: close\r\n\r\n"
_REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n" + _END
_TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\n" + _END
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + _END


class Connections:
    """All connections of a process, with address, since_s and drop(). It uses no socket.

    Attributes:
        unfinished: those without a complete request, new ones too; the longest wait first.
        idle: those between two requests; the longest wait first.
        everyone: these and the busy ones.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._per_address: Counter[str | None] = Counter()
        self.everyone: set[Any] = set()
        self.unfinished: dict[Any, None] = {}
        self.idle: dict[Any, None] = {}

    def add(self, new: Any, now_s: float) -> str:
        """Add a connection that waits for its first request; drop another if there is no room.

        Returns:
            "open"; "probes": all others are busy, so serve only probes; "refused": it was not added.
        """
        limits, address, result = self._limits, new.address, "open"
        here = 0 if address is None else self._per_address[address]
        if here >= limits.max_connections_per_address and not self._make_room(address):
            return "refused"
        if len(self.everyone) >= limits.max_connections and not self._make_room(None):
            if len(self.everyone) >= limits.max_connections + PROBE_RESERVE:
                return "refused"
            result = "probes"
        self._per_address[address] += 1
        self.everyone.add(new)
        new.since_s = now_s
        self.unfinished[new] = None
        return result

    def remove(self, connection: Any) -> None:
        """Forget a connection that was closed. May be called again."""
        if connection not in self.everyone:
            return
        self.everyone.discard(connection)
        self.idle.pop(connection, None)
        self.unfinished.pop(connection, None)
        self._per_address[connection.address] -= 1
        if not self._per_address[connection.address]:
            del self._per_address[connection.address]

    def request_began(self, connection: Any, now_s: float) -> None:
        """Note the first byte of a request that is not complete."""
        if self.idle.pop(connection, connection) is None:
            connection.since_s = now_s
            self.unfinished[connection] = None

    def request_complete(self, connection: Any) -> None:
        """Note that a connection is busy: its request is complete."""
        self.unfinished.pop(connection, None)
        self.idle.pop(connection, None)

    def response_complete(self, connection: Any, now_s: float) -> None:
        """Note that a connection waits for its next request."""
        if connection in self.everyone and connection not in self.unfinished:
            connection.since_s = now_s
            self.idle[connection] = None

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
                    # removed before the call, since drop() may call this again
                    self.remove(connection)
                    connection.drop()
                    return True
        return False


def _until(waiting: Iterable[Any], latest_s: float) -> list[Any]:
    """Return the first connections of *waiting*, up to those that wait since *latest_s*."""
    return list(takewhile(lambda connection: connection.since_s <= latest_s, waiting))


class ConnectionGuard:
    """The connections of a process, and the timer that looks for those over a time limit.

    Args:
        is_limited: false for an address with any number of connections: a trusted proxy.
    """

    def __init__(self, limits: Limits, is_limited: Callable[[str], bool] = lambda _: True) -> None:
        self.limits, self.connections = limits, Connections(limits)
        self._is_limited = is_limited
        # connection -> since when a response waits for its client
        self._unread: dict[GuardedProtocol, float] = {}
        self._sweeping = self._out_of_files = False

    def limited_address(self, transport: asyncio.BaseTransport) -> str | None:
        """Return the address that counts for the limit per address, if any."""
        peer = transport.get_extra_info("peername")
        # a unix socket has a path
        address = str(peer[0]) if isinstance(peer, tuple) and peer else None
        return address if address and self._is_limited(address) else None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the timer; it ends with the last connection."""
        if not self._sweeping:
            self._sweeping = True
            loop.call_later(_SWEEP_S, self._sweep, loop)

    def _check_files(self) -> None:
        """Log once if open files have run out: the event loop then refuses connections and does not say so."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
            self._out_of_files = False
        except OSError as error:
            if not self._out_of_files:
                log.warning("connections are refused: %s. Raise the limit of open files (ulimit -n)", error.strerror)
            self._out_of_files = True

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._check_files()
        now_s = loop.time()
        for connection in self.connections.overdue(now_s):
            connection.time_out()
        unread = {}
        for connection in list(self.connections.everyone):
            if connection.transport.get_write_buffer_size():
                since_s = self._unread.get(connection, now_s)
                if now_s - since_s >= self.limits.response_timeout_s:
                    connection.drop()
                else:
                    unread[connection] = since_s
        self._unread = unread
        self._sweeping = bool(self.connections.everyone)
        if self._sweeping:
            loop.call_later(_SWEEP_S, self._sweep, loop)


class GuardedProtocol(asyncio.Protocol):
    """One connection: it passes complete requests to uvicorn's protocol, the next one after the response.

    Args:
        app_state, options: of uvicorn's protocol.

    Attributes:
        address: of the client; None if it is not limited: a unix socket, or a trusted proxy.
        since_s: since when it waits for a request, or for the rest of one.
    """

    transport: asyncio.Transport
    address: str | None = None
    since_s = 0.0
    # from the moment when a request is passed on until its response is complete
    _serving = False
    _probes_only = False
    # the client sends no more
    _at_end = False
    # uvicorn's protocol; none for a connection that was refused
    _inner: Any = None
    # bytes that were received and not passed on
    _received = b""
    # the last request that was passed on
    _passed = b""
    # the request that repeat() was called for, without headers that nothing reads, and the function that responds to it
    _repeated = b""
    _respond_again: Callable[[], bytes]

    def __init__(self, guard: ConnectionGuard, *, app_state: dict[str, Any], **options: Any) -> None:
        self._guard, self._connections = guard, guard.connections
        self._make_inner = partial(HttpToolsProtocol, app_state={**app_state, CONNECTION: self}, **options)
        self._loop = asyncio.get_running_loop()

    # --- the connection ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.address = self._guard.limited_address(transport)
        outcome = self._connections.add(self, self._loop.time())
        if outcome == "refused":
            self._refuse(_REFUSED)
            return
        self._probes_only = outcome == "probes"
        self._inner = self._make_inner()
        self._inner.connection_made(_Transport(transport, self._close))
        self._guard.start(self._loop)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        inner, self._inner = self._inner, None
        if inner is not None:
            # uvicorn cancels its timer only if there was no error
            inner.connection_lost(None)

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def drop(self) -> None:
        """Close it at once, even if a response waits for its client: the system would go on sending it."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def time_out(self) -> None:
        """Close it after a time limit; respond if some of a request arrived."""
        if not _has_unread_bytes(self.transport):
            self._connections.remove(self)
            self._refuse(_TIMED_OUT if self._received or self._serving else b"")

    def _refuse(self, response: bytes) -> None:
        self._received = b""
        self.transport.write(response)
        self.transport.close()

    def _close(self) -> None:
        """Close it as uvicorn says: between two requests only if none is on its way."""
        if self.transport.is_closing():
            return
        if self._serving:
            self.transport.close()
        else:
            self._loop.call_later(_LINGER_S, self._close_unless_busy)

    def _close_unless_busy(self) -> None:
        if not (self.transport.is_closing() or self._serving or _has_unread_bytes(self.transport)):
            self.transport.close()

    # --- requests ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._repeated and self._is_answered_again(data):
            return
        self._received += data
        if not self._serving:
            self._pass_request()
        if len(self._received) > MAX_HEAD_BYTES:
            if self._serving:
                self.drop()
            else:
                self._refuse(_TOO_LARGE)

    def eof_received(self) -> bool:
        """Return true while requests are in progress: a client may close its half and still wait for responses."""
        self._at_end = True
        return self._serving

    def _pass_request(self) -> None:
        """Pass the next request on if it is complete."""
        # empty lines before a request are allowed (RFC 9112, 2.2)
        received = self._received = self._received.lstrip(b"\r\n")
        if not received:
            return
        self._connections.request_began(self, self._loop.time())
        length = _length(received, self._guard.limits.max_body_bytes)
        if length <= len(received):
            self._serving = True
            self._passed, self._received = received[:length], received[length:]
            self._inner.data_received(self._passed)

    def repeat(self, respond: Callable[[], bytes]) -> None:
        """Let *respond* respond if the request in progress comes again on this connection, but for unread headers.

        The application calls it once it has allowed the request, so its checks need not be repeated. *respond* returns
        a whole response, or b"" if the application has to look at the request again. It must not raise or block.
        """
        # each request is in the access log, which is uvicorn's
        if not logging.getLogger("uvicorn.access").hasHandlers():
            self._repeated, self._respond_again = _what_counts(self._passed), respond

    def _is_answered_again(self, data: bytes) -> bool:
        """Respond to a repeated request if nothing else is in progress. Return false if it has to be passed on."""
        transport = self.transport
        if self._serving or self._received or transport.get_write_buffer_size() or _what_counts(data) != self._repeated:
            return False
        response = self._respond_again()
        if response:
            transport.write(response)
            self._connections.request_complete(self)
            self._connections.response_complete(self, self._loop.time())
        return bool(response)

    async def serve(self, app: Any, scope: Scope, receive: Receive, send: Send) -> None:
        """Call *app* for a request of this connection."""
        self._connections.request_complete(self)
        try:
            if self._probes_only and scope["path"] not in PROBES:
                problem = HttpProblem(503, "Busy", "all connections of this process are busy. Try again.", 1)
                more = [*problem.headers(), (b"connection", b"close")]
                await send_body(send, problem.body(), status=503, more=more)
            else:
                await app(scope, receive, send)
        finally:
            self._response_complete()

    def _response_complete(self) -> None:
        self._serving, self._passed = False, b""
        if not self.transport.is_closing():
            self._connections.response_complete(self, self._loop.time())
            self._pass_request()
            if self._at_end and not self._serving:
                self.transport.close()


class _Transport:
    """The transport for uvicorn, with another close()."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport, self.write, self.close = transport, transport.write, close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _length(received: bytes, max_body_bytes: int) -> int:
    """Return the length of the first request, as far as it can be told; more than there is if it is not complete.

    A body that the service refuses counts as complete: the response says why.
    """
    head_end = received.find(b"\r\n\r\n")
    if head_end < 0:
        return len(received) + 1
    bodies = _BODY.findall(received, 0, head_end)
    if not bodies:
        return head_end + 4
    _, value = bodies[0]
    if len(bodies) == 1 and value.strip().isdigit() and len(value) < 10 and int(value) <= max_body_bytes:
        return head_end + 4 + int(value)
    return len(received)


def _what_counts(received: bytes) -> bytes:
    """Return one request without its unread headers; b"" if it is not complete, or more follows."""
    return _UNREAD_HEADER.sub(b"", received) if received.find(b"\r\n\r\n") == len(received) - 4 else b""


def _has_unread_bytes(transport: asyncio.BaseTransport) -> bool:
    """Return true if the system has bytes of the client that were not read yet."""
    # there is none on Windows
    import fcntl
    import termios

    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return False
    waiting: int = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.FIONREAD, b"\0" * 4))[0]
    return waiting > 0
