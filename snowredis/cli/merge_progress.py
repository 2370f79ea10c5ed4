"""Progress of `merge check` on standard error: one line that changes on a terminal, else a line for each source."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Self

from snowredis.cli.output import compact, duration, fitted, is_terminal, printable

if TYPE_CHECKING:
    from snowredis.merge.check.progress import Progress

# where lines stay, one is written this often at most
_INTERVAL_S = 30.0
_VERBS = {"read": "reading", "compare": "comparing"}


class ProgressLines:
    """Prints progress; a context manager that removes the changing line at its end."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._changes = is_terminal(sys.stderr)
        self._written_s = time.monotonic()
        self._is_drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def report(self, progress: Progress) -> None:
        """Show one state."""
        if self._quiet:
            return
        if self._changes:
            width = shutil.get_terminal_size().columns
            print(f"\r\x1b[K{fitted(_text(progress), width - 1)}", end="", file=sys.stderr, flush=True)
            self._is_drawn = True
        elif (progress.finished and progress.what) or time.monotonic() - self._written_s > _INTERVAL_S:
            self._written_s = time.monotonic()
            print(_text(progress), file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._is_drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _text(progress: Progress) -> str:
    parts = [f"{_VERBS[progress.phase]} {progress.done:4.0%}"]
    if progress.ids:
        parts.append(f"{compact(progress.ids)} ids")
    if progress.ids_per_s:
        parts.append(f"{compact(progress.ids_per_s)} ids/s")
    if progress.left_s is not None and progress.done < 1:
        parts.append(f"about {duration(progress.left_s * 1000)} left")
    if progress.what:
        parts.append(f"{printable(progress.what, 60)}{' is read' if progress.finished else ''}")
    return ", ".join(parts)
