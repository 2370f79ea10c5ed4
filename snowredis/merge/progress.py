"""Progress on standard error: one line that changes on a terminal, else a line for each part that is finished."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Self

from snowredis.cli.output import compact, duration, fitted, is_terminal, printable

__all__ = ["Progress"]

# seconds between two drawings on a terminal, and between two lines where lines stay
_DRAWN_S, _WRITTEN_S = 0.1, 30.0


class Progress:
    """A context manager that removes the changing line at its end. Without *shown*, nothing is printed."""

    def __init__(self, *, shown: bool = True) -> None:
        self._shown, self._changes = shown, is_terminal(sys.stderr)
        self._text, self._unit, self._total, self._done = "", "", 0.0, 0.0
        self._began_s = time.monotonic()
        self._printed_s = self._began_s if not self._changes else 0.0
        self._is_drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def start(self, text: str, total: float = 0, unit: str = "") -> None:
        """Begin a phase.

        Args:
            total: of what add() counts; 0: unknown.
            unit: what is counted, for the rate; empty: no rate is shown.
        """
        self._text, self._total, self._unit, self._done = text, total, unit, 0.0
        self._began_s = time.monotonic()
        self.show()

    def add(self, done: float, finished: str = "") -> None:
        """Count *done* more of the total; *finished*: the part that is complete now."""
        self._done += done
        self.show(finished=finished)

    def show(self, within: float = 0.0, *, finished: str = "") -> None:
        """Print the state, with *within* more of the total; at most every _DRAWN_S."""
        now_s = time.monotonic()
        waits_s = _DRAWN_S if self._changes else 0.0 if finished else _WRITTEN_S
        if not self._shown or now_s - self._printed_s < waits_s:
            return
        self._printed_s = now_s
        line = printable(self._line(self._done + within, finished))
        if self._changes:
            width = shutil.get_terminal_size().columns
            print(f"\r\x1b[K{fitted(line, width - 1)}", end="", file=sys.stderr, flush=True)
            self._is_drawn = True
        else:
            print(line, file=sys.stderr, flush=True)

    def _line(self, done: float, finished: str) -> str:
        parts, elapsed_s = [self._text], time.monotonic() - self._began_s
        if self._total:
            parts[0] += f" {min(done / self._total, 1):4.0%}"
            if done and elapsed_s > 1:
                parts.append(f"{compact(done / elapsed_s)} {self._unit}/s") if self._unit else None
                left_ms = max(0.0, self._total - done) / done * elapsed_s * 1000
                parts.append(f"about {duration(left_ms)} left")
        return ", ".join([*parts, *([f"{finished} is finished"] if finished else [])])

    def clear(self) -> None:
        """Remove the changing line."""
        if self._is_drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._is_drawn = False
