"""Leases that ended without a release: whose process died, whose is silent, and which of them somebody has seen.

A process that was paused, or cut off from Redis, for longer than a ttl can return: it renews its lease after all, its
renewal is refused, or it claims another worker id. Until then it is silent. It died if another process found it dead,
and is gone if all its reservations have ended.

An acknowledgement says that a person has seen these up to a time. It is stored in Redis, so that all viewers show the
same. It ends by itself when they are too old to be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from snowredis.core.as_json import TimeMs
from snowredis.monitor.events import Entry, Event, field_of, parse_all
from snowredis.monitor.owner import parse_owner, processes_of
from snowredis.monitor.snapshot import DEATH_SHOWN_MS, EndedLease, MassSilence, PoolInfo, WorkerInfo, stored_int
from snowredis.servers.scripts import text_of
from snowredis.snowflake.protocol import NO_STATS, ids_until_ms, pool_keys
from snowredis.snowflake.record import EventKind

# events without which ended_in() would return another result
KINDS = frozenset({EventKind.EXPIRED, EventKind.DIED, EventKind.RETURNED, EventKind.LOST})


# time of a claim, and the text that names its process
Claim: TypeAlias = tuple[int, str]


def ended_in(events: Iterable[Event], claims: Iterable[Claim] = ()) -> list[EndedLease]:
    """Return the leases that ended without a release, the newest first, each once, without processes that returned.

    Args:
        events: of the KINDS.
        claims: the process of a generator that claims is alive.
    """
    claimed_ms = {parse_owner(owner).generator: at_ms for at_ms, owner in sorted(claims)}
    claimed_ms.pop("", None)
    ended: dict[tuple[int, int, EventKind], Event] = {}
    returned: set[tuple[int, int, EventKind]] = set()
    lost: dict[tuple[object, ...], int] = {}
    # processes that were found to be dead after their lease had ended, by the time of the claim
    found: set[tuple[object, ...]] = set()
    for event in events:
        if event.kind == EventKind.RETURNED and event.ended_ms is not None:
            returned.add((event.worker, event.ended_ms, EventKind.EXPIRED))
        elif event.kind == EventKind.LOST:
            lost[_process(event)] = max(event.at_ms, lost.get(_process(event), 0))
        elif event.kind in KINDS:
            ended[event.worker, event.at_ms, event.kind] = event
            if event.kind == EventKind.DIED:
                found.add((*_process(event), event.claimed_ms))
    left = [
        _ended_lease(event)
        for place, event in ended.items()
        if place not in returned
        and max(lost.get(_process(event), -1), claimed_ms.get(event.owner.generator, -1)) < event.at_ms
        and not (event.kind == EventKind.EXPIRED and ((*_process(event), event.claimed_ms) in found or _unused(event)))
    ]
    return sorted(left, key=lambda each: (-each.at_ms, each.worker))


def _unused(expired: Event) -> bool:
    """Return whether a lease was never renewed and made no ids, as if the reply to its claim was lost."""
    made = (expired.stats or NO_STATS).ids_made
    return not made and expired.claimed_ms is not None and expired.claimed_ms == expired.renewed_ms


def mass_silence_in(ended: Sequence[EndedLease], workers: Sequence[WorkerInfo], info: PoolInfo) -> MassSilence | None:
    """Return what most workers have in common that are silent, *ended* leases among them."""
    living = processes_of(worker for worker in workers if worker.state != "silent")
    # last heartbeat of each process, and until when the first of its generators has ids
    silent: dict[tuple[str, int], tuple[int, int]] = {}
    renewed: list[WorkerInfo | EndedLease] = [*workers, *filter(_may_live, ended)]
    for each in renewed:
        process, beat_ms = each.owner.process, each.renewed_ms
        if process not in living and beat_ms:
            before = silent.get(process, (beat_ms, each.lasts_until_ms))
            silent[process] = max(beat_ms, before[0]), min(each.lasts_until_ms, before[1])
    beats = sorted(silent.values())
    width_ms, first, most = _width_ms(info), 0, (0, 0)
    for last, (beat_ms, _) in enumerate(beats):
        while beats[first][0] < beat_ms - width_ms:
            first += 1
        most = max(most, (last + 1 - first, last))
    count, last = most
    fleet = count + len(living)
    if fleet < 3 or 2 * count <= fleet:
        return None
    until_ms = min(until for _, until in beats[last + 1 - count : last + 1])
    return MassSilence(count, fleet, beats[last][0], until_ms)


def _width_ms(info: PoolInfo) -> int:
    """Return how far the last heartbeats lie apart of workers that fell silent together: each had one in that time."""
    return 3 * info.heartbeat_ms // 2


def _may_live(ended: EndedLease) -> bool:
    return ended.kind == "expired" and not ended.acknowledged


def split(
    ended: Sequence[EndedLease], mass: MassSilence | None, info: PoolInfo
) -> tuple[tuple[EndedLease, ...], tuple[EndedLease, ...]]:
    """Return the *ended* leases of processes that died in the last hour, and of those that are silent."""
    since_ms = mass.since_ms - _width_ms(info) if mass else info.now_ms

    def is_silent(each: EndedLease) -> bool:
        # in a mass silence, even one without an outage lane is silent: it waits for Redis
        in_mass = _may_live(each) and mass is not None and since_ms <= (each.renewed_ms or 0) <= mass.since_ms
        return each.kind == "expired" and (each.lasts_until_ms > info.now_ms or in_mass)

    died = (each for each in ended if not is_silent(each) and each.at_ms > info.now_ms - DEATH_SHOWN_MS)
    return tuple(died), tuple(filter(is_silent, ended))


def lanes_until_ms(events: Iterable[Event], since_ms: int) -> int:
    """Return the end of the last outage lane of the processes that lost their leases since *since_ms*; 0: no lane."""
    lost = (event for event in events if event.kind == EventKind.LOST and event.at_ms >= since_ms)
    return max((event.owner.lane_until_ms for event in lost), default=0)


def _process(event: Event) -> tuple[object, ...]:
    """Return what is equal in two events of the same process on the same worker id."""
    return event.worker, *event.owner.name


def _ended_lease(event: Event) -> EndedLease:
    is_reclaimed, stats = event.kind == EventKind.DIED, event.stats or NO_STATS
    ends_ms = ids_until_ms(event.until_ms, (0, event.outage_until_ms), (0, event.owner.lane_until_ms))
    return EndedLease(
        at_ms=event.at_ms,
        worker=event.worker,
        owner=event.owner,
        kind="died" if is_reclaimed else "expired",
        renewed_ms=event.renewed_ms,
        claimed_ms=event.claimed_ms,
        until_ms=event.until_ms,
        ids_made=stats.ids_made,
        # reservations are on the clock of its host
        lasts_until_ms=0 if is_reclaimed else max(0, ends_ms - stats.clock_offset_ms),
        key=event.key,
    )


def processes_claiming(claims: Iterable[Claim], since_ms: int) -> int:
    """Return how many processes claimed worker ids since *since_ms*."""
    return len({parse_owner(owner).process for at_ms, owner in claims if at_ms > since_ms})


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
        if last_id and int(last_id.partition("-")[0]) > now_ms + DEATH_SHOWN_MS:
            # another stream, of a server whose clock is far behind
            last_id, events, claims = "", [], []
        new = self._read(since=last_id or str(first_ms))
        kinds = [field_of(entry, "event") for entry in new]
        chosen = parse_all(entry for entry, kind in zip(new, kinds, strict=True) if kind in KINDS)
        events = [each for each in (*events, *chosen) if each.order[0] >= first_ms]
        claimed = (entry for entry, kind in zip(new, kinds, strict=True) if kind == EventKind.CLAIMED)
        fresh = ((stored_int(field_of(entry, "at")) or 0, field_of(entry, "owner")) for entry in claimed)
        claims = [claim for claim in (*claims, *fresh) if claim[0] >= first_ms]
        self._known = (text_of(new[-1][0]) if new else last_id, events, claims)
        return events, claims


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Statement that somebody has seen who died or fell silent.

    Attributes:
        until_ms: all ended leases up to this time have been seen; ms since 1970 on the Redis clock.
    """

    until_ms: TimeMs


def acknowledged(ended: Iterable[EndedLease], seen: Acknowledgement | None) -> list[EndedLease]:
    """Return *ended* with those marked that *seen* covers."""
    until_ms = seen.until_ms if seen else -1
    return [replace(each, acknowledged=each.at_ms <= until_ms) for each in ended]


def acknowledgement_key(name: str) -> str:
    """Return the key of the acknowledgement of the pool *name*."""
    return f"{pool_keys(name)[0]}:acknowledged"
