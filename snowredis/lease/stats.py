"""Statistics of one worker, as its heartbeats report them. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

# the scripts check only the characters
_TEXT = re.compile(r"-?\d{1,18}(?:,-?\d{1,18}){4}", re.ASCII)


class WorkerStats(NamedTuple):
    """Statistics of one worker at its last heartbeat.

    Attributes:
        ids_made: ids made since the process started.
        ids_per_s: ids per second since the heartbeat before.
        clock_offset_ms: the worker's clock minus the Redis clock.
        namespace: value of the backup bits in use.
        clock_backs: how often the worker's clock went back.
    """

    ids_made: int = 0
    ids_per_s: int = 0
    clock_offset_ms: int = 0
    namespace: int = 0
    clock_backs: int = 0

    def to_text(self) -> str:
        """Return the form that is stored in Redis: the five numbers, separated by commas."""
        return ",".join(map(str, self))

    @classmethod
    def from_text(cls, text: str) -> WorkerStats:
        """Parse what to_text() returned. Any other text, also that of a new lease, returns zeros."""
        return cls(*map(int, text.split(","))) if _TEXT.fullmatch(text) else NO_STATS


# of a lease with which no id was made
NO_STATS = WorkerStats()
