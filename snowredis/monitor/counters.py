"""What a process counts of its own generators, for metrics: totals that only grow, also when generators come and go.

Knows no runtime: it reads what a generator shows.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

# what a process counts, as metrics tell it: name -> (help, the label that divides it, if any)
COUNTERS = {
    "ids": ("ids made", ""),
    "waits": ("times an id had to wait, by reason", "reason"),
    "ceiling_hits": ("times a tick's sequence was used up", ""),
    "ceiling_wait_seconds": ("for how long ids waited for the next tick, about", ""),
    "clock_backs": ("times the clock went back, by what was done about it", "step"),
    "claims": ("worker ids that were leased", ""),
    "renewals": ("heartbeats that were answered", ""),
    "renewals_failed": ("heartbeats that were not answered", ""),
    "leases_lost": ("worker ids that were lost", ""),
}


@dataclass(frozen=True, slots=True)
class Counters:
    """Of one generator, or of all of a process in one pool.

    Attributes:
        totals: what only grows, by the names of COUNTERS; waits of a reason as "waits:REASON", clock-backs of a
            step as "clock_backs:STEP".
        leases: how many worker ids are held.
        lease_left_s: until the reservation ends; of several the least; None without a lease.
        heartbeat_s: the round trip of the last renewal; of several the longest; None if not known.
        clock_offset_s: this host's clock less that of Redis; None if not known.
    """

    totals: Mapping[str, float] = field(default_factory=dict)
    leases: int = 0
    lease_left_s: float | None = None
    heartbeat_s: float | None = None
    clock_offset_s: float | None = None


class HasCounts(Protocol):
    """A generator as metrics see it: snowredis.Generator. Its ``counts`` are those of snowredis.runtime.counts."""

    @property
    def pool(self) -> str: ...

    @property
    def ids_made(self) -> int: ...

    @property
    def counts(self) -> Any: ...


def counters_of(generator: Any) -> Counters:
    """What *generator*, a HasCounts, has counted so far."""
    counts = generator.counts
    totals: dict[str, float] = {
        "ids": generator.ids_made,
        "waits:ceiling": counts.ceiling_waits,
        "waits:clock": counts.clock_back_waits,
        "ceiling_hits": counts.ceiling_waits,
        "ceiling_wait_seconds": counts.ceiling_wait_s,
        **{f"clock_backs:{step}": number for step, number in counts.clock_backs_by_step.items()},
        "claims": counts.claims,
        "renewals": counts.renewals,
        "renewals_failed": counts.renewals_failed,
        "leases_lost": counts.leases_lost,
    }
    lease, lease_manager = generator.lease, getattr(generator, "_lease_manager", None)
    seen = getattr(lease_manager, "seen", None)
    known = seen is not None and seen.incarnation
    now_s = getattr(getattr(generator, "_clock", None), "time", time.time)()
    return Counters(
        totals,
        leases=int(lease is not None),
        lease_left_s=None if lease is None else lease.until_ms / 1000 - now_s,
        heartbeat_s=counts.round_trip_s or None,
        clock_offset_s=lease_manager.offset_ms / 1000 if lease_manager is not None and known else None,
    )


class TotalsTracker:
    """Adds up what the generators of this process counted, those that are gone included.

    Args:
        members: what may be generators of this process; anything else among it is left out.

    Of a generator that is gone counts what was seen of it last: ask now and then. A forked child starts at 0.
    """

    def __init__(self, members: Callable[[], Iterable[Any]]) -> None:
        self._members = members
        self._forget()

    def _forget(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._seen: weakref.WeakKeyDictionary[Any, Mapping[str, float]] = weakref.WeakKeyDictionary()
        self._totals: dict[str, Counter[str]] = {}

    def look(self) -> dict[str, Counters]:
        """By pool, all up to now."""
        if self._pid != os.getpid():
            self._forget()
        with self._lock:
            return dict(self._look())

    def _look(self) -> Iterator[tuple[str, Counters]]:
        now: dict[str, list[Counters]] = {}
        for member in self._members():
            if not hasattr(member, "ids_made"):
                continue
            counters = counters_of(member)
            before = self._seen.get(member, {})
            grown = self._totals.setdefault(member.pool, Counter())
            for name, value in counters.totals.items():
                # "about" so many: a sealed block may count for a moment
                grown[name] += max(0.0, value - before.get(name, 0))  # type: ignore[assignment]
            self._seen[member] = {
                name: max(value, before.get(name, 0)) for name, value in counters.totals.items()
            }
            now.setdefault(member.pool, []).append(counters)
        for pool, totals in self._totals.items():
            living = now.get(pool, [])
            yield (
                pool,
                Counters(
                    dict(totals),
                    leases=sum(one.leases for one in living),
                    lease_left_s=min(
                        (one.lease_left_s for one in living if one.lease_left_s is not None), default=None
                    ),
                    heartbeat_s=max(
                        (one.heartbeat_s for one in living if one.heartbeat_s is not None), default=None
                    ),
                    clock_offset_s=next(
                        (one.clock_offset_s for one in living if one.clock_offset_s is not None), None
                    ),
                ),
            )
