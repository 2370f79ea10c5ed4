"""Fetch segments: from one server, or from the first of several independent ones that has some.

The requests of one generator to one server are named, numbered, and repeated until they are answered. Every request
tells which segment came last and how far the numbers are known to be handed out, so that the script notices what Redis
forgot. A request for a segment is never abandoned: it is repeated with its id, and gets the same segment.

One caller at a time: the prefetcher's thread. Blocks as the stores do.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from snowredis.errors import ConfigError, SnowredisError, StoreUnavailable, shown
from snowredis.numbers import tag_store
from snowredis.numbers.path import Segment
from snowredis.numbers.settings import share_text
from snowredis.numbers.tag_store import NumbersClosed, NumbersExhausted
from snowredis.process.clock import Clock
from snowredis.process.log import log
from snowredis.process.names import PROCESS, owner_text, random_name


class TagClient:
    """One generator, as one server knows it.

    Args:
        store: of the server.
        random_name: returns a random name, hex, that no other process has.
        owner: JSON that names this process, for people.
        seen: the highest end of a segment on this server that is known.

    Attributes:
        since, view: the first reply of an incarnation of the tag, and the newest one.
        away: it did not hand out when it was asked last: others are asked before it.
        silent: it did not even reply.
        is_asked: a report to it is under way in a thread of its own.
        contacted_s: when it replied last, or a report was sent to it.
    """

    def __init__(self, store: tag_store.TagStore, random_name: Callable[[], str], owner: str, seen: int = 0) -> None:
        self.store = store
        self._random_name, self._owner = random_name, owner
        self.seen = seen
        self.since: tag_store.Answer | None = None
        self.view: tag_store.Answer | None = None
        self.away = self.silent = self.is_asked = False
        self.contacted_s = 0.0
        self._begin()

    def _begin(self) -> None:
        """Take a name that was never used."""
        self._name, self._request_id = self._random_name(), ""
        self._received, self._incarnation = 0, ""
        self._segments: tuple[tuple[int, int], ...] = ()

    @property
    def rate(self) -> float | None:
        """Numbers a second that the tag hands out on this server; None if that is not known yet."""
        if self.since is None or self.view is None or self.view.redis_ms - self.since.redis_ms < LEAST_MS:
            return None
        return (self.view.next - self.since.next) / (self.view.redis_ms - self.since.redis_ms) * 1000

    def ask(self, wanted: int) -> tag_store.TakeReply:
        """Ask for a segment of *wanted* positions; or report, if that is 0. Blocks for a round trip.

        Raises StoreUnavailable, NumbersDiffer.
        """
        if wanted and not self._request_id:
            self._request_id = self._random_name()
        known = (self._name, self._received, self._request_id, self._segments, self._incarnation, self.seen)
        reply = self.store.take(tag_store.TakeRequest(*known, wanted, self._owner))
        self._learn(reply)
        return reply

    def _learn(self, reply: tag_store.TakeReply) -> None:
        self.seen = max(self.seen, reply.next)
        self.view = reply
        if self.since is None or self.since.incarnation != reply.incarnation:
            self.since = reply
        match reply:
            case tag_store.GrantedNumbers():
                self._received += 1
                newest = (reply.from_position, reply.until_position)
                self._segments = (*self._segments, newest)[-tag_store.MOST_SEGMENTS :]
                self._incarnation = reply.incarnation
                self._request_id = ""
            case tag_store.CopiedClient():
                self._begin()

    def failed(self, error: Exception) -> None:
        """Note that it handed out nothing."""
        self.away = True
        self.silent = self.silent or isinstance(error, StoreUnavailable)


# between two requests of a process to one server, whether it needs segments of it or not
REPORT_S = 10.0
# a rate is known after this time
LEAST_MS = 1_000


GROWTH = 10
SHRINK = 2


class Steps:
    """Sizes of the segments of one generator.

    Args:
        step: size of the first segment, and the least of any, 1 or more.
        max_step: the most.
        period_s: how long a segment shall last.

    Raises ConfigError for values that cannot work.
    """

    def __init__(self, step: int, max_step: int, period_s: float) -> None:
        if max_step < step:
            raise ConfigError(f"max_step={max_step} is less than step={step}. Raise max_step.")
        if not period_s > 0:
            raise ConfigError(f"period must be more than 0 s, not {shown(period_s)}")
        self.step, self.max_step, self.period_s = step, max_step, period_s
        self.size = step
        self._fetched_s: float | None = None

    def next_size(self, now_s: float) -> int:
        """Return how many numbers to ask for at *now_s*, a monotonic clock; the segment before is being used up."""
        if self._fetched_s is None:
            return self.size
        lasted_s = max(now_s - self._fetched_s, 1e-6)
        target = self.size * self.period_s / lasted_s
        size = min(max(target, self.size / SHRINK), self.size * GROWTH)
        return int(min(max(size, self.step), self.max_step))

    def fetched(self, size: int, now_s: float) -> None:
        """Note that a segment of *size* numbers came at *now_s*."""
        self.size = min(max(size, self.step), self.max_step)
        self._fetched_s = now_s

    def after_fork(self) -> None:
        """Begin again."""
        self.size, self._fetched_s = self.step, None


@dataclass(slots=True)
class SegmentCounts:
    """Counters of one generator; they only grow, but begin again in a forked child. Not exact if threads count at once.

    Attributes:
        segments: segments that were fetched.
        waits: times that a caller waited for a segment, the first one included.
        longest_wait_s: the longest of these waits, s.
        reports: requests that only told Redis which numbers are used.
        failures: requests that failed.
        closed: replies that the tag is closed.
        alarms: replies that numbers of this process may have been handed out twice.
        copied: replies that this process is a copy of another.
        dropped: about how many numbers were not used, because others may have them, or of a fork or suspend().
    """

    segments: int = 0
    waits: int = 0
    longest_wait_s: float = 0.0
    reports: int = 0
    failures: int = 0
    closed: int = 0
    alarms: int = 0
    copied: int = 0
    dropped: int = 0

    def clear(self) -> None:
        """Begin again at 0, in a forked child."""
        SegmentCounts.__init__(self)


@dataclass(frozen=True, slots=True)
class SegmentStatus:
    """State of one generator at a moment.

    Attributes:
        tag: its tag.
        made: about how many numbers this generator made in this process.
        left: about how many numbers it has at hand, prefetched ones included.
        step: how many numbers the newest segment has.
        tag_rate: numbers a second that Redis hands out to all processes; None if that is not known yet.
        next_number: the lowest number that Redis has not handed out; None if that is not known yet.
        remaining: how many numbers of the range are not handed out; None if that is not known.
        used_up_in_s: when the range is used up at that rate, s; None if it is not known, or never.
        counts: the counters.
    """

    tag: str
    made: int
    left: int
    step: int
    tag_rate: float | None
    next_number: int | None
    remaining: int | None
    used_up_in_s: float | None
    counts: SegmentCounts


class Fetcher:
    """The segments of one generator.

    Args:
        stores: the servers; those of several learn their shares at their first request.
        steps: sizes of the segments.
        counts: counters.
        label: name of this process, for people.
        drop: weak reference to what is called with a server's index and a number: numbers from there on may be in use
            elsewhere.
        start: runs a function in a thread of its own.
        clock, random_bytes: of the generator.
    """

    def __init__(
        self,
        stores: Sequence[tag_store.TagStore],
        steps: Steps,
        counts: SegmentCounts,
        *,
        label: str,
        drop: Callable[[], Callable[[int, int], None] | None],
        start: Callable[[Callable[[], None]], None],
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._stores, self._steps, self._counts = tuple(stores), steps, counts
        self._label, self._drop, self._start = label, drop, start
        self._clock, self._random_bytes = clock, random_bytes
        self._clients: tuple[TagClient, ...] = ()
        self._next = 0
        self.begin()

    def begin(self) -> None:
        """Take new names, since a clone may have the old ones. What was seen stays known."""
        seen = [client.seen for client in self._clients] or [0] * len(self._stores)
        new_name = functools.partial(random_name, self._random_bytes, self._clock)
        owner = owner_text(socket.gethostname(), os.getpid(), self._label or PROCESS.label)
        self._clients = tuple(
            TagClient(store, new_name, owner, known) for store, known in zip(self._stores, seen, strict=True)
        )
        for client in self._clients:
            client.contacted_s = self._clock.monotonic()
        self._next = random.Random(self._random_bytes(8)).randrange(len(self._stores))

    def successor(self) -> Fetcher:
        """Return a fetcher with names of its own, which knows what this one saw: for a forked child.

        A thread of the child may be using this one already, if two threads find at once that it is a child.
        """
        successor = copy.copy(self)
        successor.begin()
        return successor

    def status(self, *, made: int, left: int) -> SegmentStatus:
        """Return the status of a generator that made *made* numbers and has *left* ones at hand."""
        seen = [(client.store.config, client.view.next) for client in self._clients if client.view is not None]
        rates = [client.rate for client in self._clients if client.rate is not None]
        rate = sum(rates) if rates else None
        all_known = len(seen) == len(self._clients)
        remaining = sum(config.size - position for config, position in seen) if all_known else None
        return SegmentStatus(
            tag=self._stores[0].config.tag,
            made=made,
            left=left,
            step=self._steps.size,
            tag_rate=rate,
            next_number=min((config.number_at(position) for config, position in seen), default=None),
            remaining=remaining,
            used_up_in_s=remaining / rate if remaining is not None and rate else None,
            counts=self._counts,
        )

    def fetch(self, wanted: int) -> Segment:
        """Fetch a segment for callers that need *wanted* numbers at once; it may have fewer.

        Raises:
            NumbersClosed, NumbersExhausted, StoreUnavailable: no server hands out a segment.
            NumbersDiffer: a server has the tag with other constants.
            ConfigError: two servers have the same share, or one has that of another number of servers.
        """
        steps, count = self._steps, len(self._clients)
        size = max(steps.next_size(self._clock.monotonic()), min(wanted, steps.max_step))
        for client in self._clients:
            # before the first number, so that no two servers with one share hand out any
            if not client.silent:
                with contextlib.suppress(NumbersClosed, StoreUnavailable):
                    self._learn_share(client)
        errors: list[SnowredisError] = []
        from_next = ([*enumerate(self._clients)] * 2)[self._next :][:count]
        for index, client in sorted(from_next, key=lambda each: each[1].away):
            try:
                granted = self._ask(index, client, size)
            except (NumbersClosed, NumbersExhausted, StoreUnavailable) as error:
                client.failed(error)
                self._counts.failures += 1
                errors.append(error)
                continue
            client.away = client.silent = False
            self._next = (index + 1) % count
            numbers = client.store.config.numbers(granted.from_position, granted.until_position)
            steps.fetched(len(numbers), self._clock.monotonic())
            self._counts.segments += 1
            return Segment(index, numbers)
        # closed, else away, else exhausted
        raise min(errors, key=lambda error: (isinstance(error, NumbersExhausted), isinstance(error, StoreUnavailable)))

    def report(self) -> float:
        """Tell each server that was told nothing for REPORT_S which numbers are used.

        Also a server that hands out nothing, while others do: it may have forgotten what this process has of it. Does
        not raise. Returns the seconds until a report is due again.
        """
        for index, client in enumerate(self._clients):
            now_s = self._clock.monotonic()
            if now_s < client.contacted_s + REPORT_S:
                continue
            client.contacted_s = now_s
            self._counts.reports += 1
            if not client.silent or len(self._clients) == 1:
                self._report_to(index, client)
            elif not client.is_asked:
                # callers do not wait for a server that hangs while others reply
                client.is_asked = True
                try:
                    self._start(functools.partial(self._report_to, index, client))
                except RuntimeError:
                    # no more threads, or the interpreter is about to end
                    client.is_asked = False
        return max(0.0, min(client.contacted_s for client in self._clients) + REPORT_S - self._clock.monotonic())

    def _report_to(self, index: int, client: TagClient) -> None:
        try:
            self._learn_share(client)
            self._notice(index, client, client.ask(0))
            client.away = client.silent = False
        except Exception as error:  # noqa: BLE001 - of any kind: callers get it when they need a segment
            if isinstance(error, StoreUnavailable):
                client.failed(error)
            self._counts.failures += 1
            log.debug("the report of tag %s failed: %s", client.store.config.tag, error)
        finally:
            client.is_asked = False

    def close(self) -> None:
        """Close the connections."""
        for store in self._stores:
            store.close()

    def _ask(self, index: int, client: TagClient, size: int) -> tag_store.GrantedNumbers:
        if client.is_asked:
            raise StoreUnavailable(client.store.where, "it did not reply to the last report yet")
        self._learn_share(client)
        # once more under a new name if this is a copy
        for _ in range(2):
            reply = client.ask(size)
            client.contacted_s = self._clock.monotonic()
            self._notice(index, client, reply)
            match reply:
                case tag_store.GrantedNumbers():
                    return reply
                case tag_store.Exhausted():
                    raise NumbersExhausted(client.store.config.tag, client.store.config.maximum)
                case tag_store.Closed():
                    raise client.store.closed(reply)
        raise StoreUnavailable(client.store.where, "it calls every request of this process a copy")

    def _notice(self, index: int, client: TagClient, reply: tag_store.TakeReply) -> None:
        """Count a closed tag, and drop the numbers that others may have."""
        config, from_number = client.store.config, None
        if isinstance(reply, tag_store.Closed):
            self._counts.closed += 1
        if reply.alarm is not None:
            self._counts.alarms += 1
            numbers = config.numbers(*reply.alarm)
            from_number = numbers[0]
            log.error(
                "Redis at %s forgot segments of tag %s: numbers from %d to %d may have been handed out twice",
                *(client.store.where, config.tag, numbers[0], numbers[-1]),
            )
        if isinstance(reply, tag_store.CopiedClient):
            self._counts.copied += 1
            from_number = 0
            log.error(
                "this process is a copy of another one: it had the same segments of tag %s, which it dropped",
                config.tag,
            )
        drop = self._drop()
        if from_number is not None and drop is not None:
            drop(index, from_number)

    def _learn_share(self, client: TagClient) -> None:
        """Learn which share of the tag a server has, once. Raises as TagStore.learn_share(), ConfigError."""
        store = client.store
        if store.knows_share:
            return
        store.learn_share()
        for other in self._stores:
            if other is not store and other.knows_share and other.config.share == store.config.share:
                store.knows_share = False
                raise ConfigError(
                    f"the servers at {other.where} and {store.where} both have share "
                    f"{share_text(store.config.share)} of the tag {store.config.tag!r}, so they hand out the "
                    "same numbers. No number was made. Use another tag, created on each server with a share of its own."
                )
