"""Every metric: its declaration, and its values, read from Redis or of the generators of this process.

Prometheus, OpenTelemetry and the docs follow the declarations: name, kind, help, unit, labels, value. The totals of a
process only grow, also when generators are closed. Needs no client library.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from snowredis.monitor.conditions import LEVELS, TABLE
from snowredis.monitor.lease import STATES
from snowredis.snowflake.lease.context import CLAIM_REFUSALS, CLOCK_BACK_STEPS, WAITS

if TYPE_CHECKING:
    from snowredis.monitor.pool_monitor import Reading

Value: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: as Prometheus shows it; that of a counter ends in ``_total``.
        text: what it measures.
        unit: as OpenTelemetry writes it: "s", "1" for a ratio or a flag, "{id}" for a number of ids.
        labels: names of its labels.
        values: what the last label can be. Each has a sample from the start, so that the first increase is seen.
        merged: how several processes under PROMETHEUS_MULTIPROC_DIR, and several generators of one process, make one
            gauge.
        value: its value, of a generator, a segment generator, a Reading, or a Snapshot: a number, one for
            each of *values*, or None if it is unknown. Metrics of the service have none.
    """

    name: str
    text: str
    unit: str
    labels: tuple[str, ...] = ("pool",)
    values: tuple[str, ...] = ()
    merged: str = ""
    value: Value | None = None

    @property
    def kind(self) -> str:
        """Its type for Prometheus."""
        return "counter" if self.name.endswith("_total") else "gauge"

    @property
    def otel(self) -> str:
        """Its name for OpenTelemetry, which shows the unit apart."""
        return self.name.removesuffix("_total").removesuffix("_seconds").replace("snowredis_", "snowredis.", 1)


def _metrics(prefix: str, labels: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Metric, ...]:
    """Return a metric for each of *rows*: its name, unit, value and text, and then other fields of Metric, if any.

    A value is a function, or the name of an attribute; one in ms becomes seconds. "label": the last one, if there are
    more than *labels*.
    """
    found = []
    for name, unit, value, text, *rest in rows:
        more: dict[str, Any] = dict(*rest)
        own = (more.pop("label"),) if "label" in more else ()
        get = _getter(value) if isinstance(value, str) else value
        found.append(Metric(f"{prefix}{name}", text=text, unit=unit, labels=(*labels, *own), value=get, **more))
    return tuple(found)


def _getter(path: str) -> Value:
    get = attrgetter(path)
    if not path.endswith("_ms"):
        return get
    return lambda it: None if (ms := get(it)) is None else ms / 1000


def _lease_end_s(generator: Any) -> float | None:
    offset_ms = generator.clock_reading.offset_ms or 0
    return None if generator.lease is None else (generator.lasts_until_ms - offset_ms) / 1000


