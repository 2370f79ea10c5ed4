"""Part `first`: cost of one id at a time, with a pause before each: hot, the first of a millisecond, after a sleep.

Most processes make fewer ids than there are milliseconds, so each of their ids is the first of its tick, and follows
a pause in which the caches went cold. Each call is measured by itself, in blocks of calls of the same statement; the
statements take turns, block by block, in one run. So the caches hold a program that makes an id now and then, not the
neighbor in a table. What measuring costs, the median of a measurement of nothing, is subtracted.

The layout is the default one, and the leases are of a real redis-server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scripts._bench.contestants import BY_LABEL, BY_NAME, FLOOR, METHOD_FLOOR, OURS
from scripts._bench.ids import workers
from scripts._bench.measuring import BASE, in_turns, ratios
from scripts._bench.pauses import PAUSES, typical
from scripts._bench.server import private_server
from scripts._bench.worker import Worker
from snowredis import WorkerPool
from snowredis.snowflake.protocol.pool_config import PoolConfig

# what is measured, if it is there: of ours with both implementations, and the clock beside each
IDS = "ids.next_id()"
LABELS = (
    BASE,
    IDS,
    "snowredis.next_id()",
    BY_NAME,
    FLOOR,
    METHOD_FLOOR,
    "uuid.uuid4()",
    "uuid.uuid7()",
    "uuid_utils.uuid7()",
    "ulid_now_bytes()",
    "TSID.create()",
)
# measured in each tenth round or so, so that all of it takes a few minutes
SELDOM = ("uuid.uuid7()", "uuid_utils.uuid7()", "TSID.create()")
PERCENTILES = (50.0, 99.0, 99.9, 99.99)


def percentiles(figures: Sequence[float]) -> dict[str, float | None]:
    """Return the PERCENTILES of *figures*; None for one that fewer figures cannot show."""
    ordered = sorted(figures)
    return {
        f"p{percent:g}": ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
        if len(ordered) * (100 - percent) >= 100 - 1e-9
        else None
        for percent in PERCENTILES
    }


def measure(*, quick: bool) -> dict[str, Any]:
    with private_server() as server:
        # says that the pool is new: the first worker would wait otherwise
        WorkerPool(server.url, "default").create(PoolConfig(name="default"))
        with workers(url=server.url, layout="default") as running:
            return {"rows": _rows(running, quick=quick)}


def _rows(running: Sequence[Worker], *, quick: bool) -> list[dict[str, Any]]:
    cases = [(worker, label) for worker in running for label in LABELS if label in worker.said["labels"]]
    base_of = {worker.label: at for at, (worker, label) in enumerate(cases) if label == BASE}
    rows = []
    for name, pause in PAUSES.items():
        # number of the case -> number of the round -> ns
        blocks: dict[int, dict[int, list[float]]] = {at: {} for at in range(len(cases))}
        # quartiles need two rounds
        rounds = 2 if quick else pause.samples // pause.block
        size = max(1, pause.block // 20) if quick else pause.block
        for turn, number in enumerate(in_turns([str(at) for at in range(len(cases))], rounds)):
            (worker, label), this = cases[int(number)], turn // len(cases)
            if label not in SELDOM or this % min(10, max(1, rounds // 3)) == 0:
                block = worker.asked("samples", label=label, pause=name, count=size)
                blocks[int(number)][this] = block
        for at, (worker, label) in enumerate(cases):
            figures = [ns for block in blocks[at].values() for ns in block]
            each = [typical(block) for block in blocks[at].values()]
            clock = blocks[base_of[worker.label]]
            base = [max(1.0, typical(clock[this])) for this in blocks[at]]
            rows.append(
                {
                    "of": worker.label,
                    "by": worker.label if BY_LABEL[label].package == OURS else "",
                    "label": label,
                    "pause": name,
                    "samples": len(figures),
                    "ns": percentiles(figures),
                    "ratio": ratios(each, base),
                }
            )
    return rows
