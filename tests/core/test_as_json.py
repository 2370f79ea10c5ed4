"""The one JSON: what dataclasses become, and the schema that describes it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

import pytest

from scripts._docs.schema import schema_of
from snowredis.core.as_json import Hidden, IdNumber, NowMs, Shown, TimeMs, in_json, to_json
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import layouts
from snowredis.monitor.conditions import Condition, Status
from snowredis.monitor.history import Event, Whois
from snowredis.monitor.lease import Lease, Owner
from snowredis.monitor.pool_monitor import Reading
from snowredis.snowflake.protocol.record import EventKind

_AT_MS = 1_795_230_981_059
_AT = "2026-11-21T03:16:21.059Z"


class _Stats(NamedTuple):
    """Numbers.

    Attributes:
        ids_made: how many.
    """

    ids_made: int = 0


@dataclass(frozen=True, slots=True)
class _Thing:
    """A record.

    Attributes:
        id: its id.
        started_ms, now_ms: when it happened,
            and when it was read.
        claimed_ms: first time.
        from_ms: second time.
        wait_ms: a length.
    """

    id: IdNumber
    started_ms: TimeMs
    now_ms: NowMs
    claimed_ms: TimeMs | None
    reserved_until_ms: TimeMs
    wait_ms: int
    token_hash: Hidden
    layout: Layout
    worker: Annotated[int, Shown(null=-1)] = -1
    lanes_ms: Annotated[tuple[TimeMs, ...], Shown(name="lanes_from")] = ()
    state: Literal["open", "closed"] = "open"
    stats: _Stats | None = None
    share: float = 0.5

    @property
    @in_json
    def ended_ms(self) -> TimeMs:
        """The end.

        More text.
        """
        return self.started_ms

    @property
    def not_shown(self) -> int:
        return 0


_THING = _Thing(1 << 60, _AT_MS, 0, None, _AT_MS, 30, "secret", layouts["twitter"], 17, (0, _AT_MS))


def test_a_field_is_shown_as_its_type_says() -> None:
    shown = to_json(replace(_THING, started_ms=10**15, now_ms=_AT_MS, stats=_Stats(3), share=float("inf")))
    assert shown == {
        "id": str(1 << 60),
        # past the year 9999
        "started_at": None,
        "at": _AT,
        "claimed_at": None,
        "reserved_until": _AT,
        "wait_ms": 30,
        "layout": layout_spec(layouts["twitter"]),
        "worker": 17,
        "lanes_from": [None, _AT],
        "state": "open",
        "stats": {"ids_made": 3},
        "share": None,
        "ended_at": None,
    }


def test_what_stands_for_none_is_null() -> None:
    assert to_json(replace(_THING, worker=-1))["worker"] is None
    assert to_json(replace(_THING, claimed_ms=0))["claimed_at"] is None


def test_the_schema_says_what_the_docstring_says() -> None:
    schema = schema_of(_Thing)
    assert schema["properties"]["id"] == {"type": "string", "pattern": "^[0-9]{1,19}$", "description": "its id."}
    assert schema["properties"]["claimed_at"] == {
        "type": ["string", "null"],
        "format": "date-time",
        "description": "first time.",
    }
    assert schema["properties"]["state"] == {"type": "string", "enum": ["open", "closed"]}
    assert schema["properties"]["at"]["description"] == "when it happened, and when it was read."
    assert schema["properties"]["ended_at"]["description"] == "The end."
    assert schema["properties"]["stats"]["properties"]["ids_made"]["type"] == "integer"
    assert "token_hash" not in schema["properties"]
    assert "not_shown" not in schema["properties"]


def _shown() -> Iterator[Any]:
    lease = Lease(3, "alive", Owner("web", 1), _AT_MS, _AT_MS, _AT_MS)
    yield lease
    yield Reading(Status("unknown", "x", (Condition("unknown", "x", code="unread"),), _AT_MS), None)
    yield Event(_AT_MS, EventKind.FLOOR, -1, Owner(), _AT_MS, 0, f"{_AT_MS}-0")
    yield Event(_AT_MS, EventKind.EXPIRED, 3, Owner("web", 1), _AT_MS, _AT_MS, "")
    parts = layouts["twitter"].decode(1 << 40)
    yield Whois(1 << 40, parts, lease, "certain", "", _AT_MS)


@pytest.mark.parametrize("value", list(_shown()), ids=lambda value: type(value).__name__)
def test_everything_that_is_shown_fits_its_schema(value: Any) -> None:
    jsonschema: Any = pytest.importorskip("jsonschema_rs")
    shown, schema = json.loads(json.dumps(to_json(value))), schema_of(type(value))
    jsonschema.Draft202012Validator(schema).validate(shown)
    assert list(shown) == schema["required"] == list(schema["properties"])
    assert "token" not in json.dumps(shown)
