"""Declaration of every metric: name, kind, help, unit, labels, and its value. Pure.

Prometheus, OpenTelemetry and the docs follow it; metric_values.py collects the values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from snowredis.monitor.status import HEADLINES, LEVELS
from snowredis.snowflake.counts import CLAIM_REFUSALS, CLOCK_BACK_STEPS

Value: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: as Prometheus shows it; that of a counter ends in ``_total``.
        kind: "counter", "gauge" or "histogram".
        text: what it measures.
        unit: as OpenTelemetry writes it: "s", "1" for a ratio or a flag, "{id}" for a number of ids.
        labels: names of its labels.
        values: what the last label can be. Each has a sample from the start, so that the first increase is seen.
        merged: how several processes under PROMETHEUS_MULTIPROC_DIR, and several generators of one process, make one
            gauge.
        value: its value, of a generator, the status of a segment generator, a Reading, or a Snapshot: a number, one for
            each of *values*, or None if it is unknown. Metrics of the service have none.
    """

    name: str
    kind: str
    text: str
    unit: str
    labels: tuple[str, ...] = ("pool",)
    values: tuple[str, ...] = ()
    merged: str = ""
    value: Value | None = None

    @property
    def family(self) -> str:
        """Its name without the ``_total`` of counters, as prometheus_client takes it."""
        return self.name.removesuffix("_total")

    @property
    def otel(self) -> str:
        """Its name for OpenTelemetry, which shows the unit apart."""
        return self.family.removesuffix("_seconds").replace("snowredis_", "snowredis.", 1)


class _Metrics(NamedTuple):
    """Declares metrics with names that begin alike.

    Attributes:
        prefix: how the names begin.
        path: where the values are in the object that is shown: the value of a metric is the attribute PATH + its name,
            or PATH + the name that is given as its value. None: the metrics have no values.
        labels: the labels of all of them; a metric can have one more.
    """

    prefix: str
    path: str | None = None
    labels: tuple[str, ...] = ("pool",)

    def counter(self, name: str, text: str, unit: str, value: Value | str = "", **more: Any) -> Metric:
        return self._metric("counter", f"{name}_total", text, unit, value or name, **more)

    def gauge(self, name: str, text: str, unit: str, value: Value | str = "", **more: Any) -> Metric:
        return self._metric("gauge", name, text, unit, value or name, **more)

    def seconds(self, name: str, text: str, value_ms: str, merged: str = "") -> Metric:
        """Declare a gauge in seconds; its value is the attribute PATH + *value_ms*, in ms."""

        def value(it: Any) -> float | None:
            ms = attrgetter(f"{self.path}{value_ms}")(it)
            return None if ms is None else ms / 1000

        return self._metric("gauge", f"{name}_seconds", text, "s", value, merged=merged)

    def histogram(self, name: str, text: str, value: str) -> Metric:
        return self._metric("histogram", f"{name}_seconds", text, "s", value)

    def _metric(self, kind: str, name: str, text: str, unit: str, value: Value | str, **more: Any) -> Metric:
        """Declare a metric; *more*: fields of Metric, and the name of one more ``label``."""
        labels = (*self.labels, more.pop("label")) if "label" in more else self.labels
        get = value if callable(value) else None if self.path is None else attrgetter(self.path + value)
        return Metric(f"{self.prefix}{name}", kind, text, unit, labels, value=get, **more)


def _lease_end_s(generator: Any) -> float | None:
    offset_ms = generator.clock_reading.offset_ms or 0
    return None if generator.lease is None else (generator.lasts_until_ms - offset_ms) / 1000