# each: name, unit, value, text; what else it has
# fmt: off
# the generators of a process have these
PROCESS = _metrics("snowredis_", ("pool",), (
    ("ids_total", "{id}", "ids_made", "ids made"),
    ("waits_total", "{wait}", "counts.waits", "waits: for a worker id, the next tick, a clock that went back",
     {"label": "reason", "values": WAITS}),
    ("wait_seconds_total", "s", "counts.wait_s", "time of these waits", {"label": "reason", "values": WAITS}),
    ("clock_backs_total", "{step}", "counts.clock_backs", "times that the clock went back, by the reaction",
     {"label": "step", "values": tuple(CLOCK_BACK_STEPS)}),
    ("claims_total", "{claim}", "counts.claims", "worker ids leased"),
    ("claims_refused_total", "{claim}", "counts.claims_refused",
     "claims that gave up: pool full, other settings, clock too far off; and each one that raised StoreUnavailable",
     {"label": "reason", "values": CLAIM_REFUSALS}),
    ("renewals_total", "{renewal}", "counts.renewals", "successful heartbeats"),
    ("heartbeat_seconds_total", "s", "counts.heartbeat_s", "round trips of successful heartbeats"),
    ("renewals_failed_total", "{renewal}", "counts.renewals_failed", "failed heartbeats"),
    ("leases_lost_total", "{lease}", "counts.leases_lost", "leases that were lost"),
    ("leases", "{lease}", lambda it: int(it.lease is not None), "worker ids leased now", {"merged": "livesum"}),
    ("lease_end_timestamp_seconds", "s", _lease_end_s,
     "until when ids can be made without Redis, also in the outage lane, in s since 1970 on the Redis clock",
     {"merged": "livemin"}),
    ("outage_lanes", "{generator}", "in_outage_lane",
     "generators that make ids in an outage lane, since Redis is unavailable", {"merged": "livesum"}),
    ("lease_ttl_seconds", "s", "ttl_ms", "length of a lease", {"merged": "livemax"}),
    ("clock_offset_seconds", "s", "clock_reading.offset_ms", "clock of this host minus the Redis clock",
     {"merged": "livemostrecent"}),
))
LEASES = next(metric for metric in PROCESS if metric.name == "snowredis_leases")
# the segment generators of a process have these
SEGMENTS = _metrics("snowredis_segment_", ("tag",), (
    ("numbers_total", "{number}", "made", "numbers made"),
    ("fetches_total", "{segment}", "counts.segments", "segments fetched"),
    ("waits_total", "{wait}", "counts.waits", "waits of callers for a segment, the first one included"),
    ("failures_total", "{request}", "counts.failures", "requests for segments that failed"),
    ("closed_total", "{reply}", "counts.closed", "replies that the tag is closed"),
    ("left", "{number}", "left", "numbers at hand, prefetched ones included", {"merged": "livesum"}),
    ("step", "{number}", "steps.size", "numbers of the newest segment", {"merged": "livemax"}),
    ("remaining", "{number}", "remaining", "numbers that Redis can hand out still; absent if that is not known",
     {"merged": "livemin"}),
))
SEGMENT_COUNTERS = tuple(metric for metric in SEGMENTS if metric.kind == "counter")
# every pool has these, even one that cannot be read
READING = _metrics("snowredis_pool_", ("pool",), (
    ("up", "1", lambda it: it.error is None, "1: the pool was read; 0: Redis is unavailable or has no such pool"),
    ("level", "1", lambda it: LEVELS.index(it.status.level),
     "status: 0 ok, 1 unknown, 2 warning, 3 critical"),
    ("condition", "1", lambda it: Counter({each.code: LEVELS.index(each.level) for each in it.status.conditions}),
     "level of each condition that makes the status, as snowredis_pool_level; 0: it is not the case",
     {"label": "condition", "values": tuple(TABLE)}),
))
# a pool that was read has these. Without the pool, or without Redis, they are absent, because they are unknown
SNAPSHOT = _metrics("snowredis_pool_", ("pool",), (
    ("makes_ids", "1", "makes_ids",
     "1: a process can make ids now, since it has a reservation or would get one at once; 0: no process can"),
    ("workers", "{worker}",
     lambda it: Counter(each.state for each in it.leases),
     "leases by state; expired and died: those of the last hour, and expired ones whose processes may make ids",
     {"label": "state", "values": STATES[:-1]}),
    ("capacity", "{worker_id}", "info.capacity", "all worker ids"),
    ("used", "{worker_id}", "info.used", "leased worker ids"),
    ("free", "{worker_id}", "info.free", "available worker ids"),
    ("peak", "{worker_id}", "info.peak", "most worker ids leased at a time"),
    ("ids_per_second", "{id}/s", lambda it: sum(each.ids_per_second for each in it.living),
     "ids per second of all living workers"),
    ("ttl_seconds", "s", "info.config.ttl_ms", "length of a lease"),
    ("floor_wait_seconds", "s", "info.floor_wait_ms", "wait of new workers"),
    ("oldest_heartbeat_seconds", "s",
     lambda it: max((it.info.now_ms - each.renewed_ms for each in it.living), default=0) / 1000,
     "age of the oldest heartbeat of a living worker"),
    ("clock_offset_max_seconds", "s",
     lambda it: max((abs(each.clock_offset_ms) for each in it.living), default=0) / 1000,
     "largest clock offset of a living worker"),
    ("clock_lead_seconds", "s", "info.config.max_clock_lead_ms", "largest clock offset that the pool allows"),
    ("layout_left_seconds", "s", lambda it: (it.info.layout_end_ms - it.info.now_ms) / 1000,
     "time until the layout ends; negative after its end"),
    ("created_timestamp_seconds", "s", "info.created_ms", "when the pool was created, in s since 1970"),
    ("alarm_timestamp_seconds", "s", "info.alarm_until_ms",
     "until when ids may have been repeated, in s since 1970; 0 without an alarm"),
    ("claims_total", "{claim}", "info.claims", "worker ids leased"),
    ("refused_total", "{claim}", "info.refused", "claims that gave up, since the pool was full"),
    ("releases_total", "{release}", "info.releases", "worker ids released"),
    ("expired_total", "{worker}", "info.expired", "leases that ended without a release"),
    ("died_total", "{worker}", "info.died", "leases of processes that another one found dead"),
    ("returned_total", "{lease}", "info.returned", "ended leases that were renewed after all"),
    ("adopted_total", "{lease}", "info.adopted", "leases that Redis had forgotten and took up again"),
    ("lost_total", "{lease}", "info.lost", "renewals that were refused"),
    ("mismatches_total", "{claim}", "info.mismatches", "claims of processes with other settings, refused"),
    ("alarms_total", "{alarm}", "info.alarms", "times that Redis went back in time"),
))
POOL = (*READING, *SNAPSHOT)
# each process of `snowredis serve` has these
_STATUSES = ("400", "401", "403", "404", "405", "406", "429", "500", "503")
SERVICE = _metrics("snowredis_", ("pool",), (
    ("served_ids_total", "{id}", None, "ids sent over HTTP"),
    ("served_responses_total", "{response}", None, "responses with ids"),
)) + _metrics("snowredis_", (), (
    ("http_errors_total", "{response}", None, "responses with an error status",
     {"label": "status", "values": _STATUSES}),
))
# fmt: on

