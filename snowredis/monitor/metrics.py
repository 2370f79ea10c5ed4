"""Metrics with their values at one moment, and the text format of Prometheus. Pure.

Declaration of every metric: name, kind, help, unit, labels. Prometheus, OpenTelemetry and the docs follow it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from snowredis.snowflake.counts import BOUNDS_S, Durations

# the ends of the buckets as Prometheus writes them; the last bucket has none
BUCKETS = (*map(repr, BOUNDS_S), "+Inf")


@dataclass(slots=True)
class Family:
    """A metric and its samples: values by the values of its labels."""

    metric: Metric
    samples: dict[tuple[str, ...], float | Durations] = field(default_factory=dict)

    def labeled(self) -> Iterator[tuple[dict[str, str], float | Durations]]:
        """Yield each sample with its labels by name."""
        for values, value in self.samples.items():
            yield dict(zip(self.metric.labels, values, strict=True)), value


def collected(samples: Iterable[tuple[Metric, tuple[str, ...], float | Durations]]) -> list[Family]:
    """Return one family for each metric, however many pools have samples of it: two of one name are not valid."""
    families: dict[str, Family] = {}
    for metric, labels, value in samples:
        families.setdefault(metric.name, Family(metric)).samples[labels] = value
    return list(families.values())


def cumulative(durations: Durations) -> list[tuple[str, int]]:
    """Return the buckets of a histogram as Prometheus counts them: each with those below it."""
    return list(zip(BUCKETS, itertools.accumulate(durations.counts), strict=True))


def as_text(families: Iterable[Family]) -> str:
    """Return *families* in the text format of Prometheus, version 0.0.4."""
    lines = []
    for family in families:
        name = family.metric.name
        lines += [f"# HELP {name} {family.metric.text}", f"# TYPE {name} {family.metric.kind}"]
        for labels, value in family.labeled():
            if isinstance(value, Durations):
                buckets = cumulative(value)
                lines += [_line(f"{name}_bucket", labels | {"le": end}, count) for end, count in buckets]
                lines.append(_line(f"{name}_count", labels, buckets[-1][1]))
                lines.append(_line(f"{name}_sum", labels, sum(value.sums_s)))
            else:
                lines.append(_line(name, labels, value))
    return "".join(f"{line}\n" for line in lines)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inner}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


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
    """

    name: str
    kind: str
    text: str
    unit: str
    labels: tuple[str, ...] = ("pool",)
    values: tuple[str, ...] = ()
    merged: str = ""

    @property
    def family(self) -> str:
        """Its name without the ``_total`` of counters, as prometheus_client takes it."""
        return self.name.removesuffix("_total")

    @property
    def otel(self) -> str:
        """Its name for OpenTelemetry, which shows the unit apart."""
        return self.family.removesuffix("_seconds").replace("snowredis_", "snowredis.", 1)


