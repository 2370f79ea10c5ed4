"""DatedGenerator: numbers that start again each hour, day, month or year, written with the date.

The kind "dated".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from snowredis.core.description import IdDescription
from snowredis.core.values import check_count
from snowredis.errors import GeneratorClosed, StoreUnavailable
from snowredis.kinds.base import GeneratorBase, IdKind
from snowredis.numbers.formats import NumberFormat, PeriodName
from snowredis.numbers.masters import Master
from snowredis.numbers.protocol import GrantedNumbers
from snowredis.numbers.settings import DATED_CONSTANTS, DATED_SETTINGS, as_options
from snowredis.numbers.stores import REPLY_LIFE_MS, open_tag_store
from snowredis.process.clock import now_ms
from snowredis.process.fork import GUARD
from snowredis.settings import check_settings, required_url

# requests before this gives up: at a boundary the period is another one, and at the first call it is not known
_MAX_REQUESTS = 5


class DatedGenerator(GeneratorBase[str]):
    """Makes texts such as "20261122-000001": a number that starts again each period, and the date of the period.

    A person creates the tag once, with the same settings: create_tag(), or ``snowredis numbers create``. A number of a
    period is handed out once, by Redis: whatever the clocks do, a text never comes twice. A text belongs to the period
    in which Redis handed it out, by the clock of Redis. Numbers are consecutive, but for those of a transaction that
    was rolled back, and those whose reply was lost; for numbers without gaps see TransactionNumbers.

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
        self._format = form = NumberFormat(tag, period, zone, year_begins, format, maximum)
        changed = {name: given[name] for name, one in DATED_CONSTANTS.items() if given[name] != one.default}
        store = open_tag_store(required_url(url), tag, min_replicas=min_replicas, **form.stored)
        self._server = Master(store, form.calendar.first_from, as_options({"period": period} | changed))
        self._wall_ms: Callable[[], int] = now_ms
        self._offset_ms = 0
        self._closed = False
        GUARD.reset_in_child(self)

    @property
    def description(self) -> IdDescription:
        return self._format.description

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

    def close(self) -> None:
        """Stop making numbers. Idempotent, never raises."""
        GUARD.check()
        if not self._closed:
            self._closed = True
            self._server.store.close()

    def _make(self, count: int) -> list[str]:
        for _ in range(_MAX_REQUESTS):
            if self._closed:
                raise GeneratorClosed(self.tag, "dated")
            asked_s, asked_ms = time.monotonic(), self._wall_ms()
            period = self._format.at(asked_ms + self._offset_ms)
            reply = self._server.take(count, period, count, self._format.maximum)
            self._offset_ms = reply.redis_ms - self._wall_ms()
            # if this process, or its machine, was stopped for longer, a person may have handed out its numbers again
            passed_ms = max(abs(self._wall_ms() - asked_ms), 1000 * (time.monotonic() - asked_s))
            if isinstance(reply, GrantedNumbers) and passed_ms < REPLY_LIFE_MS:
                return [self._format.write(period, number) for number in reply.numbers]
        reason = "its clock shows another period at each request, or this process is stopped for seconds at each"
        raise StoreUnavailable(self._server.store.where, reason)

    def _after_fork(self) -> None:
        self._server.after_fork()


def _describe(settings: Mapping[str, Any]) -> IdDescription:
    period: PeriodName = settings.get("period", "day")
    tag = settings.get("tag", DATED_SETTINGS["tag"].default)
    return NumberFormat(tag, period, format=settings.get("format"), maximum=settings.get("maximum")).description


DATED = IdKind(
    name="dated",
    summary="texts with the date and a number that starts again each hour, day, month or year",
    settings=DATED_SETTINGS,
    describe=_describe,
    open=lambda settings: DatedGenerator(**{"tag": DATED_SETTINGS["tag"].default, **settings}),
)