_process, _counts = _Metrics("snowredis_", ""), _Metrics("snowredis_", "counts.")
# the generators of a process have these
PROCESS = (
    _process.counter("ids", "ids made", "{id}", "ids_made"),
    _process.counter(
        "waits",
        "waits for an id",
        "{wait}",
        lambda it: {"ceiling": it.counts.ceiling_waits, "clock": it.counts.clock_back_waits},
        label="reason",
        values=("ceiling", "clock"),
    ),
    _counts.counter("ceiling_wait_seconds", "time that ids waited for the next tick", "s", "ceiling_wait_s"),
    _counts.counter(
        "clock_backs",
        "times that the clock went back, by the reaction",
        "{step}",
        "clock_backs_by_step",
        label="step",
        values=tuple(CLOCK_BACK_STEPS),
    ),
    _counts.counter("claims", "worker ids leased", "{claim}"),
    _counts.counter(
        "claims_refused",
        "claims that gave up: pool full, other settings, clock too far off; and each one that Redis did not answer",
        "{claim}",
        label="reason",
        values=CLAIM_REFUSALS,
    ),
    _counts.counter("renewals", "successful heartbeats", "{renewal}"),
    _counts.counter("renewals_failed", "failed heartbeats", "{renewal}"),
    _counts.counter("leases_lost", "leases that were lost", "{lease}"),
    _process.gauge(
        "leases", "worker ids leased now", "{lease}", lambda it: int(it.lease is not None), merged="livesum"
    ),
    _process.gauge(
        "lease_end_timestamp_seconds",
        "until when ids can be made without Redis, also in the outage lane, in s since 1970 on the Redis clock",
        "s",
        _lease_end_s,
        merged="livemin",
    ),
    _process.gauge(
        "outage_lanes",
        "generators that make ids in an outage lane, since Redis is unavailable",
        "{generator}",
        "in_outage_lane",
        merged="livesum",
    ),
    _process.seconds("lease_ttl", "length of a lease", "ttl_ms", "livemax"),
    _process.seconds(
        "clock_offset", "clock of this host minus the Redis clock", "clock_reading.offset_ms", "livemostrecent"
    ),
    _counts.histogram("heartbeat", "round trips of successful heartbeats", "heartbeats"),
    _counts.histogram("claim_wait", "time that calls waited for a worker id, until they had one", "claim_waits"),
    _counts.histogram(
        "clock_wait", "time that ids waited for a clock that went back, within the tolerance", "clock_waits"
    ),
)

_segment = _Metrics("snowredis_segment_", "", ("tag",))
_segment_counts = _Metrics("snowredis_segment_", "counts.", ("tag",))
# the segment generators of a process have these
SEGMENTS = (
    _segment.counter("numbers", "numbers made", "{number}", "made"),
    _segment_counts.counter("fetches", "segments fetched", "{segment}", "segments"),
    _segment_counts.counter("waits", "waits of callers for a segment, the first one included", "{wait}"),
    _segment_counts.counter("failures", "requests for segments that failed", "{request}"),
    _segment_counts.counter("closed", "replies that the tag is closed", "{reply}"),
    _segment_counts.counter("alarms", "replies that numbers may have been handed out twice", "{alarm}"),
    _segment_counts.counter("dropped", "numbers that are left out, about", "{number}"),
    _segment.gauge("left", "numbers at hand, prefetched ones included", "{number}", merged="livesum"),
    _segment.gauge("step", "numbers of the newest segment", "{number}", merged="livemax"),
    _segment.gauge(
        "tag_rate", "numbers a second that Redis hands out to all processes", "{number}/s", merged="livemostrecent"
    ),
    _segment.gauge(
        "used_up_seconds",
        "time until the range is used up at that rate; absent if that is never, or not known",
        "s",
        "used_up_in_s",
        merged="livemin",
    ),
)

