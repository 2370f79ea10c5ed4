"""Fetch segments: from one server, or from the first of several independent ones that has some.

The requests of one generator to one server are named, numbered, and repeated until they are answered. Every request
tells which segment came last and how far the numbers are known to be handed out, so that the script notices what Redis
forgot. A request for a segment is never abandoned: it is repeated with its id, and gets the same segment.

One caller at a time: the prefetcher's thread. Blocks as the stores do.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from snowredis.core.whole import as_int
from snowredis.errors import ConfigError, SnowredisError, StoreUnavailable
from snowredis.numbers.counts import SegmentCounts, SegmentStatus, Steps
from snowredis.numbers.errors import NumbersClosed, NumbersExhausted
from snowredis.numbers.protocol import (
    MAX_NUMBER,
    MOST_SEGMENTS,
    Closed,
    ClosedReason,
    Copied,
    Exhausted,
    Granted,
    Opened,
    OpenRequest,
    TagStore,
    TakeReply,
    TakeRequest,
)
from snowredis.process.clock import Clock


class TagView(NamedTuple):
    """Progress of the whole tag in a reply: its next position at a time of the Redis clock, ms since 1970."""

    redis_ms: int
    incarnation: str
    next: int


class TagClient:
    """One generator, as one server knows it.

    Args:
        store: of the server.
        random_name: returns a random name, hex, that no other process has.
        owner: returns JSON that names this process, for people.
        seen: the highest end of a segment on this server that is known.
    """

    def __init__(
        self, store: TagStore, random_name: Callable[[], str], owner: Callable[[], str], seen: int = 0
    ) -> None:
        self.store = store
        self._random_name, self._owner = random_name, owner
        self.seen = seen
        # the first reply of an incarnation, and the newest one
        self.since: TagView | None = None
        self.view: TagView | None = None
        self._begin()

    def _begin(self) -> None:
        """Take a name that was never used."""
        self._name, self._request_id = self._random_name(), ""
        self._received, self._incarnation = 0, ""
        self._segments: tuple[tuple[int, int], ...] = ()

    def ask(self, wanted: int) -> TakeReply:
        """Ask for a segment of *wanted* positions; or report, if that is 0. Blocks for a round trip.

        Raises StoreUnavailable, NumbersDiffer.
        """
        if wanted and not self._request_id:
            self._request_id = self._random_name()
        request = TakeRequest(
            self._name,
            self._received,
            self._request_id,
            self._segments,
            self._incarnation,
            self.seen,
            wanted,
            self._owner(),
        )
        reply = self.store.take(request)
        self._learn(reply)
        return reply

    def _learn(self, reply: TakeReply) -> None:
        self.seen = max(self.seen, reply.next)
        self.view = TagView(reply.redis_ms, reply.incarnation, reply.next)
        if self.since is None or self.since.incarnation != reply.incarnation:
            self.since = self.view
        match reply:
            case Granted():
                self._received += 1
                newest = (reply.from_position, reply.until_position)
                self._segments = (*self._segments, newest)[-MOST_SEGMENTS:]
                self._incarnation = reply.incarnation
                self._request_id = ""
            case Copied():
                self._begin()


def random_name(random_bytes: Callable[[int], bytes], clock: Clock) -> str:
    """Return 128 random bits, hex. The clocks are mixed in: two clones of a machine may share their random state."""
    seed = f"{random_bytes(16).hex()} {clock.time_ns()} {clock.monotonic()!r}"
    return hashlib.sha256(seed.encode()).hexdigest()[:32]


# a rate is known after this time
LEAST_MS = 1_000


def status_of(
    views: Sequence[tuple[TagStore, TagView | None, TagView | None]],
    counts: SegmentCounts,
    *,
    made: int,
    left: int,
    step: int,
) -> SegmentStatus:
    """Return the status of a generator from what its servers' first and newest replies showed."""
    rates, nexts, remaining = [], [], []
    for store, since, view in views:
        if since is None or view is None:
            continue
        if view.redis_ms - since.redis_ms >= LEAST_MS:
            rates.append((view.next - since.next) / (view.redis_ms - since.redis_ms) * 1000)
        nexts.append(store.config.number_at(view.next))
        remaining.append(store.config.size - view.next)
    rate = sum(rates) if rates else None
    known = sum(remaining) if len(remaining) == len(views) else None
    return SegmentStatus(
        tag=views[0][0].config.tag,
        made=made,
        left=left,
        step=step,
        tag_rate=rate,
        next_number=min(nexts, default=None),
        remaining=known,
        used_up_in_s=known / rate if known is not None and rate else None,
        counts=counts,
    )