# --- values ------------------------------------------------------------------------------------------

# a metric, and the values of its labels
Key: TypeAlias = tuple[Metric, tuple[str, ...]]
Samples: TypeAlias = dict[Key, Any]


def samples_of(metrics: Iterable[Metric], name: str, source: Any) -> Samples:
    """Return the values of *source*, the pool or tag *name*, of each of *metrics* that is known."""
    samples: Samples = {}
    for metric in metrics:
        value = metric.value(source) if metric.value is not None else None
        if metric.values and value is not None:
            samples |= {(metric, (name, label)): value[label] for label in metric.values}
        elif value is not None:
            samples[metric, (name,)] = value
    return samples


def samples_of_pools(readings: Mapping[str, Reading]) -> Samples:
    """Return the metrics of pools, by name; of one that could not be read only the status."""
    samples: Samples = {}
    for name, reading in readings.items():
        samples |= samples_of(READING, name, reading)
        samples |= samples_of(SNAPSHOT, name, reading.snapshot) if reading.error is None else {}
    return samples


def by_metric(samples: Samples) -> dict[Metric, dict[tuple[str, ...], Any]]:
    """Return each metric with its values by labels, however many pools have them."""
    found: dict[Metric, dict[tuple[str, ...], Any]] = {}
    for (metric, labels), value in samples.items():
        found.setdefault(metric, {})[labels] = value
    return found


def as_text(samples: Samples) -> str:
    """Return metrics of pools in the text format of Prometheus, version 0.0.4."""
    lines = []
    for metric, values in by_metric(samples).items():
        lines += [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}"]
        for texts, value in values.items():
            # names of pools, states and codes have no character that must be escaped
            labels = (f'{name}="{text}"' for name, text in zip(metric.labels, texts, strict=True))
            lines.append(f"{metric.name}{{{','.join(labels)}}} {float(value)!r}")
    return "".join(f"{line}\n" for line in lines)


class ProcessTotals:
    """Sum the metrics of all generators of this process, also of those that no longer exist.

    Args:
        members: returns the generators of this process; other objects in it are ignored.

    A generator that no longer exists counts as of the last call of samples(). A forked child starts at 0.
    """

    def __init__(self, members: Callable[[], Iterable[Any]]) -> None:
        self._members = members
        self._reset()

    def _reset(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        # the counters of each generator, and of all
        self._seen: weakref.WeakKeyDictionary[Any, Samples] = weakref.WeakKeyDictionary()
        self._totals: Samples = {}

    def samples(self) -> Samples:
        """Return the metrics of all pools and tags."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            return self._collect()

    def _collect(self) -> Samples:
        gauges: dict[Key, list[float]] = {}
        for member in self._members():
            for key, value in _samples_of_member(member).items():
                if key[0].kind == "gauge":
                    gauges.setdefault(key, []).append(value)
                else:
                    _count(self._totals, self._seen.setdefault(member, {}), key, value)
        # a pool without generators has no leases
        start = {(LEASES, labels[:1]): 0 for metric, labels in self._totals if metric in PROCESS}
        return self._totals | start | {key: _MERGE[key[0].merged](known) for key, known in gauges.items()}


def _samples_of_member(member: Any) -> Samples:
    """Return the metrics of *member*; none if it is no generator with counters."""
    if hasattr(member, "ids_made"):
        return samples_of(PROCESS, member.pool, member)
    if hasattr(member, "remaining"):
        # a closed one has counters only
        return samples_of(SEGMENT_COUNTERS if member.closed else SEGMENTS, member.tag, member)
    return {}


def _count(totals: Samples, seen: Samples, key: Key, value: float) -> None:
    """Add to *totals* what the *value* of a generator is above the one that was *seen* of it."""
    before = seen.get(key, 0)
    # ids_made includes a block that was just given up for a moment, so it may shrink
    seen[key] = max(value, before)
    totals[key] = totals.get(key, 0) + seen[key] - before


_MERGE: dict[str, Callable[[list[float]], float]] = {
    "livesum": sum,
    "livemin": min,
    "livemax": max,
    "livemostrecent": lambda known: known[-1],
}
