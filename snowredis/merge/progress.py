"""Progress on standard error: one line that changes on a terminal, else a line now and then."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Self

from snowredis.cli.output import fitted, is_terminal, printable
from snowredis.core.values import duration

# seconds between two drawings on a terminal, and between two lines where lines stay
_DRAWN_S, _WRITTEN_S = 0.1, 30.0


class Progress:
    """A context manager that removes the changing line at its end."""

    def __init__(self) -> None:
        self._changes = is_terminal(sys.stderr)
        self._text, self._total, self._done = "", 0.0, 0.0
        self._began_s = time.monotonic()
        self._printed_s = self._began_s if not self._changes else 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def start(self, text: str, total: float = 0) -> None:
        """Begin a phase; *total*: of what add() counts, 0 if it is unknown."""
        self._text, self._total, self._done = text, total, 0.0
        self._began_s = time.monotonic()
        self.show()

    def add(self, done: float) -> None:
        """Count *done* more of the total."""
        self._done += done
        self.show()

    def show(self) -> None:
        """Print the state, unless it was printed a moment ago."""
        now_s = time.monotonic()
        if now_s - self._printed_s < (_DRAWN_S if self._changes else _WRITTEN_S):
            return
        self._printed_s = now_s
        line = printable(self._line())
        if self._changes:
            width = shutil.get_terminal_size().columns
            print(f"\r\x1b[K{fitted(line, width - 1)}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def _line(self) -> str:
        elapsed_s = time.monotonic() - self._began_s
        if not self._total:
            return self._text
        text = f"{self._text} {min(self._done / self._total, 1):4.0%}"
        if not self._done or elapsed_s <= 1:
            return text
        left_s = max(0.0, self._total - self._done) / self._done * elapsed_s
        return f"{text}, about {duration(left_s * 1000)} left"

    def clear(self) -> None:
        """Remove the changing line."""
        if self._changes:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
