"""A pool as numbers for Prometheus, and the text format. Needs no client library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from snowredis.errors import SnowredisError
from snowredis.lease.inspect import PoolInfo, WorkerInfo
from snowredis.monitor.pool import WorkerPool

# a living worker is one of these
LIVING = ("healthy", "late", "suspect")
COUNTED = ("claims", "releases", "expired", "adopted", "lost", "alarms")


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name (of a counter without ``_total``), "gauge" or "counter", its help, its samples."""

    name: str
    kind: str
    text: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


def families_of(pool: WorkerPool) -> list[Family]:
    """How *pool* is now. Blocks as its workers(); raises nothing: what cannot be read is ``snowredis_pool_up 0``."""
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
        ("capacity", "worker ids that there are", info.capacity),
        ("used", "worker ids that are leased", info.used),
        ("free", "worker ids that are not", info.free),
        ("peak", "the most that were leased at a time", info.peak),
        (
            "floor_wait_seconds",
            "how long new workers have to wait",
            max(0, info.floor_ms - info.now_ms) / 1000,
        ),
        ("layout_left_seconds", "until the layout's bits end", (info.layout_end_ms - info.now_ms) / 1000),
        (
            "oldest_heartbeat_seconds",
            "age of the oldest heartbeat of a living worker",
            max((worker.heartbeat_age_ms for worker in workers), default=0) / 1000,
        ),
        (
            "clock_offset_max_seconds",
            "the furthest that a living worker's clock is off",
            max((abs(worker.clock_offset_ms) for worker in workers), default=0) / 1000,
        ),
        ("ids_per_second", "of all living workers", sum(worker.ids_per_second for worker in workers)),
    ):
        yield Family(f"snowredis_pool_{what}", "gauge", text, (({"pool": info.name}, value),))
    for what in COUNTED:
        value = float(getattr(info, what))
        yield Family(
            f"snowredis_pool_{what}", "counter", f"{what} of the pool so far", (({"pool": info.name}, value),)
        )


def as_text(families: Iterable[Family]) -> str:
    """The text format of Prometheus, version 0.0.4."""
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
