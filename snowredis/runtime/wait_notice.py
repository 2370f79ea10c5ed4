"""Tell people that a call waits for the floor of its pool: one warning for each wait, and a countdown on a terminal.

The countdown is one line that is rewritten. It is shown only where a handler of logging, or the default one, writes the
warning to a terminal: so an application that logs elsewhere keeps its screen.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

log = logging.getLogger("snowredis")

# a shorter wait is not worth a line
MIN_WAIT_MS = 1_000
_CLEAR_LINE = "\r\x1b[K"


class WaitNotice:
    """The notices of one generator, whose threads may all wait at once.

    Args:
        monotonic: returns the seconds since some moment.
    """

    def __init__(self, pool: str, monotonic: Callable[[], float]) -> None:
        self._pool, self._monotonic = pool, monotonic
        # end of the wait that was logged
        self._logged_until_s = -1e9
        self._shown_s: int | None = None

    def show(self, left_ms: float) -> None:
        """Log that ids are *left_ms* away, once for each wait; rewrite the countdown."""
        now_s = self._monotonic()
        if left_ms > MIN_WAIT_MS and now_s > self._logged_until_s:
            self._logged_until_s = now_s + left_ms / 1000 + 1
            log.warning(
                "pool %s: new workers wait %.1f s, so that no id is repeated: Redis did not know the pool, or was "
                "restarted. A pool that is really new is created without this wait by: snowredis pool create %s",
                self._pool,
                left_ms / 1000,
                self._pool,
            )
        left_s = math.ceil(left_ms / 1000)
        # shown only after a warning: of a wait that is long enough
        if left_s > 0 and left_s != self._shown_s and now_s < self._logged_until_s:
            self._shown_s = left_s
            _write(
                f"{_CLEAR_LINE}snowredis: pool {self._pool}: {left_s} s until the first id \N{HORIZONTAL ELLIPSIS}"
            )

    def end(self) -> None:
        """Remove the countdown, at the end of a wait or at an error."""
        if self._shown_s is not None:
            self._shown_s = None
            _write(_CLEAR_LINE)

    @contextlib.contextmanager
    def ended_by_errors(self) -> Iterator[None]:
        """Call end() if the with block raises, also for Ctrl-C, so that a traceback begins on a line of its own."""
        try:
            yield
        except BaseException:
            self.end()
            raise


def _write(text: str) -> None:
    """Write *text* to the terminal to which warnings go; nothing if they go elsewhere."""
    stream = _terminal_of_warnings()
    # closed, or without this character
    with contextlib.suppress(OSError, ValueError):
        if stream is not None:
            stream.write(text)
            stream.flush()


def _terminal_of_warnings() -> Any:
    """Return the terminal to which logging writes this package's warnings; None if there is none."""
    if not log.isEnabledFor(logging.WARNING) or os.environ.get("TERM", "dumb") == "dumb":
        return None
    handlers: list[logging.Handler | None] = []
    logger: logging.Logger | None = log
    while logger is not None:
        handlers += logger.handlers
        logger = logger.parent if logger.propagate else None
    for handler in handlers or [logging.lastResort]:
        stream = getattr(handler, "stream", None)
        with contextlib.suppress(Exception):  # a handler's stream may be anything
            if stream and handler and handler.level <= logging.WARNING and stream.isatty():
                return stream
    return None