_pool, _info = _Metrics("snowredis_pool_", ""), _Metrics("snowredis_pool_", "info.")
# every pool has these, even one that cannot be read
READING = (
    _pool.gauge(
        "up", "1: the pool was read; 0: Redis is unavailable or has no such pool", "1", lambda it: it.error is None
    ),
    _pool.gauge(
        "level",
        "status: 0 ok, 1 notice, 2 unknown, 3 warning, 4 critical",
        "1",
        lambda it: LEVELS.index(it.status.level),
    ),
    _pool.gauge(
        "condition",
        "level of each condition that makes the status, as snowredis_pool_level; 0: it is not the case",
        "1",
        lambda it: Counter({each.code: LEVELS.index(each.level) for each in it.status.conditions}),
        label="condition",
        values=tuple(HEADLINES),
    ),
)
# a pool that was read has these. Without the pool, or without Redis, they are absent, because they are unknown
SNAPSHOT = (
    _pool.gauge(
        "makes_ids",
        "1: a process can make ids now, since it has a reservation or would get one at once; 0: no process can",
        "1",
    ),
    _pool.gauge(
        "workers",
        "workers by state; silent: those whose leases ended, too; unknown: Redis may have forgotten their heartbeats",
        "{worker}",
        lambda it: Counter([*(each.state for each in (*it.workers, *it.unknown)), *("silent" for _ in it.silent)]),
        label="state",
        values=("healthy", "late", "silent", "no-ids", "unknown"),
    ),
    _info.gauge("capacity", "all worker ids", "{worker_id}"),
    _info.gauge("used", "leased worker ids", "{worker_id}"),
    _info.gauge("free", "available worker ids", "{worker_id}"),
    _info.gauge("peak", "most worker ids leased at a time", "{worker_id}"),
    _pool.gauge(
        "ids_per_second",
        "ids per second of all living workers",
        "{id}/s",
        lambda it: sum(worker.ids_per_second for worker in it.workers),
    ),
    _info.seconds("ttl", "length of a lease", "ttl_ms"),
    _info.seconds("floor_wait", "wait of new workers", "floor_wait_ms"),
    _pool.gauge(
        "oldest_heartbeat_seconds",
        "age of the oldest heartbeat of a living worker",
        "s",
        lambda it: max((worker.heartbeat_age_ms for worker in it.workers), default=0) / 1000,
    ),
    _pool.gauge(
        "clock_offset_max_seconds",
        "largest clock offset of a living worker",
        "s",
        lambda it: max((abs(worker.clock_offset_ms) for worker in it.workers), default=0) / 1000,
    ),
    _info.seconds("clock_lead", "largest clock offset that the pool allows", "lead_ms"),
    _pool.gauge(
        "layout_left_seconds",
        "time until the layout ends; negative after its end",
        "s",
        lambda it: (it.info.layout_end_ms - it.info.now_ms) / 1000,
    ),
    _info.seconds("created_timestamp", "when the pool was created, in s since 1970", "created_ms"),
    _info.seconds(
        "alarm_timestamp",
        "until when ids may have been repeated, in s since 1970; 0 without an alarm",
        "alarm_until_ms",
    ),
    _info.counter("deaths", "leases that ended without a release, and those reclaimed of dead processes", "{worker}"),
    _info.counter("claims", "worker ids leased", "{claim}"),
    _info.counter("refused", "claims that gave up, since the pool was full", "{claim}"),
    _info.counter("releases", "worker ids released", "{release}"),
    _info.counter("expired", "leases that ended without a release", "{worker}"),
    _info.counter("reclaimed", "leases of processes that another one found dead", "{worker}"),
    _info.counter("returned", "ended leases that were renewed after all", "{lease}"),
    _info.counter("adopted", "leases that Redis had forgotten and took up again", "{lease}"),
    _info.counter("lost", "renewals that were refused", "{lease}"),
    _info.counter("mismatches", "claims of processes with other settings, refused", "{claim}"),
    _info.counter("alarms", "times that Redis went back in time", "{alarm}"),
)
POOL = (*READING, *SNAPSHOT)
# each process of `snowredis serve` has these
SERVICE = (
    _Metrics("snowredis_").counter("served_ids", "ids sent over HTTP", "{id}"),
    _Metrics("snowredis_").counter("served_responses", "responses with ids", "{response}"),
    _Metrics("snowredis_", labels=()).counter(
        "http_errors",
        "responses with an error status",
        "{response}",
        label="status",
        values=("400", "401", "403", "404", "405", "406", "413", "414", "429", "500", "501", "503"),
    ),
)
