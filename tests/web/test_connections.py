"""Which connection makes room for another; requests in pieces, through uvicorn."""

from __future__ import annotations

import asyncio
import socket
import time
from functools import partial
from typing import Any

import uvicorn

from snowredis.web.connections import PROBE_RESERVE, ConnectionGuard, Connections, GuardedProtocol
from snowredis.web.messages import CONNECTION, send_body
from snowredis.web.settings import Limits


class FakeConnection:
    """A connection without a socket."""

    since_s = 0.0
    dropped = False

    def __init__(self, address: str | None = None) -> None:
        self.address = address

    def drop(self) -> None:
        self.dropped = True


def connections_of(most: int, per_address: int = 1000) -> Connections:
    return Connections(Limits(max_connections=most, max_connections_per_address=per_address))


def test_a_new_connection_replaces_the_one_that_owes_a_request_for_longest() -> None:
    pool = connections_of(3)
    asked, half, newer = (FakeConnection() for _ in range(3))
    for at_s, one in enumerate((asked, half, newer)):
        assert pool.add(one, at_s) == "open"
    pool.request_complete(asked)
    pool.response_complete(asked, 3)
    # one that has asked before is kept, although it waits too
    assert pool.add(FakeConnection(), 4) == "open"
    assert [one.dropped for one in (asked, half, newer)] == [False, True, False]
    pool.request_complete(newer)
    fourth = next(iter(pool.unfinished))
    pool.request_complete(fourth)
    assert pool.add(FakeConnection(), 5) == "open"
    assert asked.dropped
    assert len(pool.everyone) == 3


def test_while_all_are_busy_there_is_room_for_probes_only() -> None:
    pool = connections_of(2)
    for _ in range(2):
        busy = FakeConnection()
        pool.add(busy, 0)
        pool.request_complete(busy)
    outcomes = []
    for _ in range(PROBE_RESERVE + 1):
        probe = FakeConnection()
        outcomes.append(pool.add(probe, 1))
        pool.request_complete(probe)
    assert outcomes == ["probes"] * PROBE_RESERVE + ["refused"]


def test_an_address_makes_room_among_its_own() -> None:
    pool = connections_of(100, per_address=2)
    other, first, second = FakeConnection("10.0.0.1"), FakeConnection("10.0.0.2"), FakeConnection("10.0.0.2")
    for one in (other, first, second):
        pool.add(one, 0)
    assert pool.add(FakeConnection("10.0.0.2"), 1) == "open"
    assert (other.dropped, first.dropped, second.dropped) == (False, True, False)
    for one in list(pool.unfinished):
        pool.request_complete(one)
    assert pool.add(FakeConnection("10.0.0.2"), 2) == "refused"
    assert pool.add(FakeConnection(None), 2) == "open"
    # a connection that ends makes room again
    pool.remove(second)
    pool.remove(second)
    assert pool.add(FakeConnection("10.0.0.2"), 3) == "open"


def test_waits_end_in_order_and_more_bytes_do_not_make_them_longer() -> None:
    pool = Connections(Limits(request_timeout_s=10, keep_alive_s=20))
    half, idle, busy = (FakeConnection() for _ in range(3))
    for one in (half, idle, busy):
        pool.add(one, 0)
    pool.request_began(half, 9)
    for one in (idle, busy):
        pool.request_complete(one)
    pool.response_complete(idle, 1)
    assert pool.overdue(9.9) == []
    assert pool.overdue(10) == [half]
    assert pool.overdue(21) == [half, idle]
    # a part of the next request counts from its first byte
    pool.request_began(idle, 15)
    assert pool.overdue(24.9) == [half]
    assert pool.overdue(25) == [half, idle]


# --- with uvicorn -----------------------------------------------------------------------------------

GET = b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Respond with the path and the body of the request."""

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["more_body"] or message["body"]:
            body += message["body"]
            if not message["more_body"]:
                break
        await send_body(send, b"<" + scope["path"].encode() + body + b">")

    await scope["state"][CONNECTION].serve(respond, scope, receive, send)


async def ask(address: Any, *pieces: bytes, end: bool = True) -> bytes:
    """Send *pieces* with pauses, end this half of the connection, and return all that comes back."""
    reader, writer = await asyncio.open_connection(*address)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.01)
    if end:
        writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


def test_uvicorn_gets_complete_requests_one_after_the_other() -> None:
    plain: dict[str, Any] = {"ws": "none", "lifespan": "off", "log_config": None}

    async def run() -> float:
        guard: Any = partial(GuardedProtocol, ConnectionGuard(Limits(request_timeout_s=0.3, max_body_bytes=4)))
        server = uvicorn.Server(uvicorn.Config(echo, http=guard, **plain))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = listening.getsockname()
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
            several = b"".join((GET % 1, POST % 2, b"\r\n", GET % 3, POST % 4))
            for pieces in ([several], [several[at : at + 7] for at in range(0, len(several), 7)]):
                found = await ask(address, *pieces)
                assert [found.index(each) for each in (b"</1>", b"</2body>", b"</3>", b"</4body>")] == sorted(
                    found.index(each) for each in (b"</1>", b"</2body>", b"</3>", b"</4body>")
                )
            assert (await ask(address, GET[:-2] % 1, end=False)).startswith(b"HTTP/1.1 408")
            assert (await ask(address, POST[:-1] % 1, end=False)).startswith(b"HTTP/1.1 408")
            assert (await ask(address, b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000)).startswith(b"HTTP/1.1 431")
            assert (await ask(address, b"nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400")
            # a connection that waits does not keep the server from its end
            reader, writer = await asyncio.open_connection(*address)
            writer.write(GET % 1)
            await reader.readuntil(b"</1>")
            server.should_exit, began_s = True, time.monotonic()
            await serving
            writer.close()
            return time.monotonic() - began_s

    assert asyncio.run(run()) < 3
