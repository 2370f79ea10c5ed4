"""Which leases ended without a release, from the events of a pool: those that expired, and those of dead processes.

A process that was paused, or cut off from Redis, for longer than a ttl can return: it renews its lease after all, its
renewal is refused, or it claims another worker id. Its lease is then no longer among those that ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from snowredis.monitor.events import Entry, Event, field_of, parse_all
from snowredis.monitor.lease import Lease, parse_owner
from snowredis.monitor.pool import SHOWN_MS, PoolInfo, Snapshot, stored_int
from snowredis.servers.scripts import text_of
from snowredis.snowflake.protocol.record import EventKind

# events without which ended_in() would return another result
KINDS = frozenset({EventKind.EXPIRED, EventKind.DIED, EventKind.RETURNED, EventKind.LOST})
# time of a claim, and the text that names its process
Claim: TypeAlias = tuple[int, str]


def shown_ms(info: PoolInfo) -> int:
    """Return for how long a lease that expired may matter: its process may make ids for a whole outage lane."""
    return max(SHOWN_MS, info.config.outage_reserve_ms)


def ended_in(snapshot: Snapshot, events: Iterable[Event], claims: Iterable[Claim] = ()) -> list[Lease]:
    """Return the leases that ended without a release, the newest first, each once, without processes that returned.

    Args:
        snapshot: its ended leases are those that no script has written yet.
        events: of the KINDS.
        claims: the process of a generator that claims is alive.
    """
    claimed_ms = {parse_owner(owner).generator: at_ms for at_ms, owner in sorted(claims)}
    claimed_ms.pop("", None)
    ended = {(each.worker, each.end_ms): each for each in snapshot.ended}
    returned: set[tuple[int, int]] = set()
    lost: dict[tuple[object, ...], int] = {}
    # processes that were found to be dead after their leases had ended, by the time of the claim
    found: set[tuple[object, ...]] = set()
    for event in events:
        if event.kind == EventKind.RETURNED and event.ended_ms is not None:
            returned.add((event.worker, event.ended_ms))
        elif event.kind == EventKind.LOST:
            lost[event.process] = max(event.at_ms, lost.get(event.process, 0))
        elif event.kind == EventKind.EXPIRED:
            ended[event.worker, event.at_ms] = event.lease("expired")
        elif event.kind == EventKind.DIED:
            ended[event.worker, event.at_ms] = event.lease("died")
            found.add((*event.process, event.claimed_ms or 0))

    def is_over(each: Lease) -> bool:
        process = each.worker, *each.owner.name
        seen_ms = max(lost.get(process, -1), claimed_ms.get(each.owner.generator, -1))
        is_counted = each.state != "died" and (*process, each.claimed_ms) in found
        return seen_ms < each.end_ms and not is_counted

    places = {place: each for place, each in ended.items() if each.state == "died" or place not in returned}
    return sorted(filter(is_over, places.values()), key=lambda each: (-each.end_ms, each.worker))


def is_unused(lease: Lease) -> bool:
    """Return whether a lease was never renewed: the reply to its claim was lost, or Redis took no renewal."""
    return lease.state == "expired" and not lease.ids_made and 0 < lease.claimed_ms == lease.renewed_ms


def with_history(state: Snapshot, events: Sequence[Event], claims: Sequence[Claim]) -> Snapshot:
    """Return *state* with what *events* of the KINDS and *claims* say of leases that ended."""
    now_ms, over = state.info.now_ms, ended_in(state, events, claims if state.ended or events else ())
    shown = [each for each in over if not is_unused(each) and max(each.end_ms + SHOWN_MS, each.ids_until_ms) > now_ms]
    # they are counted to compare the dead with
    recent = {parse_owner(owner).process for at_ms, owner in claims if at_ms > now_ms - SHOWN_MS} if shown else ()
    # processes that are not shown may make ids in these lanes
    lost = (event for event in events if event.kind == EventKind.LOST and event.at_ms >= state.info.raised_ms)
    lanes_ms = [each.outage_until_ms for each in over if is_unused(each)] + [each.owner.lane_until_ms for each in lost]
    return replace(state, ended=tuple(shown), claims=len(recent), lanes_until_ms=max(lanes_ms, default=0))


class RecentEvents:
    """Events of the KINDS, of the last hours, for a reader that comes again: only what is new is read from Redis.

    Thread-safe: what is known is replaced as a whole, so threads that read at once read the same twice, at worst.

    Args:
        read: returns all entries of the stream since an id or a time, the oldest first.
    """

    def __init__(self, read: Callable[..., list[Entry]]) -> None:
        self._read = read
        # id of the last entry, events, and claims: there may be thousands, which are parsed when they are needed
        self._known: tuple[str, list[Event], list[Claim]] = ("", [], [])

    def read(self, now_ms: int, since_ms: int) -> tuple[list[Event], list[Claim]]:
        """Return the events since *since_ms* in the order of the stream, and the claims.

        Blocks:
            for a round trip; the first call for all events that are kept.

        Raises:
            StoreUnavailable.
        """
        first_ms, (last_id, events, claims) = max(0, since_ms), self._known
        if last_id and int(last_id.partition("-")[0]) > now_ms + SHOWN_MS:
            # another stream, of a server whose clock is far behind
            last_id, events, claims = "", [], []
        new = self._read(since=last_id or str(first_ms))
        kinds = [field_of(entry, "event") for entry in new]
        chosen = parse_all(entry for entry, kind in zip(new, kinds, strict=True) if kind in KINDS)
        events = [each for each in (*events, *chosen) if each.at_ms >= first_ms]
        claimed = (entry for entry, kind in zip(new, kinds, strict=True) if kind == EventKind.CLAIMED)
        fresh = ((stored_int(field_of(entry, "at")) or 0, field_of(entry, "owner")) for entry in claimed)
        claims = [claim for claim in (*claims, *fresh) if claim[0] >= first_ms]
        self._known = (text_of(new[-1][0]) if new else last_id, events, claims)
        return events, claims
