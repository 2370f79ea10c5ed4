"""TCP proxy in front of Redis that cuts and stalls connections, and delays or drops replies.

It never changes bytes: what arrives is a prefix of what was sent, as on a real network.
"""

import asyncio
import contextlib
import threading
from pathlib import Path

MODES = ("pass", "stall", "delay", "swallow")


class Proxy:
    """Runs in a thread of its own; ``set()`` and ``cut()`` may be called from any."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._mode, self._delay_s = "pass", 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        # connections that lost an answer: nothing that comes after it may arrive either
        self._deaf: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self.port = 0
        # bytes that never reached a worker
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def start(self) -> None:
        self._thread.start()
        if not self._listening.wait(10):
            raise SystemExit("the proxy does not start")

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def set(self, mode: str, delay_s: float = 0.0) -> None:
        """Set the mode: "pass", "stall", "delay" each piece by *delay_s*, or "swallow" replies."""
        if mode not in MODES:
            raise ValueError(mode)
        self._mode, self._delay_s = mode, delay_s

    def cut(self) -> None:
        """Reset every connection, also in the middle of a reply."""

        def abort() -> None:
            for writer in list(self._writers):
                writer.transport.abort()

        self._loop.call_soon_threadsafe(abort)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)

        async def listen() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            self._listening.set()

        self._loop.run_until_complete(listen())
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_unix_connection(self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, forth}
        ways = [
            asyncio.ensure_future(self._pump(reader, forth, answers=False)),
            asyncio.ensure_future(self._pump(back, writer, answers=True)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for end in (writer, forth):
            end.transport.abort()
        self._writers -= {writer, forth}
        self._deaf.discard(writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65536):
                if answers and (self._mode == "swallow" or writer in self._deaf):
                    self._deaf.add(writer)
                    continue
                while self._mode == "stall":  # noqa: ASYNC110 - set by another thread
                    await asyncio.sleep(0.01)
                if self._mode == "delay":
                    await asyncio.sleep(self._delay_s)
                writer.write(data)
                await writer.drain()
