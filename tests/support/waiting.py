"""Wait for what another process or thread does."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

POLL_S = 0.02


def eventually(
    condition: Callable[[], Any], what: str = "it", limit_s: float = 10.0, *, ignored: tuple[type[Exception], ...] = ()
) -> Any:
    """Poll until *condition* holds, and return its value. An *ignored* error counts as a no."""
    value = becomes_true(condition, limit_s, ignored=ignored)
    assert value, f"{what} did not come true in {limit_s} s"
    return value


def becomes_true(
    condition: Callable[[], Any], limit_s: float = 10.0, *, ignored: tuple[type[Exception], ...] = ()
) -> Any:
    """Poll as eventually() does; return None if *condition* did not hold within *limit_s*."""
    deadline_s = time.monotonic() + limit_s
    while True:
        with suppress(*ignored):
            if value := condition():
                return value
        if time.monotonic() > deadline_s:
            return None
        time.sleep(POLL_S)
