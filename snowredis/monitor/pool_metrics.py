"""Metrics of a pool, read from Redis, and their text format for Prometheus. Needs no client library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from snowredis.errors import SnowredisError
from snowredis.monitor.snapshot import POOL_COUNTERS, PoolInfo, WorkerInfo
from snowredis.monitor.worker_pool import WorkerPool

# states of a living worker
LIVING = ("healthy", "late", "suspect")
_UP = "whether the pool could be read"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: name (of a counter without ``_total``), kind ("gauge" or "counter"), help text, samples."""

    name: str
    kind: str
    text: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


def families_of(pool: WorkerPool) -> list[Family]:
    """Return the current metrics of *pool*; only ``snowredis_pool_up 0`` if it cannot be read. Blocks as workers()."""
    try:
        workers, info = pool.workers(), pool.info()
    except SnowredisError:
        return [_family("up", "gauge", _UP, pool.name, 0)]
    return [_family("up", "gauge", _UP, pool.name, 1), *_families(workers, info)]


def _families(workers: list[WorkerInfo], info: PoolInfo) -> Iterable[Family]:
    states = [worker.state for worker in workers]
    by_state = tuple(({"pool": info.name, "state": state}, float(states.count(state))) for state in LIVING)
    yield Family("snowredis_pool_workers", "gauge", "living workers by state", by_state)
    oldest_ms = max((worker.heartbeat_age_ms for worker in workers), default=0)
    offset_ms = max((abs(worker.clock_offset_ms) for worker in workers), default=0)
    rate = sum(worker.ids_per_second for worker in workers)
    floor_wait_ms = max(0, info.floor_ms - info.now_ms)
    for name, text, value in (
        ("capacity", "all worker ids", info.capacity),
        ("used", "leased worker ids", info.used),
        ("free", "available worker ids", info.free),
        ("peak", "most worker ids leased at a time", info.peak),
        ("floor_wait_seconds", "wait of new workers", floor_wait_ms / 1000),
        ("layout_left_seconds", "time until the layout ends", (info.layout_end_ms - info.now_ms) / 1000),
        ("oldest_heartbeat_seconds", "age of the oldest heartbeat of a living worker", oldest_ms / 1000),
        ("clock_offset_max_seconds", "largest clock offset of a living worker", offset_ms / 1000),
        ("ids_per_second", "ids per second of all living workers", rate),
    ):
        yield _family(name, "gauge", text, info.name, value)
    for name in POOL_COUNTERS:
        yield _family(name, "counter", f"{name} of the pool", info.name, float(getattr(info, name)))


def _family(name: str, kind: str, text: str, pool: str, value: float) -> Family:
    """Return a metric with one sample."""
    return Family(f"snowredis_pool_{name}", kind, text, (({"pool": pool}, value),))


def as_text(families: Iterable[Family]) -> str:
    """Return *families* in the text format of Prometheus, version 0.0.4."""
    lines = []
    for family in families:
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        lines += [f"# HELP {name} {family.text}", f"# TYPE {name} {family.kind}"]
        for labels, value in family.samples:
            inner = ",".join(f'{label}="{_quoted(text)}"' for label, text in labels.items())
            lines.append(f"{name}{{{inner}}} {value!r}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
