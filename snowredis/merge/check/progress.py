"""Progress of a check: what is being done, at which rate, and how long it still takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Meter", "Progress", "Reporter"]


@dataclass(frozen=True, slots=True)
class Progress:
    """State of one phase.

    Attributes:
        phase: "read" or "compare".
        what: the part that is being read: a file or a table; empty while ids are compared.
        done: part of the phase that is done, 0 to 1.
        ids: how many ids were read, or compared, until now.
        ids_per_s: mean rate of this run; 0 while unknown.
        left_s: seconds that the rest of the phase takes at the rate of this run; None while unknown.
        finished: whether *what* is now complete.
    """

    phase: str
    what: str
    done: float
    ids: int
    ids_per_s: float
    left_s: float | None
    finished: bool = False


Reporter = Callable[[Progress], None]


class Meter:
    """Rate and remaining time of one phase.

    Args:
        total: weight of everything, in any unit.
        done: weight of what an earlier run did: it counts for the part that is done, not for the rate.
    """

    def __init__(self, phase: str, total: int, report: Reporter, *, done: int = 0, ids: int = 0) -> None:
        self._phase, self._total, self._report = phase, max(total, 1), report
        self._start_done = self._done = done
        self._start_ids = self._ids = ids
        self._start_s = time.monotonic()

    def show(self, what: str, weight: float = 0, ids: int = 0) -> None:
        """Report the state while *weight* of the part under way is done, which made *ids* ids."""
        self._send(what, self._done + weight, self._ids + ids, finished=False)

    def add(self, what: str, weight: int, ids: int, *, finished: bool = True) -> None:
        """Count a part, or some of it, as done."""
        self._done += weight
        self._ids += ids
        self._send(what, self._done, self._ids, finished=finished)

    def _send(self, what: str, done: float, ids: int, *, finished: bool) -> None:
        elapsed_s = time.monotonic() - self._start_s
        rate = (done - self._start_done) / elapsed_s if elapsed_s > 0 else 0.0
        part = min(done / self._total, 1.0)
        left_s = (self._total - done) / rate if rate > 0 else None
        ids_per_s = (ids - self._start_ids) / elapsed_s if elapsed_s > 0 else 0.0
        self._report(
            Progress(
                self._phase,
                what,
                part,
                ids,
                ids_per_s,
                None if left_s is None else max(left_s, 0.0),
                finished,
            )
        )
