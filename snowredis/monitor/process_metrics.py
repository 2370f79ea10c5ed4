"""Metrics of the generators of this process: totals that only grow, also when generators are closed.

Imports nothing of the runtime, which is a layer of its own: it reads public attributes of generators.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# name -> (help text, label or "")
COUNTERS = {
    "ids": ("ids made", ""),
    "waits": ("waits for an id, by reason", "reason"),
    "ceiling_hits": ("times that the sequence of a tick was exhausted", ""),
    "ceiling_wait_seconds": ("approximate time that ids waited for the next tick", ""),
    "clock_backs": ("times that the clock went back, by the reaction", "step"),
    "claims": ("worker ids leased", ""),
    "renewals": ("successful heartbeats", ""),
    "renewals_failed": ("failed heartbeats", ""),
    "leases_lost": ("worker ids lost", ""),
}
# field of Counters -> help text
GAUGES = {
    "leases": "worker ids leased",
    "lease_left_s": "time until the first reservation of this process ends",
    "heartbeat_s": "round trip of the last heartbeat",
    "clock_offset_s": "clock of this host minus the Redis clock",
}


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of one generator, or of all generators of a process in one pool.

    Attributes:
        totals: by the names of COUNTERS; with a label as "waits:REASON" and "clock_backs:STEP".
        leases: how many worker ids are leased.
        lease_left_s: time until the reservation ends, of several the shortest; None without a lease.
        heartbeat_s: round trip of the last renewal, of several the longest; None if unknown.
        clock_offset_s: clock of this host minus the Redis clock; None if unknown.
    """

    totals: Mapping[str, float] = field(default_factory=dict)
    leases: int = 0
    lease_left_s: float | None = None
    heartbeat_s: float | None = None
    clock_offset_s: float | None = None


def counters_of(generator: Any) -> Counters:
    """Return the counters of *generator*, a snowredis.Generator."""
    counts, lease = generator.counts, generator.lease
    now_ms, offset_ms = generator.clock_reading
    totals: dict[str, float] = {
        "ids": generator.ids_made,
        "waits:ceiling": counts.ceiling_waits,
        "waits:clock": counts.clock_back_waits,
        "ceiling_hits": counts.ceiling_waits,
        "ceiling_wait_seconds": counts.ceiling_wait_s,
        **{f"clock_backs:{step}": number for step, number in counts.clock_backs_by_step.items()},
        **{name: getattr(counts, name) for name in ("claims", "renewals", "renewals_failed", "leases_lost")},
    }
    return Counters(
        totals,
        leases=int(lease is not None),
        lease_left_s=None if lease is None else (lease.until_ms - now_ms) / 1000,
        heartbeat_s=counts.round_trip_s or None,
        clock_offset_s=None if offset_ms is None else offset_ms / 1000,
    )


class TotalsTracker:
    """Sum the counters of all generators of this process, also of those that no longer exist.

    Args:
        members: returns the generators of this process; other objects in it are ignored.

    A generator that no longer exists counts as of the last call of by_pool(). A forked child starts at 0.
    """

    def __init__(self, members: Callable[[], Iterable[Any]]) -> None:
        self._members = members
        self._reset()

    def _reset(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._seen: weakref.WeakKeyDictionary[Any, Mapping[str, float]] = weakref.WeakKeyDictionary()
        self._totals: dict[str, Counter[str]] = {}

    def by_pool(self) -> dict[str, Counters]:
        """Return the counters by pool."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            return dict(self._collect())

    def _collect(self) -> Iterator[tuple[str, Counters]]:
        current: dict[str, list[Counters]] = {}
        for member in self._members():
            if not hasattr(member, "ids_made"):
                continue
            counters = counters_of(member)
            before = self._seen.get(member, {})
            # ids_made includes a block that was just given up for a moment, so it may shrink
            highest = {name: max(value, before.get(name, 0)) for name, value in counters.totals.items()}
            totals = self._totals.setdefault(member.pool, Counter())
            for name, value in highest.items():
                totals[name] += value - before.get(name, 0)  # type: ignore[assignment]
            self._seen[member] = highest
            current.setdefault(member.pool, []).append(counters)
        for pool, totals in self._totals.items():
            yield pool, _merge(totals, current.get(pool, []))


def _merge(totals: Mapping[str, float], members: list[Counters]) -> Counters:
    """Return *totals* with the gauges of all generators of one pool."""

    def known(name: str) -> list[float]:
        return [value for member in members if (value := getattr(member, name)) is not None]

    return Counters(
        dict(totals),
        leases=sum(member.leases for member in members),
        lease_left_s=min(known("lease_left_s"), default=None),
        heartbeat_s=max(known("heartbeat_s"), default=None),
        clock_offset_s=next(iter(known("clock_offset_s")), None),
    )