# of the generators of a process
PROCESS = (
    Metric("snowredis_ids_total", "counter", "ids made", "{id}"),
    Metric(
        "snowredis_waits_total",
        "counter",
        "waits for an id",
        "{wait}",
        ("pool", "reason"),
        ("ceiling", "clock"),
    ),
    Metric("snowredis_ceiling_wait_seconds_total", "counter", "time that ids waited for the next tick", "s"),
    Metric(
        "snowredis_clock_backs_total",
        "counter",
        "times that the clock went back, by the reaction",
        "{step}",
        ("pool", "step"),
        ("wait", "namespace", "worker", "refusal"),
    ),
    Metric("snowredis_claims_total", "counter", "worker ids leased", "{claim}"),
    Metric(
        "snowredis_claims_refused_total",
        "counter",
        "claims without a worker id: pool full, other settings, clock too far off, Redis unavailable",
        "{claim}",
        ("pool", "reason"),
        ("full", "mismatch", "clock", "unavailable"),
    ),
    Metric("snowredis_renewals_total", "counter", "successful heartbeats", "{renewal}"),
    Metric("snowredis_renewals_failed_total", "counter", "failed heartbeats", "{renewal}"),
    Metric("snowredis_leases_lost_total", "counter", "leases that were lost", "{lease}"),
    Metric("snowredis_leases", "gauge", "worker ids leased now", "{lease}", merged="livesum"),
    Metric(
        "snowredis_lease_end_timestamp_seconds",
        "gauge",
        "when the first reservation ends, in s since 1970 on the Redis clock",
        "s",
        merged="livemin",
    ),
    Metric("snowredis_lease_ttl_seconds", "gauge", "length of a lease", "s", merged="livemax"),
    Metric(
        "snowredis_clock_offset_seconds",
        "gauge",
        "clock of this host minus the Redis clock",
        "s",
        merged="livemostrecent",
    ),
    Metric("snowredis_heartbeat_seconds", "histogram", "round trips of successful heartbeats", "s"),
    Metric(
        "snowredis_claim_wait_seconds",
        "histogram",
        "time that calls waited for a worker id, until they had one",
        "s",
    ),
    Metric(
        "snowredis_clock_wait_seconds",
        "histogram",
        "time that ids waited for a clock that went back, within the tolerance",
        "s",
    ),
)

