"""PoolMonitor: the state and the history of a pool. It only reads.

Its readings survive an outage: the last snapshot is kept, and since when it is stale.

Leases that ended without a release are those that expired, and those of dead processes. A process that was paused, or
cut off from Redis, for longer than a ttl can return: it renews its lease after all, its renewal is refused, or it
claims another worker id. Its lease is then no longer among those that ended.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias

from snowredis.core.as_json import Shown, in_json
from snowredis.errors import ConfigError, LayoutMismatch, PoolNotFound, SnowredisError, StoreUnavailable
from snowredis.monitor import history
from snowredis.monitor.conditions import PlanAnswer, Status, answers, status_of, status_without
from snowredis.monitor.history import Entry, Event, Whois, field_of, find_makers, parse_all
from snowredis.monitor.lease import Lease, parse_owner
from snowredis.monitor.pool import SHOWN_MS, PoolInfo, Snapshot, stored_int
from snowredis.monitor.pool_reader import PoolReader, list_pools
from snowredis.process.clock import now_ms
from snowredis.servers.clients import OwnClient, close_client, open_client
from snowredis.servers.scripts import text_of
from snowredis.settings import SETTINGS, check, required_pool, url_to_read
from snowredis.snowflake.protocol.messages import LossReason
from snowredis.snowflake.protocol.record import EventKind

# pools that an error names
_MAX_NAMED = 10


@dataclass(frozen=True, slots=True)
class Reading:
    """State of a pool as one reading shows it, in the commands and over HTTP.

    Attributes:
        status: the verdict.
        snapshot: what was read last; None: the pool never could be read. If it cannot be read now, the states of its
            workers are unknown.
        error: why it could not be read now; None if it could.
    """

    status: Status
    snapshot: Annotated[Snapshot | None, Shown("hidden")]
    error: Annotated[SnowredisError | None, Shown("hidden")] = None

    @property
    @in_json
    def pool(self) -> PoolInfo | None:
        """Settings and counters; null: the pool never could be read."""
        return self.snapshot.info if self.snapshot else None

    @property
    @in_json
    def leases(self) -> tuple[Lease, ...]:
        """The valid ones by worker id, then those that ended without a release, as long as they may matter."""
        return self.snapshot.leases if self.snapshot else ()

    @property
    @in_json
    def answers(self) -> tuple[PlanAnswer, ...]:
        """Answers: may Redis be restarted now, may a deployment begin. None while that is unknown."""
        return answers(self.snapshot) if self.snapshot and not self.error else ()


class PoolMonitor:
    """A pool in a Redis, as others see it. Changes nothing.

    Args:
        url: a URL or a redis-py client, as connect() takes it.
        name: the pool's name; by default that of SNOWREDIS_POOL, else of the only pool there.

    Attributes:
        server, client: the client of the server, and the redis-py client in it.

    Every method blocks for a few round trips and raises StoreUnavailable and its subclasses.
    """

    def __init__(self, url: Any = None, name: str | None = None) -> None:
        if name is not None or SETTINGS["pool"].variable in os.environ:
            self.name = check("pool", required_pool(name, url))
        self.server: OwnClient = open_client(url_to_read(url))
        self.client: Any = self.server.client
        self._recent = RecentEvents(self._entries)
        # the last snapshot that was read, and when; since when reading fails
        self._last: Snapshot | None = None
        self._last_ms = self._failed_since_ms = 0
        # on the Redis clock: until when workers had no time to renew their leases since it was away
        self._settled_ms = 0

    @functools.cached_property
    def name(self) -> str:
        """Name of the pool; if none was given, that of the only pool there. Raises ConfigError."""
        names = self.pools()
        if len(names) == 1:
            return names[0]
        if not names:
            raise ConfigError(
                f"there is no pool at {self.where}. If one is new, create it once: snowredis pool create NAME"
            )
        raise ConfigError(
            f"no pool is named, and there are {len(names)} at {self.where}: {', '.join(sorted(names)[:_MAX_NAMED])}. "
            "Set SNOWREDIS_POOL, or name the pool."
        )

    # this host's time, ms since 1970
    _clock_ms = staticmethod(now_ms)

    def __repr__(self) -> str:
        return f"<snowredis.{type(self).__name__} {self.name!r} at {self.where}>"

    @property
    def where(self) -> str:
        """The address of the server, without password."""
        return self.server.where

    def workers(self, *, alive_only: bool = True) -> list[Lease]:
        """Return the leases, ordered by worker id. Raises PoolNotFound, LayoutMismatch."""
        return PoolReader(self.client, self.name).workers(alive_only=alive_only)

    def info(self) -> PoolInfo:
        """Return settings and counters. Raises PoolNotFound, LayoutMismatch."""
        return PoolReader(self.client, self.name).info()

    def snapshot(self) -> Snapshot:
        """Return the pool, its valid leases, and those that ended without a release, as of one moment.

        Blocks:
            once a lease has ended without a release, the first call also for 25 ms for each 1,000 events of the last
            hour, or of outage_reserve; later calls read only new ones.

        Raises:
            PoolNotFound, LayoutMismatch.
        """
        state = PoolReader(self.client, self.name).state()
        info = state.info
        # read after the state: what a script wrote meanwhile is among the events, and nothing is in neither. As long as
        # the pool has counted no end but releases, no older event says anything of ends; it may have lost its counts
        counted = state.ended or info.expired + info.died + info.returned + info.lost
        try:
            if counted or info.floor_ms > info.raised_ms:
                # the process of a lease that expired may make ids for a whole outage lane
                shown_ms = max(SHOWN_MS, info.config.outage_reserve_ms)
                recent, claims = self._recent.read(info.now_ms, info.now_ms - shown_ms)
            else:
                recent, claims = self.events(since=str(info.now_ms)), []
        except StoreUnavailable as error:
            # another program uses the key: claims and renewals do without events, too
            if error.code != "broken":
                raise
            return replace(state, has_history=False)
        return with_history(state, recent, claims)

    def read(self) -> Reading:
        """Read the pool; if that fails, return the last snapshot and the error. Blocks as snapshot(). One at a time."""
        try:
            snapshot = self.snapshot()
        except (PoolNotFound, LayoutMismatch, StoreUnavailable) as error:
            now_ms, last = self._clock_ms(), self._last
            since_ms = self._failed_since_ms = self._failed_since_ms or now_ms
            status = status_without(error, last, failed_since_ms=since_ms, now_ms=now_ms, last_read_ms=self._last_ms)
            if last is not None:
                # who was alive then may be dead now
                last = replace(last, living=tuple(each._replace(state="silent") for each in last.living))
            return Reading(status, last, error)
        info, self._last_ms = snapshot.info, self._clock_ms()
        if self._failed_since_ms:
            self._settled_ms = info.now_ms + 2 * info.heartbeat_ms
        self._failed_since_ms = 0
        self._last = replace(snapshot, is_back=info.now_ms < self._settled_ms)
        return Reading(status_of(self._last), self._last)

    # --- history ----------------------------------------------------------------------------------

    def events(self, *, newest: int | None = None, since: str | None = None) -> list[Event]:
        """Return the events of the pool, the oldest first. A pool that does not exist has none; old ones are trimmed.

        Args:
            newest: how many of the newest; None: all.
            since: only those after this one: the id of an event, or ms since 1970 on the Redis clock as text.

        Blocks:
            about 25 ms for each 1,000 events.
        """
        return parse_all(self._entries(newest=newest, since=since))

    def _entries(self, **which: Any) -> list[Entry]:
        return history.read_entries(self.client, self.name, **which)

    def whois(self, an_id: int) -> Whois:
        """Return which process of this pool made *an_id*, as far as it can be known.

        Blocks:
            about 0.8 s if the stream is full; Redis is busy for 20 ms of it.

        Raises:
            PoolNotFound, StoreUnavailable; InvalidId: a number that no id can be.
        """
        return self.whois_all([an_id])[0]

    def whois_all(self, ids: Sequence[int]) -> list[Whois]:
        """Return which process made each distinct id, in order. Blocks and raises as whois(), once for all ids."""
        return find_makers(PoolReader(self.client, self.name), ids)

    def pools(self) -> list[str]:
        """Return the names of all pools on the server. Scans all its keys."""
        return list_pools(self.client)

    def close(self) -> None:
        """Close the connections, except those of a client of the application's that is used as it is."""
        if self.server.owned:
            close_client(self.client)


