"""Declaration of every metric: name, kind, help, unit, labels, and its value. Pure.

Prometheus, OpenTelemetry and the docs follow it; metric_values.py collects the values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

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
        value: its value, of a generator, the status of a segment generator, or a Snapshot: a number, one for each of
            *values*, or None if it is unknown. Metrics of a status or of the service have none.
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
    """Declares metrics with names that begin alike."""

    prefix: str
    labels: tuple[str, ...] = ("pool",)

    def counter(self, name: str, text: str, unit: str, value: Value | None = None, **more: Any) -> Metric:
        return self._metric("counter", name, text, unit, value, more)

    def gauge(self, name: str, text: str, unit: str, value: Value | None = None, **more: Any) -> Metric:
        return self._metric("gauge", name, text, unit, value, more)

    def histogram(self, name: str, text: str, unit: str, value: Value) -> Metric:
        return self._metric("histogram", name, text, unit, value, {})

    def _metric(
        self, kind: str, name: str, text: str, unit: str, value: Value | None, more: dict[str, Any]
    ) -> Metric:
        return Metric(self.prefix + name, kind, text, unit, value=value, **{"labels": self.labels} | more)


_process, _pool = _Metrics("snowredis_"), _Metrics("snowredis_pool_")
_segment, _tag = _Metrics("snowredis_segment_", ("tag",)), _Metrics("snowredis_tag_", ("tag",))


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _lease_end_s(generator: Any) -> float | None:
    offset_ms = generator.clock_reading.offset_ms or 0
    return None if generator.lease is None else (generator.lasts_until_ms - offset_ms) / 1000


# of the generators of a process
PROCESS = (
    _process.counter("ids_total", "ids made", "{id}", lambda it: it.ids_made),
    _process.counter(
        "waits_total",
        "waits for an id",
        "{wait}",
        lambda it: {"ceiling": it.counts.ceiling_waits, "clock": it.counts.clock_back_waits},
        labels=("pool", "reason"),
        values=("ceiling", "clock"),
    ),
    _process.counter(
        "ceiling_wait_seconds_total",
        "time that ids waited for the next tick",
        "s",
        lambda it: it.counts.ceiling_wait_s,
    ),
    _process.counter(
        "clock_backs_total",
        "times that the clock went back, by the reaction",
        "{step}",
        lambda it: it.counts.clock_backs_by_step,
        labels=("pool", "step"),
        values=("wait", "namespace", "worker", "refusal"),
    ),
    _process.counter("claims_total", "worker ids leased", "{claim}", lambda it: it.counts.claims),
    _process.counter(
        "claims_refused_total",
        "claims without a worker id: pool full, other settings, clock too far off, Redis unavailable",
        "{claim}",
        lambda it: it.counts.claims_refused,
        labels=("pool", "reason"),
        values=("full", "mismatch", "clock", "unavailable"),
    ),
    _process.counter("renewals_total", "successful heartbeats", "{renewal}", lambda it: it.counts.renewals),
    _process.counter(
        "renewals_failed_total", "failed heartbeats", "{renewal}", lambda it: it.counts.renewals_failed
    ),
    _process.counter(
        "leases_lost_total", "leases that were lost", "{lease}", lambda it: it.counts.leases_lost
    ),
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
        lambda it: int(it.in_outage_lane),
        merged="livesum",
    ),
    _process.gauge(
        "lease_ttl_seconds", "length of a lease", "s", lambda it: it.ttl_ms / 1000, merged="livemax"
    ),
    _process.gauge(
        "clock_offset_seconds",
        "clock of this host minus the Redis clock",
        "s",
        lambda it: _seconds(it.clock_reading.offset_ms),
        merged="livemostrecent",
    ),
    _process.histogram(
        "heartbeat_seconds", "round trips of successful heartbeats", "s", lambda it: it.counts.heartbeats
    ),
    _process.histogram(
        "claim_wait_seconds",
        "time that calls waited for a worker id, until they had one",
        "s",
        lambda it: it.counts.claim_waits,
    ),
    _process.histogram(
        "clock_wait_seconds",
        "time that ids waited for a clock that went back, within the tolerance",
        "s",
        lambda it: it.counts.clock_waits,
    ),
)

# of the segment generators of a process
SEGMENTS = (
    _segment.counter("numbers_total", "numbers made", "{number}", lambda it: it.made),
    _segment.counter("fetches_total", "segments fetched", "{segment}", lambda it: it.counts.segments),
    _segment.counter(
        "prefetch_hits_total",
        "segments that were there when the one before was used up",
        "{segment}",
        lambda it: it.counts.prefetch_hits,
    ),
    _segment.counter(
        "waits_total",
        "waits of callers for a segment, the first one included",
        "{wait}",
        lambda it: it.counts.waits,
    ),
    _segment.counter(
        "failures_total", "requests for segments that failed", "{request}", lambda it: it.counts.failures
    ),
    _segment.counter(
        "alarms_total",
        "replies that numbers may have been handed out twice",
        "{alarm}",
        lambda it: it.counts.alarms,
    ),
    _segment.counter(
        "dropped_total", "numbers that are left out, about", "{number}", lambda it: it.counts.dropped
    ),
    _segment.gauge(
        "left", "numbers at hand, prefetched ones included", "{number}", lambda it: it.left, merged="livesum"
    ),
    _segment.gauge("step", "numbers of the newest segment", "{number}", lambda it: it.step, merged="livemax"),
    _segment.gauge(
        "tag_rate",
        "numbers a second that Redis hands out to all processes",
        "{number}/s",
        lambda it: it.tag_rate,
        merged="livemostrecent",
    ),
    _segment.gauge(
        "used_up_seconds",
        "time until the range is used up at that rate; absent if that is never, or not known",
        "s",
        lambda it: it.used_up_in_s,
        merged="livemin",
    ),
)

# codes of the conditions in a status
CONDITIONS = (
    "alarm",
    "redis-unavailable",
    "pool-missing",
    "not-read",
    "no-ids",
    "floor",
    "unconfirmed",
    "returning",
    "deaths",
    "deaths-acknowledged",
    "suspects",
    "mismatch",
    "full",
    "nearly-full",
    "half-full",
    "clocks",
    "no-outage-lane",
    "layout-over",
    "layout-ends",
)
# those of tags, in a status that is shown together with tags
TAG_CONDITIONS = ("tags-closed", "tags")
# of a pool, read from Redis. Without the pool, or without Redis, all but the first three are absent: they are unknown
POOL = (
    _pool.gauge("up", "1: the pool was read; 0: Redis is unavailable or has no such pool", "1"),
    _pool.gauge("level", "status: 0 ok, 1 notice, 2 unknown, 3 warning, 4 critical", "1"),
    _pool.gauge(
        "condition",
        "level of each condition that makes the status, as snowredis_pool_level; 0: it is not the case",
        "1",
        labels=("pool", "condition"),
        values=CONDITIONS,
    ),
    _pool.gauge(
        "makes_ids",
        "1: a process can make ids now, since it has a valid lease or would get one at once; 0: no process can",
        "1",
        lambda it: it.makes_ids,
    ),
    _pool.gauge(
        "workers",
        "workers by state; unknown: Redis may have forgotten their heartbeats",
        "{worker}",
        lambda it: Counter(worker.state for worker in (*it.workers, *it.unknown)),
        labels=("pool", "state"),
        values=("healthy", "late", "suspect", "unknown"),
    ),
    _pool.gauge("capacity", "all worker ids", "{worker_id}", lambda it: it.info.capacity),
    _pool.gauge("used", "leased worker ids", "{worker_id}", lambda it: it.info.used),
    _pool.gauge("free", "available worker ids", "{worker_id}", lambda it: it.info.free),
    _pool.gauge("peak", "most worker ids leased at a time", "{worker_id}", lambda it: it.info.peak),
    _pool.gauge(
        "ids_per_second",
        "ids per second of all living workers",
        "{id}/s",
        lambda it: sum(worker.ids_per_second for worker in it.workers),
    ),
    _pool.gauge("ttl_seconds", "length of a lease", "s", lambda it: it.info.ttl_ms / 1000),
    _pool.gauge("floor_wait_seconds", "wait of new workers", "s", lambda it: it.info.floor_wait_ms / 1000),
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
    _pool.gauge(
        "clock_lead_seconds",
        "largest clock offset that the pool allows",
        "s",
        lambda it: it.info.lead_ms / 1000,
    ),
    _pool.gauge(
        "layout_left_seconds",
        "time until the layout ends; negative after its end",
        "s",
        lambda it: (it.info.layout_end_ms - it.info.now_ms) / 1000,
    ),
    _pool.gauge(
        "created_timestamp_seconds",
        "when the pool was created, in s since 1970",
        "s",
        lambda it: it.info.created_ms / 1000,
    ),
    _pool.gauge(
        "alarm_timestamp_seconds",
        "until when ids may have been repeated, in s since 1970; 0 without an alarm",
        "s",
        lambda it: it.info.alarm_until_ms / 1000,
    ),
    _pool.counter(
        "deaths_total", "processes that ended without a release", "{worker}", lambda it: it.info.deaths
    ),
    _pool.counter("claims_total", "worker ids leased", "{claim}", lambda it: it.info.claims),
    _pool.counter(
        "refused_total", "claims refused, since the pool was full", "{claim}", lambda it: it.info.refused
    ),
    _pool.counter("releases_total", "worker ids released", "{release}", lambda it: it.info.releases),
    _pool.counter(
        "expired_total", "deaths seen by the end of a lease", "{worker}", lambda it: it.info.expired
    ),
    _pool.counter(
        "reclaimed_total",
        "deaths seen by another process, which released",
        "{worker}",
        lambda it: it.info.reclaimed,
    ),
    _pool.counter(
        "returned_total", "ended leases that were renewed after all", "{lease}", lambda it: it.info.returned
    ),
    _pool.counter(
        "adopted_total",
        "leases that Redis had forgotten and took up again",
        "{lease}",
        lambda it: it.info.adopted,
    ),
    _pool.counter("lost_total", "renewals that were refused", "{lease}", lambda it: it.info.lost),
    _pool.counter(
        "mismatches_total",
        "claims of processes with other settings, refused",
        "{claim}",
        lambda it: it.info.mismatches,
    ),
    _pool.counter("alarms_total", "times that Redis went back in time", "{alarm}", lambda it: it.info.alarms),
)
# of one process of `snowredis serve`
SERVICE = (
    _process.counter("served_ids_total", "ids sent over HTTP", "{id}"),
    _process.counter("served_responses_total", "responses with ids", "{response}"),
    _process.counter(
        "http_errors_total",
        "responses with an error status",
        "{response}",
        labels=("status",),
        values=("400", "401", "403", "404", "405", "406", "413", "414", "429", "500", "501", "503"),
    ),
)
# of the tags of segments that `snowredis serve` makes numbers of, read from Redis
TAGS = (
    _tag.gauge(
        "level",
        "status of a tag: 0 ok, 2 unknown, 3 warning, 4 critical: it hands out no numbers, or an alarm",
        "1",
    ),
)