_TAG = ("tag",)
# of the segment generators of a process
SEGMENTS = (
    Metric("snowredis_segment_numbers_total", "counter", "numbers made", "{number}", _TAG),
    Metric("snowredis_segment_fetches_total", "counter", "segments fetched", "{segment}", _TAG),
    Metric(
        "snowredis_segment_prefetch_hits_total",
        "counter",
        "segments that were there when the one before was used up",
        "{segment}",
        _TAG,
    ),
    Metric(
        "snowredis_segment_waits_total",
        "counter",
        "waits of callers for a segment, the first one included",
        "{wait}",
        _TAG,
    ),
    Metric(
        "snowredis_segment_failures_total", "counter", "requests for segments that failed", "{request}", _TAG
    ),
    Metric(
        "snowredis_segment_alarms_total",
        "counter",
        "replies that numbers may have been handed out twice",
        "{alarm}",
        _TAG,
    ),
    Metric(
        "snowredis_segment_dropped_total", "counter", "numbers that are left out, about", "{number}", _TAG
    ),
    Metric(
        "snowredis_segment_left",
        "gauge",
        "numbers at hand, prefetched ones included",
        "{number}",
        _TAG,
        merged="livesum",
    ),
    Metric(
        "snowredis_segment_step", "gauge", "numbers of the newest segment", "{number}", _TAG, merged="livemax"
    ),
    Metric(
        "snowredis_segment_tag_rate",
        "gauge",
        "numbers a second that Redis hands out to all processes",
        "{number}/s",
        _TAG,
        merged="livemostrecent",
    ),
    Metric(
        "snowredis_segment_used_up_seconds",
        "gauge",
        "time until the range is used up at that rate; absent if that is never, or not known",
        "s",
        _TAG,
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
    "layout-over",
    "layout-ends",
)
# those of tags, in a status that is shown together with tags
TAG_CONDITIONS = ("tags-closed", "tags")
# of a pool, read from Redis. Without the pool, or without Redis, all but the first three are absent: they are unknown
POOL = (
    Metric(
        "snowredis_pool_up", "gauge", "1: the pool was read; 0: Redis is unavailable or has no such pool", "1"
    ),
    Metric("snowredis_pool_level", "gauge", "status: 0 ok, 1 notice, 2 unknown, 3 warning, 4 critical", "1"),
    Metric(
        "snowredis_pool_condition",
        "gauge",
        "level of each condition that makes the status, as snowredis_pool_level; 0: it is not the case",
        "1",
        ("pool", "condition"),
        CONDITIONS,
    ),
    Metric(
        "snowredis_pool_makes_ids",
        "gauge",
        "1: a process can make ids now, since it has a valid lease or would get one at once; 0: no process can",
        "1",
    ),
    Metric(
        "snowredis_pool_workers",
        "gauge",
        "workers by state; unknown: Redis may have forgotten their heartbeats",
        "{worker}",
        ("pool", "state"),
        ("healthy", "late", "suspect", "unknown"),
    ),
    Metric("snowredis_pool_capacity", "gauge", "all worker ids", "{worker_id}"),
    Metric("snowredis_pool_used", "gauge", "leased worker ids", "{worker_id}"),
    Metric("snowredis_pool_free", "gauge", "available worker ids", "{worker_id}"),
    Metric("snowredis_pool_peak", "gauge", "most worker ids leased at a time", "{worker_id}"),
    Metric("snowredis_pool_ids_per_second", "gauge", "ids per second of all living workers", "{id}/s"),
    Metric("snowredis_pool_ttl_seconds", "gauge", "length of a lease", "s"),
    Metric("snowredis_pool_floor_wait_seconds", "gauge", "wait of new workers", "s"),
    Metric(
        "snowredis_pool_oldest_heartbeat_seconds",
        "gauge",
        "age of the oldest heartbeat of a living worker",
        "s",
    ),
    Metric(
        "snowredis_pool_clock_offset_max_seconds", "gauge", "largest clock offset of a living worker", "s"
    ),
    Metric("snowredis_pool_clock_lead_seconds", "gauge", "largest clock offset that the pool allows", "s"),
    Metric(
        "snowredis_pool_layout_left_seconds",
        "gauge",
        "time until the layout ends; negative after its end",
        "s",
    ),
    Metric(
        "snowredis_pool_created_timestamp_seconds", "gauge", "when the pool was created, in s since 1970", "s"
    ),
    Metric(
        "snowredis_pool_alarm_timestamp_seconds",
        "gauge",
        "until when ids may have been repeated, in s since 1970; 0 without an alarm",
        "s",
    ),
    Metric("snowredis_pool_deaths_total", "counter", "processes that ended without a release", "{worker}"),
    Metric("snowredis_pool_claims_total", "counter", "worker ids leased", "{claim}"),
    Metric("snowredis_pool_refused_total", "counter", "claims refused, since the pool was full", "{claim}"),
    Metric("snowredis_pool_releases_total", "counter", "worker ids released", "{release}"),
    Metric("snowredis_pool_expired_total", "counter", "deaths seen by the end of a lease", "{worker}"),
    Metric(
        "snowredis_pool_reclaimed_total",
        "counter",
        "deaths seen by another process, which released",
        "{worker}",
    ),
    Metric("snowredis_pool_returned_total", "counter", "ended leases that were renewed after all", "{lease}"),
    Metric(
        "snowredis_pool_adopted_total",
        "counter",
        "leases that Redis had forgotten and took up again",
        "{lease}",
    ),
    Metric("snowredis_pool_lost_total", "counter", "renewals that were refused", "{lease}"),
    Metric(
        "snowredis_pool_mismatches_total",
        "counter",
        "claims of processes with other settings, refused",
        "{claim}",
    ),
    Metric("snowredis_pool_alarms_total", "counter", "times that Redis went back in time", "{alarm}"),
)
# of one process of `snowredis serve`
SERVICE = (
    Metric("snowredis_served_ids_total", "counter", "ids sent over HTTP", "{id}"),
    Metric("snowredis_served_responses_total", "counter", "responses with ids", "{response}"),
    Metric(
        "snowredis_http_errors_total",
        "counter",
        "responses with an error status",
        "{response}",
        ("status",),
        ("400", "401", "403", "404", "405", "406", "413", "414", "429", "500", "501", "503"),
    ),
)
# of the tags of segments that `snowredis serve` makes numbers of, read from Redis
TAGS = (
    Metric(
        "snowredis_tag_level",
        "gauge",
        "status of a tag: 0 ok, 2 unknown, 3 warning, 4 critical: it hands out no numbers, or an alarm",
        "1",
        _TAG,
    ),
)
