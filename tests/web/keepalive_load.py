"""Load by clients with keep-alive connections that go elsewhere when the service asks for it.

A client asks one instance after another for ids, on one connection each, as a proxy would: it connects to an instance
that accepts, keeps the connection until a response says "Connection: close", and never repeats a request that it sent.
So each connection that is closed under a request is a lost request.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

CLIENTS = 8
# between two requests of a client
PAUSE_S = 0.002
REQUEST = b"GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n"


class Loaded(NamedTuple):
    """Observations of the clients: every id, and what went wrong with a request that was sent."""

    ids: list[bytes]
    lost: list[str]

    @property
    def repeated(self) -> int:
        return len(self.ids) - len(set(self.ids))


@contextlib.asynccontextmanager
async def load(ports: Sequence[int], path: str) -> AsyncIterator[Loaded]:
    """Run the clients until the end of the block."""
    request = REQUEST % path.encode()
    seen, stop = Loaded([], []), asyncio.Event()
    tasks = [asyncio.create_task(_client(ports, number, request, seen, stop)) for number in range(CLIENTS)]
    try:
        yield seen
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def _client(ports: Sequence[int], number: int, request: bytes, seen: Loaded, stop: asyncio.Event) -> None:
    while not stop.is_set():
        number += 1
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", ports[number % len(ports)])
        except OSError:
            # nothing was sent: try the next instance
            await asyncio.sleep(PAUSE_S)
            continue
        with contextlib.closing(writer):
            await _ask(reader, writer, request, seen, stop)


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, seen: Loaded, stop: asyncio.Event
) -> None:
    while not stop.is_set():
        writer.write(request)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            body = await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
        except (OSError, asyncio.IncompleteReadError) as error:
            seen.lost.append(repr(error))
            return
        if head.split()[1] != b"200":
            seen.lost.append(repr(body))
        else:
            seen.ids.extend(body.split())
        if b"connection: close" in head:
            return
        await asyncio.sleep(PAUSE_S)
