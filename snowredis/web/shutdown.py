"""Hear of the signal that ends the server: it waits for open streams, and tells nobody."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def on_shutdown_signal(tell: Callable[[], None]) -> Iterator[None]:
    """Call *tell* in this loop at SIGTERM or SIGINT, before the server's own handler."""
    loop = asyncio.get_running_loop()
    before: dict[signal.Signals, Any] = {}

    def handler(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(tell)
        before[signal.Signals(number)](number, frame)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            found = signal.getsignal(number)
            # the server's own; what the system does by itself ends the process in any case
            if callable(found) and found is not signal.default_int_handler:
                before[number] = found
                signal.signal(number, handler)
    try:
        yield
    finally:
        for number, found in before.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, found)
