"""React to the signal that stops the server, which waits for open streams without informing the application."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def on_shutdown_signal(callback: Callable[[], None]) -> Iterator[None]:
    """Call *callback* in this event loop at SIGTERM or SIGINT, before the server's own handler."""
    loop = asyncio.get_running_loop()
    previous: dict[signal.Signals, Any] = {}

    def handler(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(callback)
        previous[signal.Signals(number)](number, frame)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            installed = signal.getsignal(number)
            # without a handler of the server the signal ends the process anyway
            if callable(installed) and installed is not signal.default_int_handler:
                previous[number] = installed
                signal.signal(number, handler)
    try:
        yield
    finally:
        for number, installed in previous.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, installed)