log = logging.getLogger("snowredis")

# the next segment is fetched when this part of one is used up: a process that needs few numbers fetches one only
HEAD = 10
# between two requests of a process to one server, whether it needs segments of it or not
REPORT_S = 10.0
# how long a tag has been closed before a program opens it: every living process has reported twice
SETTLE_MS = 25_000


class Segment(NamedTuple):
    """Positions [from_position, until_position) of one server, which only this process may use.

    Attributes:
        server: index of the server.
        first: number at the first position.
        stride: distance of its numbers.
    """

    server: int
    from_position: int
    until_position: int
    first: int
    stride: int


class Bound(NamedTuple):
    """Ways in which a program opens a closed tag.

    Attributes:
        highest: returns a number such that no higher one is in use or at hand in a process that does not report, or
            None if no number is in use; may raise anything.
        margin: how many numbers beyond that are left out.
    """

    highest: Callable[[], int | None]
    margin: int


class Fetcher:
    """The segments of one generator.

    Args:
        stores: the servers, in the same order in every process.
        steps: sizes of the segments.
        counts: counters.
        now_s: monotonic clock.
        random_name, owner: as TagClient's.
        drop: called with a server's index and a position: numbers from there on may be in use elsewhere.
        bound: opens a closed tag; None: a person does.
        choose: returns a random number below its argument.
        start: runs a function in a thread of its own.
    """

    def __init__(
        self,
        stores: Sequence[TagStore],
        steps: Steps,
        counts: SegmentCounts,
        *,
        now_s: Callable[[], float],
        random_name: Callable[[], str],
        owner: Callable[[], str],
        drop: Callable[[int, int], None],
        bound: Bound | None,
        choose: Callable[[int], int],
        start: Callable[[Callable[[], None]], None],
    ) -> None:
        self._stores, self._start = tuple(stores), start
        self._steps, self._counts, self._now_s, self._drop, self._bound = steps, counts, now_s, drop, bound
        self._random_name, self._owner, self._choose = random_name, owner, choose
        # servers that did not hand out when they were asked last: others are asked before them
        self._away: set[int] = set()
        # those of them that did not reply, and those that a report is under way to: in a thread of its own
        self._silent: set[int] = set()
        self._asked: set[int] = set()
        self._clients: tuple[TagClient, ...] = ()
        # when each server replied last, or a report was sent to it
        self._told_at_s = [now_s()] * len(self._stores)
        self._next = 0
        self.begin()

    def begin(self) -> None:
        """Take new names, since a clone may have the old ones. What was seen stays known."""
        seen = [client.seen for client in self._clients] or [0] * len(self._stores)
        self._clients = tuple(
            TagClient(store, self._random_name, self._owner, known)
            for store, known in zip(self._stores, seen, strict=True)
        )
        self._next = self._choose(len(self._stores))

    def successor(self) -> Fetcher:
        """Return a fetcher with names of its own, which knows what this one saw: for a forked child.

        A thread of the child may be using this one already, if two threads find at once that it is a child.
        """
        successor = copy.copy(self)
        successor._away, successor._silent, successor._asked = set(), set(), set()
        successor._told_at_s = [self._now_s()] * len(self._stores)
        successor.begin()
        return successor

    @property
    def views(self) -> Sequence[tuple[TagStore, TagView | None, TagView | None]]:
        """For each server: its store, what the first reply of its incarnation showed, and what the newest one did."""
        return [(client.store, client.since, client.view) for client in self._clients]

    def fetch(self, wanted: int) -> Segment:
        """Fetch a segment for callers that need *wanted* numbers at once; it may have fewer.

        Raises:
            NumbersClosed, NumbersExhausted, StoreUnavailable: no server hands out a segment.
            NumbersDiffer: a server has the tag with other constants.
            Anything that the bound raises.
        """
        steps = self._steps
        size = max(steps.next_size(self._now_s()), min(wanted, steps.max_step))
        errors: list[SnowredisError] = []
        clients = self._clients
        for index in self._order():
            try:
                granted = self._ask(index, clients[index], size)
            except (NumbersClosed, NumbersExhausted, StoreUnavailable) as error:
                self._away.add(index)
                if isinstance(error, StoreUnavailable):
                    self._silent.add(index)
                self._counts.failures += 1
                errors.append(error)
                continue
            self._away.discard(index)
            self._silent.discard(index)
            self._next = (index + 1) % len(clients)
            steps.fetched(granted.until_position - granted.from_position, self._now_s())
            self._counts.segments += 1
            config = self._stores[index].config
            first = config.number_at(granted.from_position)
            return Segment(index, granted.from_position, granted.until_position, first, config.share[1])
        rank = (NumbersClosed, StoreUnavailable, NumbersExhausted)
        raise min(errors, key=lambda error: next(i for i, kind in enumerate(rank) if isinstance(error, kind)))

    def report(self) -> float:
        """Tell each server that was told nothing for REPORT_S which numbers are used; open a tag if a program may.

        Also a server that hands out nothing, while others do: it may have forgotten what this process has of it. Does
        not raise. Returns the seconds until a report is due again.
        """
        for index, client in enumerate(self._clients):
            now_s = self._now_s()
            if now_s < self._told_at_s[index] + REPORT_S:
                continue
            self._told_at_s[index] = now_s
            self._counts.reports += 1
            if index not in self._silent or len(self._clients) == 1:
                self._report_to(index, client)
            elif index not in self._asked:
                # callers do not wait for a server that hangs while others reply
                self._asked.add(index)
                try:
                    self._start(functools.partial(self._report_aside, index, client))
                except RuntimeError:
                    # no more threads, or the interpreter is about to end
                    self._asked.discard(index)
        return max(0.0, min(self._told_at_s) + REPORT_S - self._now_s())

    def _report_aside(self, index: int, client: TagClient) -> None:
        try:
            self._report_to(index, client)
        finally:
            self._asked.discard(index)

    def _report_to(self, index: int, client: TagClient) -> None:
        try:
            reply = client.ask(0)
            self._notice(index, reply)
            if isinstance(reply, Closed):
                self._open(index, reply)
            self._away.discard(index)
            self._silent.discard(index)
        except Exception as error:  # noqa: BLE001 - of any kind: callers get it when they need a segment
            if isinstance(error, StoreUnavailable):
                self._away.add(index)
                self._silent.add(index)
            self._counts.failures += 1
            log.debug("the report of tag %s failed: %s", client.store.config.tag, error)

    def close(self) -> None:
        """Close the connections."""
        for store in self._stores:
            store.close()

    def _order(self) -> list[int]:
        count = len(self._stores)
        return sorted(((self._next + i) % count for i in range(count)), key=self._away.__contains__)

    def _ask(self, index: int, client: TagClient, size: int) -> Granted:
        config = client.store.config
        if index in self._asked:
            raise StoreUnavailable(client.store.where, "it did not reply to the last report yet")
        # once more under a new name if this is a copy, and once more after the tag was opened
        for _ in range(3):
            reply = client.ask(size)
            self._told_at_s[index] = self._now_s()
            self._notice(index, reply)
            match reply:
                case Granted():
                    return reply
                case Exhausted():
                    raise NumbersExhausted(config.tag, config.maximum)
                case Closed():
                    self._counts.closed += 1
                    if not self._open(index, reply):
                        raise NumbersClosed(config.tag, reply.reason, config.number_at(reply.next))
        raise StoreUnavailable(client.store.where, "it calls every request of this process a copy")

    def _notice(self, index: int, reply: TakeReply) -> None:
        """Drop the numbers that others may have."""
        tag = self._stores[index].config.tag
        if reply.alarm is not None:
            self._counts.alarms += 1
            config = self._stores[index].config
            low, high = reply.alarm
            log.error(
                "Redis at %s forgot segments of tag %s: numbers from %d to %d may have been handed out twice",
                self._stores[index].where,
                tag,
                config.number_at(low),
                config.number_at(high - 1),
            )
            self._drop(index, low)
        if isinstance(reply, Copied):
            self._counts.copied += 1
            log.error(
                "this process is a copy of another one: it had the same segments of tag %s, which it dropped",
                tag,
            )
            self._drop(index, 0)

    def _open(self, index: int, closed: Closed) -> bool:
        """Open the tag if there is a bound, and the tag has been closed for long enough."""
        # what a person closed, only a person opens
        if self._bound is None or closed.reason is ClosedReason.MOVED:
            return False
        if closed.redis_ms < closed.closed_ms + SETTLE_MS:
            return False
        store = self._stores[index]
        highest = self._bound.highest()
        try:
            number = store.config.start - 1 if highest is None else as_int(highest)
        except TypeError:
            raise ConfigError(f"bound must return a whole number or None, not {highest!r}") from None
        position = store.config.position_from(min(number + 1 + self._bound.margin, MAX_NUMBER))
        opened = store.open(OpenRequest("bound", position, SETTLE_MS))
        if isinstance(opened, Opened) and opened.changed:
            log.warning(
                "the tag %s was opened by its bound: numbers go on from %d",
                store.config.tag,
                store.config.number_at(opened.next),
            )
        return isinstance(opened, Opened)
