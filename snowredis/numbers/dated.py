"""DatedGenerator: numbers that start again each hour, day, month or year, written with the date.

The kind "dated".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, NoReturn

from snowredis.core.description import IdDescription
from snowredis.errors import ConfigError, GeneratorClosed, StoreUnavailable
from snowredis.kinds.protocol import GeneratorBase, IdKind
from snowredis.numbers.dated_formats import DEFAULT_FORMATS, Calendar, NumberFormat, Period, PeriodName
from snowredis.numbers.dated_store import BLOCK_LIFE_MS, Action, DatedReply, Request
from snowredis.numbers.errors import PeriodClosed, PeriodExhausted
from snowredis.numbers.settings import DATED_SETTINGS, check_settings
from snowredis.process.fork import GUARD
from snowredis.process.threads import with_lock
from snowredis.settings import DEFAULT_URL, Durability
from snowredis.snowflake.batches import check_count

# replies that say "it is another period now" before this gives up: at a boundary there is one, after the first call two
_MAX_MOVES = 5
# of a reply that was lost, or a deposed master
_MAX_SETTLE_S = 60.0


class _Block(NamedTuple):
    """Numbers that Redis handed out to this process, of one period.

    Attributes:
        numbers: a range iterator.
        at_ms, at_s: when, on the wall clock as Redis shows it, and on the monotonic clock.
    """

    period: Period
    numbers: Any
    at_ms: int
    at_s: float

    def is_usable(self, now_ms: int, now_s: float) -> bool:
        """Return whether it has numbers, it is its period now, and Redis knows of them for certain."""
        fresh = abs(now_ms - self.at_ms) < BLOCK_LIFE_MS and now_s - self.at_s < BLOCK_LIFE_MS / 1000
        in_period = self.period.from_ms <= now_ms < self.period.until_ms
        return fresh and in_period and self.numbers.__length_hint__() > 0


class DatedGenerator(GeneratorBase[str]):
    """Makes texts such as "20261122-000001": a number that starts again each period, and the date of the period.

    A number of a period is handed out once, by Redis: whatever the clocks do, a text never comes twice. A text belongs
    to the period in which Redis handed it out, by the clock of Redis. Numbers are consecutive, but for those that a
    process had when it ended, of a transaction that was rolled back, or whose reply was lost; for numbers without gaps
    see TransactionNumbers.

    Args:
        tag: name of the numbers: processes that must not repeat each other's use the same; letters, digits, _ . -
        url: the Redis, as snowredis.connect() takes it, but one server.
        period: numbers start again each "hour", "day", "month" or "year".
        zone: name of the time zone of the period. An hour that comes twice is one period.
        format: text of a number, as for str.format(), with the fields date (the beginning of the period), number and
            tag. It has to show the whole period.
        block: how many numbers a process gets from Redis at once. Those that it has not used after 5 s, or at the end
            of the period, are gaps.
        maximum: the highest number of a period; default: the highest that has as many digits as the format says.
        durability: "detect": Redis may lose writes in a restart or failover, and numbers then stop until the next
            period, or until open(); "assured": it never does.
        redis_skew: how far the clocks of two Redis servers may differ, s.
        failover_slack: how long a deposed master may go on answering, s; default: 0, under Sentinel and Cluster 15.
        min_replicas: how many replicas must have each number before it is used, or "all".
        bound: returns the highest number in use of the period that begins at its argument, 0 for none, for example from
            the table: it is called instead of raising PeriodClosed. Numbers that are in transactions which are not
            committed yet would be repeated, so the column should be UNIQUE.

    Raises:
        ConfigError: a setting that cannot work. Nothing connects yet.
    """

    __slots__ = (
        "_block",
        "_block_size",
        "_bound",
        "_calendar",
        "_closed",
        "_format",
        "_lock",
        "_offset_ms",
        "_seen",
        "_store",
        "_wall_ms",
        "tag",
    )

    def __init__(
        self,
        tag: str,
        url: Any = DEFAULT_URL,
        *,
        period: PeriodName = "day",
        zone: str = "UTC",
        format: str | None = None,  # noqa: A002 - it is one
        block: int = 1,
        maximum: int | None = None,
        durability: Durability = "detect",
        redis_skew: float = 2.5,
        failover_slack: float | None = None,
        min_replicas: int | Literal["all"] = 0,
        bound: Callable[[datetime], int] | None = None,
    ) -> None:
        check_settings(locals())
        self.tag, self._block_size, self._bound = tag, block, bound
        self._calendar = Calendar(period, zone)
        self._format = NumberFormat(format or DEFAULT_FORMATS[period], period, tag, maximum)
        # here: redis-py takes 0.15 s, and numbers of a transaction do without it
        from snowredis.numbers.dated_store import DatedStore

        self._store = DatedStore(
            url,
            tag,
            f"period={period} zone={zone}",
            assured=durability == "assured",
            skew_ms=round(redis_skew * 1000),
            slack_ms=None if failover_slack is None else round(failover_slack * 1000),
            maximum=self._format.maximum,
            format=format or DEFAULT_FORMATS[period],
            min_replicas=min_replicas,
        )
        self._wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
        self._offset_ms = 0
        self._block: _Block | None = None
        # label -> the next number after the highest that this process saw; of the newest periods only
        self._seen: dict[str, int] = {}
        self._closed = False
        self._lock = threading.RLock()
        GUARD.reset_in_child(self)

    @property
    def description(self) -> IdDescription:
        return describe(self._format)

    @property
    def closed(self) -> bool:
        return self._closed

    def next_id(self) -> str:
        """Make one text. Thread-safe.

        Raises:
            PeriodClosed: Redis may have forgotten numbers of this period, or does not know the tag.
            PeriodExhausted: the period's highest number was handed out.
            TagDiffers: the tag was made with another period or zone.
            StoreUnavailable: Redis does not answer, or its clock jumps.
            GeneratorClosed: after close().

        Blocks:
            for a round trip to Redis, unless a number is left of the process' block.
        """
        return self.next_ids(1)[0]

    def next_ids(self, count: int) -> list[str]:
        """Make *count* texts at once, 0 to 1,000,000, with one round trip for each block that it takes.

        They are of one period, or of two if it ends meanwhile. Raises and blocks as next_id(); it returns nothing then.
        """
        count = check_count(count)
        return GUARD.in_one_process(lambda: self._made(count))

    @with_lock
    def create(self) -> bool:
        """Say that the tag is new, as the person who introduces it. Returns False if it is known already.

        Blocks for a round trip. Raises StoreUnavailable, TagDiffers.
        """
        return self._ask("create").status == "created"

    @with_lock
    def open(self, next_number: int) -> int:
        """Let the current period go on from *next_number*: somebody knows that no number from there on was used.

        Returns:
            The next number: higher than *next_number* if higher ones were handed out.

        Blocks until 6 s + failover_slack after the loss was noticed. Raises StoreUnavailable, TagDiffers.
        """
        deadline = time.monotonic() + _MAX_SETTLE_S
        while True:
            reply = self._ask("open", next_number)
            if reply.status == "opened":
                return int(reply.values[0])
            if reply.status != "settling" or time.monotonic() > deadline:
                raise StoreUnavailable(
                    self._store.where, "a deposed master may still hand out numbers. Try again"
                )
            time.sleep(min(0.5, int(reply.values[0]) / 1000))

    def close(self) -> None:
        """Stop making numbers; those that are left of the block are never used. Idempotent, never raises."""
        GUARD.check()
        self._close()

    @with_lock
    def _close(self) -> None:
        if not self._closed:
            self._closed, self._block = True, None
            self._store.close()

    @with_lock
    def _made(self, count: int) -> list[str]:
        made: list[str] = []
        while len(made) < count:
            block = self._current(count - len(made))
            for _, number in zip(range(count - len(made)), block.numbers, strict=False):
                made.append(self._format.write(block.period.date, number))
        return made

    def _current(self, wanted: int) -> _Block:
        """Return a block of the current period that has a number."""
        block, at_s = self._block, time.monotonic()
        if block is not None and block.is_usable(self._wall_ms() + self._offset_ms, at_s):
            return block
        amount = max(wanted, self._block_size)
        reply, period = self._take(amount)
        first = int(reply.values[0])
        until = min(first + amount, self._format.maximum + 1)
        self._seen = {period.label: until}
        self._block = block = _Block(period, iter(range(first, until)), reply.now_ms, at_s)
        return block

    def _take(self, amount: int) -> tuple[DatedReply, Period]:
        deadline = time.monotonic() + _MAX_SETTLE_S
        while True:
            reply, period = self._ask_here("take", amount)
            match reply.status:
                case "granted":
                    return reply, period
                case "exhausted":
                    raise PeriodExhausted(self.tag, period.label, self._format.maximum)
                case "past":
                    raise StoreUnavailable(
                        self._store.where, f"its clock went back to {period.label}, which it has forgotten"
                    )
            reason, closed_until, next_number, settle_ms = reply.values
            if self._bound is None or time.monotonic() > deadline:
                wait_ms = self._next_open_ms(period, int(closed_until)) - reply.now_ms
                raise PeriodClosed(self.tag, period.label, reason, wait_ms, int(next_number))
            if int(settle_ms) > 0:
                # before the bound is read: processes still use numbers that they had
                time.sleep(min(0.5, int(settle_ms) / 1000))
                continue
            used = self._bound(period.date)
            if isinstance(used, bool) or not isinstance(used, int) or used < 0:
                raise ConfigError(f"bound must return the highest number in use, 0 for none, not {used!r}")
            # not repeated: after another loss, the bound is read again
            self._ask("open", max(used + 1, int(next_number)))

    def _next_open_ms(self, period: Period, closed_until_ms: int) -> int:
        """Return when the first period begins that is open by itself."""
        while period.first_ms < closed_until_ms:
            period = self._calendar.at(period.until_ms)
        return period.first_ms

    def _ask(self, action: Action, amount: int = 1) -> DatedReply:
        return self._ask_here(action, amount)[0]

    def _ask_here(self, action: Action, amount: int) -> tuple[DatedReply, Period]:
        """Run the script for the period that it is now, by the clock of Redis."""
        for _ in range(_MAX_MOVES):
            if self._closed:
                raise GeneratorClosed(self.tag, "dated")
            period = self._calendar.at(self._wall_ms() + self._offset_ms)
            reply = self._store.ask(Request(action, period, amount, self._seen.get(period.label, 1)))
            self._offset_ms = reply.now_ms - self._wall_ms()
            if reply.status != "elsewhen":
                return reply, period
        raise StoreUnavailable(self._store.where, "its clock shows another period at each request")

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
        self._block = None
        self._store.after_fork()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a DatedGenerator cannot be pickled or copied: two copies would make the same numbers. Make one in each "
            "process."
        )


def describe(number_format: NumberFormat) -> IdDescription:
    """Return the description of texts of this format."""
    return IdDescription(
        kind="dated",
        type=str,
        bits=None,
        text_length=number_format.text_length,
        sortable=number_format.sortable,
        guessable=True,
        leaks=("time", "volume"),
        needs=("redis",),
    )


def _describe(settings: Mapping[str, Any]) -> IdDescription:
    check_settings(settings)
    period: PeriodName = settings.get("period", "day")
    text = settings.get("format") or DEFAULT_FORMATS[period]
    return describe(NumberFormat(text, period, settings["tag"], settings.get("maximum")))


def _open(settings: Mapping[str, Any]) -> DatedGenerator:
    check_settings(settings)
    return DatedGenerator(**settings)


DATED = IdKind(
    name="dated",
    summary="texts with the date and a number that starts again each hour, day, month or year",
    settings=DATED_SETTINGS,
    describe=_describe,
    open=_open,
)