# --- leases that ended without a release -----------------------------------------------------------------

# events without which with_history() would return another result
KINDS = frozenset({EventKind.EXPIRED, EventKind.DIED, EventKind.RETURNED, EventKind.LOST})
# time of a claim, and the text that names its process
Claim: TypeAlias = tuple[int, str]


def is_unused(lease: Lease) -> bool:
    """Return whether a lease was never renewed: the reply to its claim was lost, or Redis took no renewal."""
    return lease.state == "expired" and not lease.ids_made and 0 < lease.claimed_ms == lease.renewed_ms


def with_history(state: Snapshot, events: Sequence[Event], claims: Sequence[Claim]) -> Snapshot:
    """Return *state* with what *events* of the KINDS and *claims* say of leases that ended.

    Each is there once, without those of processes that returned, or that are known to live without the lease.
    """
    now_ms, is_known = state.info.now_ms, bool(state.ended or events)
    claimed_ms = {parse_owner(owner).generator: at_ms for at_ms, owner in sorted(claims)} if is_known else {}
    claimed_ms.pop("", None)
    ended = {(each.worker, each.end_ms): each for each in state.ended}
    returned: set[tuple[int, int]] = set()
    lost: dict[tuple[object, ...], Event] = {}
    # processes that were found to be dead after their leases had ended, by the time of the claim
    found: set[tuple[object, ...]] = set()
    for event in events:
        if event.kind == EventKind.RETURNED and event.ended_ms is not None:
            returned.add((event.worker, event.ended_ms))
        elif event.kind == EventKind.LOST and event.reason != LossReason.COPIED:
            # one of two copies of a process keeps the lease
            lost[event.process] = event
        elif event.kind == EventKind.EXPIRED:
            ended[event.worker, event.at_ms] = event.lease("expired")
        elif event.kind == EventKind.DIED:
            ended[event.worker, event.at_ms] = event.lease("died")
            found.add((*event.process, event.claimed_ms or 0))

    def has_left(each: Lease) -> bool:
        """Return whether the process claimed, or lost the lease, after its last heartbeat: its record only stays."""
        loss = lost.get((each.worker, *each.owner.process))
        seen_ms = max(loss.at_ms if loss else 0, claimed_ms.get(each.owner.generator, 0))
        return seen_ms > each.renewed_ms

    def is_over(each: Lease) -> bool:
        is_counted = each.state != "died" and (each.worker, *each.owner.process, each.claimed_ms) in found
        is_back = each.state != "died" and (each.worker, each.end_ms) in returned
        return not (is_counted or is_back or has_left(each))

    over = sorted(filter(is_over, ended.values()), key=lambda each: (-each.end_ms, each.worker))
    shown = [each for each in over if not is_unused(each) and max(each.end_ms + SHOWN_MS, each.ids_until_ms) > now_ms]
    living = tuple(each for each in state.living if not has_left(each))
    # they are counted to compare the dead with
    recent = {parse_owner(owner).process for at_ms, owner in claims if at_ms > now_ms - SHOWN_MS} if shown else ()
    # processes that are not shown may make ids in these lanes; those that claimed again show it there
    since_ms = min(state.info.raised_ms, now_ms - SHOWN_MS)
    losses = (event for event in events if event.kind == EventKind.LOST)
    waiting = (one for one in losses if one.at_ms >= max(since_ms, claimed_ms.get(one.owner.generator, 0)))
    lanes_ms = [each.outage_until_ms for each in over if is_unused(each)]
    lanes_ms += [max(one.outage_until_ms, one.owner.lane_until_ms) for one in waiting]
    lanes_until_ms = max(lanes_ms, default=0)
    return replace(state, living=living, ended=tuple(shown), claims=len(recent), lanes_until_ms=lanes_until_ms)


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
