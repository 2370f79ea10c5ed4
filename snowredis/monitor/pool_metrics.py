"""Metrics of a pool, read from Redis, and their text format for Prometheus. Needs no client library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from snowredis.errors import SnowredisError
from snowredis.monitor.snapshot import PoolInfo, WorkerInfo
from snowredis.monitor.worker_pool import WorkerPool

# states of a living worker
LIVING = ("healthy", "late", "suspect")
COUNTED = ("claims", "releases", "expired", "adopted", "lost", "alarms")


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
        return [_up(pool.name, 0)]
    return [_up(pool.name, 1), *_families(workers, info)]


def _up(name: str, value: float) -> Family:
    return Family("snowredis_pool_up", "gauge", "whether the pool could be read", (({"pool": name}, value),))


def _families(workers: list[WorkerInfo], info: PoolInfo) -> Iterable[Family]:
    states = [worker.state for worker in workers]
    by_state = tuple(({"pool": info.name, "state": state}, float(states.count(state))) for state in LIVING)
    yield Family("snowredis_pool_workers", "gauge", "living workers by state", by_state)
    for what, text, value in (
        ("capacity", "all worker ids", info.capacity),
        ("used", "leased worker ids", info.used),
        ("free", "available worker ids", info.free),
        ("peak", "most worker ids leased at a time", info.peak),
        (
            "floor_wait_seconds",
            "wait of new workers",
            max(0, info.floor_ms - info.now_ms) / 1000,
        ),
        ("layout_left_seconds", "time until the layout ends", (info.layout_end_ms - info.now_ms) / 1000),
        (
            "oldest_heartbeat_seconds",
            "age of the oldest heartbeat of a living worker",
            max((worker.heartbeat_age_ms for worker in workers), default=0) / 1000,
        ),
        (
            "clock_offset_max_seconds",
            "largest clock offset of a living worker",
            max((abs(worker.clock_offset_ms) for worker in workers), default=0) / 1000,
        ),
        (
            "ids_per_second",
            "ids per second of all living workers",
            sum(worker.ids_per_second for worker in workers),
        ),
    ):
        yield Family(f"snowredis_pool_{what}", "gauge", text, (({"pool": info.name}, value),))
    for what in COUNTED:
        value = float(getattr(info, what))
        yield Family(
            f"snowredis_pool_{what}", "counter", f"{what} of the pool", (({"pool": info.name}, value),)
        )


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
