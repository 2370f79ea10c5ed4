"""The time between SIGTERM and the end: not ready any more, but every request is served.

Load balancers notice that /readyz fails and send requests elsewhere; clients are told to close their connections, each
with the response to a request, so that none is lost. Then the server's own handler of the signal stops it. This works
under every server that handles signals by signal.signal(), such as uvicorn and gunicorn's worker for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

log = logging.getLogger("snowredis")


class Drain:
    """The drain of one process.

    Args:
        drain_s: its length; 0: none.
        end_streams: ends responses that have no end of their own, which the server would wait for.

    Attributes:
        draining: true from SIGTERM on.
    """

    def __init__(self, drain_s: float, end_streams: Callable[[], None]) -> None:
        self.draining = False
        self._drain_s, self._end_streams = drain_s, end_streams
        # the server's handlers
        self._handlers: dict[int, Any] = {}

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT in this event loop before the server's own handlers do.

        SIGINT, Ctrl-C for a person, stops the server at once, also during the drain. More of SIGTERM change nothing:
        gunicorn repeats it every second.
        """
        loop = asyncio.get_running_loop()

        def handle(number: int, frame: FrameType | None) -> None:
            self._handle(loop, number, frame)

        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                installed = signal.getsignal(number)
                # without a handler of the server the signal ends the process anyway
                if callable(installed) and installed is not signal.default_int_handler:
                    self._handlers[number] = installed
                    signal.signal(number, handle)
        try:
            yield
        finally:
            handlers, self._handlers = self._handlers, {}
            for known, installed in handlers.items():
                if signal.getsignal(known) is handle:
                    signal.signal(known, installed)

    def _handle(self, loop: asyncio.AbstractEventLoop, number: int, frame: FrameType | None) -> None:
        first, self.draining = not self.draining, True
        if number == signal.SIGTERM and self._drain_s > 0:
            if first:
                loop.call_soon_threadsafe(self._begin, loop, number)
        else:
            loop.call_soon_threadsafe(self._end_streams)
            self._handlers[number](number, frame)

    def _begin(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        log.info("SIGTERM: not ready any more, and stopping in %g s", self._drain_s)
        loop.call_later(self._drain_s, self._end, number)

    def _end(self, number: int) -> None:
        self._end_streams()
        handler = self._handlers.get(number)
        if handler is not None:
            handler(number, None)
