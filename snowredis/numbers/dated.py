"""DatedGenerator: numbers that start again each hour, day, month or year, written with the date.

The kind "dated".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn

from snowredis.core.description import IdDescription
from snowredis.core.values import check_count
from snowredis.errors import ConfigError, GeneratorClosed, StoreUnavailable
from snowredis.kinds.base import GeneratorBase, IdKind
from snowredis.numbers import protocol
from snowredis.numbers.formats import Calendar, NumberFormat, Period, PeriodName
from snowredis.numbers.protocol import NumbersClosed, NumbersExhausted, OpenRequest, TakeRequest
from snowredis.numbers.settings import DATED_SETTINGS, TAG_CONSTANTS, as_options
from snowredis.numbers.stores import REPLY_LIFE_MS, SETTLE_MS, open_tag_store
from snowredis.process.clock import now_ms
from snowredis.process.fork import GUARD
from snowredis.process.threads import with_lock
from snowredis.settings import check_settings, required_url

# replies that say "it is another period now" before this gives up: at a boundary there is one, after the first call two
_MAX_MOVES = 5


class DatedGenerator(GeneratorBase[str]):
    """Makes texts such as "20261122-000001": a number that starts again each period, and the date of the period.

    A number of a period is handed out once, by Redis: whatever the clocks do, a text never comes twice. A text belongs
    to the period in which Redis handed it out, by the clock of Redis. Numbers are consecutive, but for those of a
    transaction that was rolled back, and those whose reply was lost; for numbers without gaps see TransactionNumbers.

    Args:
        tag: name of the numbers: processes that must not repeat each other's use the same; letters, digits, _ . -
        url: the Redis, as snowredis.connect() takes it, but one server.
        period: numbers start again each "hour", "day", "month" or "year", or never: "ever".
        zone: name of the time zone of the period. An hour that comes twice is one period.
        format: text of a number, as for str.format(), with the fields date and end (the beginning and the last day of
            the period), number and tag. It has to show the whole period. The tag keeps the place of the number in it.
        maximum: the highest number of a period; default: the highest that has as many digits as the format says.
        year_begins: the month with which a year begins, such as 4.
        min_replicas: how many replicas must have each number before it is used, or "all".

    Raises:
        ConfigError: a setting that cannot work. Nothing connects yet.
    """

    def __init__(
        self,
        tag: str,
        url: Any = None,
        *,
        period: PeriodName = "day",
        zone: str = "UTC",
        year_begins: int = 1,
        format: str | None = None,  # noqa: A002 - it is one
        maximum: int | None = None,
        min_replicas: int | Literal["all"] = 0,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in DATED_SETTINGS}
        check_settings(given, DATED_SETTINGS, " of dated numbers")
        self.tag = tag
        self._calendar = Calendar(period, zone, year_begins)
        self._format = NumberFormat(format, period, tag, maximum)
        before, after = self._format.place
        names: dict[str, Any] = {"period": period, "zone": zone, "place": f"{before}/{after}"}
        names |= {"year_begins": year_begins} if year_begins != 1 else {}
        self._store = open_tag_store(
            required_url(url),
            tag,
            min_replicas=min_replicas,
            periods=" ".join(f"{name}={value}" for name, value in names.items()),
            format=self._format.text,
            settle_ms=SETTLE_MS,
        )
        constants = ("period", "zone", "year_begins", "format")
        usual = {name: DATED_SETTINGS[name].default for name in constants} | {"period": None}
        self._options = as_options({name: given[name] for name in constants if given[name] != usual[name]})
        self._wall_ms: Callable[[], int] = now_ms
        self._offset_ms = 0
        # text around the numbers of the newest period -> the next one after the highest that this process saw
        self._seen: dict[str, int] = {}
        self._closed = False
        # guards _seen; never held while Redis is asked
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
            NumbersClosed: Redis may have forgotten numbers of this period, or does not know the tag.
            NumbersExhausted: the period's highest number was handed out.
            ConfigError: the tag was created with another period or zone.
            StoreUnavailable: Redis does not reply, or its clock jumps.
            GeneratorClosed: after close().

        Blocks:
            for a round trip to Redis.
        """
        return self.next_ids(1)[0]

    def next_ids(self, count: int) -> list[str]:
        """Make *count* texts of one period, 0 to 1,000,000. Raises and blocks as next_id(), and uses no number then."""
        count = check_count(count)
        return GUARD.in_one_process(lambda: self._make(count) if count else [])

    def create(
        self, *, durability: Literal["detect", "assured"] | None = None, failover_slack: float | None = None
    ) -> bool:
        """Say that the tag is new, as the person who introduces it. Returns False if it is known already.

        Args:
            durability: "detect": Redis may lose writes in a restart or failover, and numbers then stop until the next
                period, or until open(); "assured": it never does, which is the default of embedded://.
            failover_slack: how long a deposed master may go on answering, s; default: 0, under Sentinel and Cluster 15.

        Blocks for a round trip. Raises StoreUnavailable, ConfigError.
        """
        durability = TAG_CONSTANTS["durability"].check(durability or self._store.durability)
        if failover_slack is not None:
            self._store.slack_ms = round(TAG_CONSTANTS["failover_slack"].check(failover_slack) * 1000)
        return isinstance(self._store.send(OpenRequest("create", durability=durability)), protocol.Opened)

    def open(self, next_number: int, period: str | None = None) -> int:
        """Let a period go on from *next_number*: somebody knows that no number from there on was used.

        Args:
            next_number: from 1 to the maximum.
            period: label of the period of which that is known, such as the ``period`` of NumbersClosed; None: the
                current one. If it is over when Redis is asked, nothing is opened.

        Returns:
            The next number: higher than *next_number* if higher ones were handed out.

        Raises:
            ConfigError: *next_number* is out of range, or the period is over.
            StoreUnavailable, ConfigError: as next_id().

        Blocks until 6 s + failover_slack after the loss was noticed.
        """
        if not 1 <= next_number <= self._format.maximum:
            raise ConfigError(
                f"a period can be opened from 1 to {self._format.maximum}, its highest number, not from {next_number}. "
                "Nothing was opened."
            )
        GUARD.check()
        label = period
        while True:
            reply, at = self._ask_now(
                lambda period: OpenRequest("open", period, self._format.around(period), next_number), label
            )
            if isinstance(reply, protocol.Opened):
                return reply.next
            if not isinstance(reply, protocol.SettlingTag):
                raise self._store.unknown([type(reply).__name__])
            # the person spoke of this period, which may be over after the wait
            label = at.label
            time.sleep(min(0.5, reply.wait_ms / 1000))

    def close(self) -> None:
        """Stop making numbers. Idempotent, never raises."""
        GUARD.check()
        if not self._closed:
            self._closed = True
            self._store.close()

    def _make(self, count: int) -> list[str]:
        while True:
            asked_s = time.monotonic()
            granted, period = self._take(count)
            self._note_seen(self._format.around(period), granted.next)
            # if this process was stopped for longer, a person may have handed out its numbers again
            passed_ms = abs(self._redis_ms() - granted.redis_ms)
            if max(passed_ms, 1000 * (time.monotonic() - asked_s)) < REPLY_LIFE_MS:
                return [self._format.write(period, number) for number in granted.numbers]

    @with_lock
    def _note_seen(self, around: str, following: int) -> None:
        self._seen = {around: max(self._seen.get(around, 0), following)}

    def _redis_ms(self) -> int:
        """Return the time of Redis' clock, as the last reply showed it."""
        return self._wall_ms() + self._offset_ms

    def _take(self, count: int) -> tuple[protocol.GrantedNumbers, Period]:
        def request(period: Period) -> TakeRequest:
            around = self._format.around(period)
            return TakeRequest(period, around, self._seen.get(around, 0), count, count, self._format.maximum)

        reply, period = self._ask_now(request)
        match reply:
            case protocol.GrantedNumbers():
                return reply, period
            case protocol.Exhausted():
                raise NumbersExhausted(self.tag, self._format.maximum, period.label, reply.left)
            case protocol.Shut():
                wait_ms = self._calendar.first_from(period, reply.since_ms) - reply.redis_ms if period.label else 0
                raise NumbersClosed(self.tag, reply.reason, reply.next, period.label, wait_ms, self._options)
        raise self._store.unknown([type(reply).__name__])

    def _ask_now(
        self, request: Callable[[Period], TakeRequest | OpenRequest], label: str | None = None
    ) -> tuple[protocol.TakeReply | protocol.OpenReply, Period]:
        """Run the script for the period that it is now, by the clock of Redis.

        Raises ConfigError if that is not the period *label*, if one is given.
        """
        for _ in range(_MAX_MOVES):
            if self._closed:
                raise GeneratorClosed(self.tag, "dated")
            period = self._calendar.at(self._redis_ms())
            asked = request(period)
            if label not in (None, period.label):
                # this request only learns the time of Redis
                asked = TakeRequest(period._replace(from_ms=0, until_ms=0), asked.around)
            reply = self._store.send(asked)
            self._offset_ms = reply.redis_ms - self._wall_ms()
            if not isinstance(reply, protocol.OtherPeriod):
                return reply, period
            if label is not None and self._calendar.at(reply.redis_ms).label != label:
                raise ConfigError(
                    f"the period {label} of the tag {self.tag!r} is over. Nothing was opened, and the present period "
                    "has numbers of its own."
                )
        raise StoreUnavailable(self._store.where, "its clock shows another period at each request")

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
        self._store.after_fork()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a DatedGenerator cannot be pickled or copied: two copies would make the same numbers. Make one in each "
            "process."
        )


def describe(number_format: NumberFormat) -> IdDescription:
    """Return the description of texts of this format."""
    length, sortable = number_format.text_length, number_format.sortable
    return IdDescription(
        "dated", str, None, length, sortable=sortable, guessable=True, leaks=("time", "volume"), needs=("redis",)
    )


def _describe(settings: Mapping[str, Any]) -> IdDescription:
    period: PeriodName = settings.get("period", "day")
    tag = settings.get("tag", DATED_SETTINGS["tag"].default)
    return describe(NumberFormat(settings.get("format"), period, tag, settings.get("maximum")))


DATED = IdKind(
    name="dated",
    summary="texts with the date and a number that starts again each hour, day, month or year",
    settings=DATED_SETTINGS,
    describe=_describe,
    open=lambda settings: DatedGenerator(**{"tag": DATED_SETTINGS["tag"].default, **settings}),
)
