"""The dashboard receives complete states, changes and gaps; from snapshots, without a server."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from snowredis.core.layout import Layout
from snowredis.errors import StoreUnavailable
from snowredis.monitor.owner import Owner
from snowredis.monitor.pool_monitor import Reading
from snowredis.monitor.snapshot import EndedLease, PoolInfo, Snapshot, WorkerInfo
from snowredis.monitor.status import status_of, status_without
from snowredis.web.feed import FeedState, event_counts, rate_of

NOW_MS = 1_795_000_000_000
# clock of the service: a second behind Redis
LOCAL_MS = NOW_MS - 1000


def blank(kind: type[Any]) -> dict[str, Any]:
    """Return empty values for the fields of a dataclass that have no default."""
    fields = (field for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING)
    empty: dict[str, Any] = {"str": "", "Hidden": "", "OwnerNamed": Owner()}
    return {field.name: empty.get(str(field.type), 0) for field in fields}


def worker(number: int, **fields: Any) -> WorkerInfo:
    values = blank(WorkerInfo) | {
        "worker": number,
        "alive": True,
        "owner": Owner(),
        "state": "healthy",
        "renewed_ms": NOW_MS,
        "ids_per_second": 10,
    }
    return WorkerInfo(**values | fields)


def snapshot(*workers: WorkerInfo, **fields: Any) -> Snapshot:
    values = blank(PoolInfo) | {
        "name": "orders",
        "layout": Layout(),
        "now_ms": NOW_MS,
        "capacity": 1024,
        "used": len(workers),
    }
    parts = {name: fields.pop(name) for name in ("unknown", "deaths") if name in fields}
    return Snapshot(PoolInfo(**values | fields), workers, parts.get("unknown", ()), parts.get("deaths", ()))


def reading(shown: Snapshot) -> Reading:
    return Reading(status_of(shown), shown, None, LOCAL_MS)


def failed(last: Snapshot | None, after_ms: int) -> Reading:
    error = StoreUnavailable("here", "gone")
    now_ms = LOCAL_MS + after_ms
    status = status_without(error, last, failed_since_ms=now_ms, now_ms=now_ms, last_read_ms=LOCAL_MS)
    return Reading(status, last, error, LOCAL_MS)


def data_of(event: bytes) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(event.decode().partition("data: ")[2])
    return data


class Viewed:
    """The state that viewers have, reading after reading."""

    def __init__(self) -> None:
        self.state = FeedState()

    def complete(self) -> bytes:
        return self.state.complete()


def change(viewed: Viewed, now: Reading, events: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    viewed.state, event = viewed.state.after(now, events or [])
    return data_of(event)


def test_a_change_has_only_the_workers_that_changed_and_those_that_are_gone() -> None:
    state = Viewed()
    assert len(change(state, reading(snapshot(worker(1), worker(2), worker(3))))["workers"]) == 3
    # the age of a heartbeat is no change
    changed = change(state, reading(snapshot(worker(1, heartbeat_age_ms=5), worker(3, ids_made=7))))
    assert [row["worker"] for row in changed["workers"]] == [3]
    assert changed["gone"] == [2]
    assert "deaths" not in changed
    assert [row["worker"] for row in data_of(state.complete())["workers"]] == [1, 3]


def test_where_nothing_was_read_there_is_a_gap_and_the_last_state_stays() -> None:
    state = Viewed()
    last = snapshot(worker(1))
    change(state, reading(last))
    changed = change(state, failed(last, 3000))
    # on the Redis clock, although Redis is away
    assert changed["points"] == [[NOW_MS + 3000, None, None]]
    assert changed["stale_since_ms"] == LOCAL_MS + 3000
    assert changed["status"]["conditions"][0]["code"] == "redis-unavailable"
    assert changed["gone"] == []
    assert data_of(state.complete())["points"] == [[NOW_MS, 10, 1], [NOW_MS + 3000, None, None]]
    assert change(state, reading(last))["stale_since_ms"] is None


def test_a_pool_that_never_could_be_read_is_no_empty_pool() -> None:
    state = Viewed()
    changed = change(state, failed(None, 0))
    assert changed["workers"] == []
    assert data_of(state.complete())["pool"] is None
    assert changed["points"][0][1:] == [None, None]


@pytest.mark.parametrize(
    ("states", "rate"), [([], 0), (["healthy", "late"], 20), (["healthy", "silent"], 10), (["silent"], None)]
)
def test_the_rate_of_silent_workers_is_unknown_and_not_zero(states: list[str], rate: int | None) -> None:
    assert rate_of(snapshot(*(worker(i, state=state) for i, state in enumerate(states)))) == rate


def test_deaths_are_sent_when_they_change_and_events_once() -> None:
    state = Viewed()
    death = EndedLease(
        **{field.name: 0 for field in dataclasses.fields(EndedLease)}  # type: ignore[arg-type]
        | {"at_ms": NOW_MS, "worker": 5, "owner": Owner("h", 0, "web"), "kind": "expired"}
    )
    event = {"key": "0/1-0", "kind": "claimed"}
    first = change(state, reading(snapshot(deaths=(death,))), [event])
    assert [(row["key"], row["silent"]) for row in first["ended"]] == [(death.key, False)]
    assert first["status"]["conditions"][0]["template"].startswith("1 worker sent no heartbeat")
    second = change(state, reading(snapshot(deaths=(death,))), [event, event | {"key": "0/2-0"}])
    assert "ended" not in second
    assert [row["key"] for row in second["events"]] == ["0/2-0"]


@pytest.mark.parametrize(
    "name", ["claims", "releases", "expired", "adopted", "lost", "alarms", "incarnation", "floor_ms"]
)
def test_events_are_read_again_when_a_counter_changes(name: str) -> None:
    value = "x" if name == "incarnation" else 1
    assert event_counts(snapshot()) != event_counts(snapshot(**{name: value}))


def test_an_unknown_worker_says_so() -> None:
    rows = change(Viewed(), reading(snapshot(worker(1), unknown=(worker(2, state="unknown"),))))["workers"]
    assert [row.get("state") for row in rows] == [None, "unknown"]
