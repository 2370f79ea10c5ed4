"""A long list on a small screen: which part is shown, in which order, filtered by what. Knows no terminal.

It keeps its place: the worker under the cursor stays where it is on the screen while others come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snowredis.lease.inspect import WorkerInfo

# title -> what to sort by; the worst first where there is a worst
SORTS: dict[str, Callable[[WorkerInfo], Any]] = {
    "worker": lambda one: one.worker,
    "host": lambda one: (one.host, one.pid),
    "label": lambda one: (one.label, one.host),
    "beat": lambda one: -one.heartbeat_age_ms,
    "ids/s": lambda one: -one.ids_per_second,
    "ids": lambda one: -one.ids_made,
    "clock": lambda one: -abs(one.clock_offset_ms),
    "back": lambda one: -one.clock_backs,
}
HELP = "s sort  r reverse  / filter  a all  q quit"


class Browser:
    """What a person has chosen so far.

    Attributes:
        sort: one of SORTS; reverse: the other way round.
        words: the filter: all of them have to be in host, label, state, pid or worker id.
        typing: whether the filter is being typed.
        everybody: whether worker ids whose lease ended are asked for.
        quit: whether it is over.
    """

    def __init__(self, *, everybody: bool = False) -> None:
        self.sort, self.reverse = "worker", False
        self.words, self.typing, self.quit = "", False, False
        self.everybody = everybody
        # the worker under the cursor, where it was in the list and on the screen
        self.cursor: int | None = None
        self._at, self._row, self._height = 0, 0, 10
        self._move = 0

    def press(self, key: str) -> None:
        """A key as keys.py names it."""
        if self.typing:
            self._type(key)
            return
        moves = {
            "up": -1,
            "k": -1,
            "down": 1,
            "j": 1,
            "page up": -self._height,
            "b": -self._height,
            "page down": self._height,
            " ": self._height,
            "home": -(10**9),
            "g": -(10**9),
            "end": 10**9,
            "G": 10**9,
        }
        if key in moves:
            self._move += moves[key]
        elif key in ("s", "S"):
            names = list(SORTS)
            self.sort = names[(names.index(self.sort) + (1 if key == "s" else -1)) % len(names)]
            self._to_top()
        elif key == "r":
            self.reverse = not self.reverse
            self._to_top()
        elif key == "/":
            self.typing = True
        elif key == "escape":
            self.words = ""
        elif key == "a":
            self.everybody = not self.everybody
        elif key == "q":
            self.quit = True

    def _to_top(self) -> None:
        """Who asks for another order wants to see what is first in it."""
        self.cursor, self._at, self._row, self._move = None, 0, 0, 0

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.typing = False
            self.words = self.words if key == "enter" else ""
        elif key == "backspace":
            self.words = self.words[:-1]
        elif len(key) == 1 and key.isprintable() and len(self.words) < 60:
            self.words += key

    def chosen(self, infos: Sequence[WorkerInfo]) -> list[WorkerInfo]:
        """Those that the filter lets through, in order."""
        words = self.words.lower().split()
        # by worker id among equals, so that nothing jumps
        kept = [one for one in infos if not words or _matches(one, words)]
        kept.sort(key=lambda one: one.worker)
        kept.sort(key=SORTS[self.sort], reverse=self.reverse)
        return kept

    def window(self, shown: Sequence[WorkerInfo], height: int) -> tuple[int, int]:
        """Which of *shown*, as chosen() answers them, are on a screen with room for *height*: [first, after)."""
        self._height = max(1, height)
        if not shown:
            self.cursor, self._at, self._row, self._move = None, 0, 0, 0
            return 0, 0
        at = next((at for at, one in enumerate(shown) if one.worker == self.cursor), None)
        # gone: the one that is in its place now
        at = min(self._at, len(shown) - 1) if at is None else at
        moved = max(0, min(at + self._move, len(shown) - 1))
        row = self._row + moved - at
        if abs(self._move) >= self._height:
            # a page further, the cursor stays where it is on the screen
            row = self._row
        self._move = 0
        row = max(0, min(row, self._height - 1))
        first = max(0, min(moved - row, len(shown) - self._height))
        self.cursor, self._at, self._row = shown[moved].worker, moved, moved - first
        return first, min(len(shown), first + self._height)


def _matches(one: WorkerInfo, words: Sequence[str]) -> bool:
    text = f"{one.worker} {one.host} {one.pid} {one.label} {one.state}".lower()
    return all(word in text for word in words)
