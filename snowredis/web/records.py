"""Responses of the service as dataclasses; their JSON, and the description at /openapi.json, are made from these.

PoolReport, Event and Whois of snowredis.monitor are shown as the commands show them with --json.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from snowredis import __version__
from snowredis.core.as_json import schema_of
from snowredis.core.decoded import DecodedId
from snowredis.core.text import FORMS
from snowredis.monitor.deaths import Acknowledgement
from snowredis.monitor.events import Event
from snowredis.monitor.polling import PoolReport, UsagePoint
from snowredis.monitor.snapshot import PoolInfo
from snowredis.monitor.status import Status
from snowredis.monitor.whois import Whois
from snowredis.snowflake.codes import EventKind
from snowredis.web.messages import BINARY, JSON, MAX_ID_TEXT, PROBLEM_JSON, TEXT
from snowredis.web.settings import Limits


@dataclass(frozen=True, slots=True)
class FoundMaker:
    """An id and the process that made it.

    Attributes:
        decoded: the id.
        whois: the process, as far as it can be known.
    """

    decoded: DecodedId
    whois: Whois


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool and its status.

    Attributes:
        pool: settings and counters.
        status: the verdict.
        served_by: the worker id of the process of the service that responded; null: it has none.
        ready: whether that process can make ids of the pool.
    """

    pool: PoolInfo
    status: Status
    served_by: int | None
    ready: bool


@dataclass(frozen=True, slots=True)
class Events:
    """Events of a pool, the oldest first.

    Attributes:
        pool: name of the pool.
        events: the newest ones.
    """

    pool: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class History:
    """Use of a pool in the last day.

    Attributes:
        pool: name of the pool.
        points: one a minute, the oldest first.
    """

    pool: str
    points: tuple[UsagePoint, ...]


@dataclass(frozen=True, slots=True)
class PoolNames:
    """The pools of the service.

    Attributes:
        pools: their names; the first is the default.
    """

    pools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KindState:
    """A kind of ids that the service has besides pools, or a tag of it.

    Attributes:
        kind: name of the kind.
        tag: its tag; empty if the kind has none.
        type: type of an id in Python.
        text_length: the most characters of an id as text.
        sortable: later ids sort after earlier ones.
        guessable: who knows some ids can find others with few attempts.
        leaks: what somebody who sees ids learns.
        needs: what has to be reachable while ids are made.
        status: what the generator of the process that responded has at hand; null: it was not used yet.
    """

    kind: str
    tag: str
    type: Literal["int", "str", "UUID", "bytes"]
    text_length: int
    sortable: bool
    guessable: bool
    leaks: tuple[str, ...]
    needs: tuple[str, ...]
    status: Any | None = None


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of ids of the service besides pools.

    Attributes:
        kinds: each with its state.
    """

    kinds: tuple[KindState, ...]


@dataclass(frozen=True, slots=True)
class Alive:
    """Liveness of the process.

    Attributes:
        ok: always true.
    """

    ok: bool = True


@dataclass(frozen=True, slots=True)
class PoolReadiness:
    """Readiness of one pool.

    Attributes:
        ready: whether this process can make ids of the pool.
        status: the verdict about the pool.
        error: why the process is not ready, a code; null if it is.
        detail: the same for people.
    """

    ready: bool
    status: Status
    error: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Readiness:
    """Readiness of the process.

    Attributes:
        ready: whether it can make ids of all these pools.
        pools: by name; empty without the token, if the service has one.
    """

    ready: bool
    pools: dict[str, PoolReadiness]


# --- /openapi.json ---------------------------------------------------------------------------------

Json = dict[str, Any]
EVENTS = "text/event-stream"
_TEXT: Json = {"type": "string"}
# only the paths that name them respond with these
_RARE = {"406", "429", "501"}
_DESCRIPTIONS = {
    "400": "a parameter is not valid",
    "401": "the token is missing or wrong",
    "403": "the host name or the origin is not allowed",
    "404": "no such pool, or nothing at this path",
    "405": "the method is not supported",
    "406": "no supported media type is acceptable",
    "413": "the request has a body",
    "414": "path and query are too long",
    "429": "too many requests; see Retry-After",
    "500": "the service failed",
    "501": "a required package is not installed",
    "503": "no id now: Redis unavailable, pool full, clock moved back, layout at its end; see Retry-After",
}


def _object(**properties: Json) -> Json:
    """Return the schema of an object with these properties, all required."""
    return {"type": "object", "required": list(properties), "properties": properties}


def _parameter(name: str, text: str, schema: Json, *, place: str = "query", required: bool = False) -> Json:
    return {"name": name, "in": place, "required": required, "description": text, "schema": schema}


def _choice(name: str, text: str, values: Sequence[str]) -> Json:
    return _parameter(name, text, {"type": "string", "enum": list(values)})


def description(limits: Limits, pools: Sequence[str], others: Sequence[tuple[str, str]] = ()) -> Json:
    """Return the OpenAPI 3.1 document. *others*: other kinds than pools, each with its tag or ""."""
    pool = _choice("pool", f"default: {pools[0]}", pools)
    problem = _object(type=_TEXT, title=_TEXT, status={"type": "integer"}, detail=_TEXT, error=_TEXT)
    problem["properties"]["retry_after_s"] = {"type": "integer", "minimum": 1}
    return {
        "openapi": "3.1.0",
        "info": {"title": "snowredis", "version": __version__, "description": "Ids over HTTP."},
        "paths": _paths_of_ids(limits, pool, others) | _paths_of_pools(pool),
        "security": [{"token": []}, {}],
        "components": {
            "schemas": {"Problem": problem},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _paths_of_ids(limits: Limits, pool: Json, others: Sequence[tuple[str, str]]) -> Json:
    """Return the paths that make ids, or say what an id contains. *pool*: the parameter of that name."""
    named = [pool]
    if others:
        kinds = sorted({kind for kind, _ in others})
        named.append(_choice("kind", "ids of another kind, instead of a pool", kinds))
    if tags := sorted({tag for _, tag in others} - {""}):
        named.append(_choice("tag", "numbers of a tag, instead of a pool", tags))
    size: Json = {"type": "integer", "minimum": 1, "maximum": limits.max_count}
    count = _parameter("count", "how many ids", size, required=True)
    id_text: Json = {"type": "string", "minLength": 1, "maxLength": MAX_ID_TEXT}
    given = (
        pool,
        _parameter("text", "an id in any of its text forms", id_text, place="path", required=True),
        _choice("form", "the text form; default: the most plausible one", list(FORMS)),
    )
    an_id: Json = {"type": "string", "minLength": 1, "example": "249734652741287936"}
    if not others:
        an_id["pattern"] = "^[0-9]{1,19}$"
    one, many = _object(id=an_id), _object(ids={"type": "array", "items": an_id})
    made: Any = {"more": ("406", "429"), "ids": True}
    return {
        "/id": _get("One id.", one, *named, **made),
        "/ids": _get("Several ids, strictly increasing.", many, *named, count, **made),
        "/decode/{text}": _get("Time, fields and bits of an id.", DecodedId, *given),
        "/whois/{text}": _get("Which process made an id.", FoundMaker, *given, more=("429",)),
    }


def _paths_of_pools(pool: Json) -> Json:
    """Return the other paths. *pool*: the parameter of that name."""
    worker_id: Json = {"type": "integer", "minimum": 0, "maximum": 4_194_303}
    filters = (
        _choice("kind", "only events of this kind", list(EventKind)),
        _parameter("worker", "only events of this worker id", worker_id),
    )
    until = _parameter("until", "deaths up to this time; default: now", {"type": "string", "format": "date-time"})
    seen = "Store that the deaths of the pool have been seen."
    ready = "Readiness: 200 if every pool can make ids, else 503."
    state = "The pool, its workers and deaths, and the verdict."
    return {
        "/workers": _get(state, PoolReport, pool, more=("429",)),
        "/events": _get("The newest events of the pool.", Events, pool, *filters, more=("429",)),
        "/acknowledge": _get(seen, Acknowledgement, pool, until, more=("429",), method="post"),
        "/history": _get("Use of the pool in the last day, a point a minute.", History, pool),
        "/pool": _get("Settings and use of the pool.", PoolState, pool, more=("429",)),
        "/pools": _get("The pools of this service.", PoolNames),
        "/kinds": _get("The kinds of ids and tags of this service besides pools.", Kinds),
        "/live": _get("State and changes of the pool, for the dashboard.", None, pool, kind=EVENTS),
        "/healthz": _get("Liveness of the process.", Alive, open_to_all=True),
        "/readyz": _get(ready, Readiness, pool, open_to_all=True),
        "/metrics": _get("Metrics for Prometheus.", None, more=("429", "501")),
        "/openapi.json": _get("This description.", {"type": "object"}),
    }


def _get(
    summary: str,
    body: type | Json | None,
    *parameters: Json,
    ids: bool = False,
    open_to_all: bool = False,
    more: Sequence[str] = (),
    kind: str = TEXT,
    method: str = "get",
) -> Json:
    """Return the operation of a path whose response is a dataclass, or has a schema, or is text of a media type."""
    schema = _TEXT if body is None else body if isinstance(body, dict) else schema_of(body)
    content: Json = {kind if body is None else JSON: {"schema": schema}}
    if ids:
        packed = {"type": "string", "format": "binary", "description": "big-endian int64, 8 bytes an id"}
        content[TEXT] = {"schema": {"type": "string", "description": "one id a line"}}
        content[BINARY] = {"schema": packed}
    responses: Json = {"200": {"description": "success", "content": content}}
    for status in sorted(_DESCRIPTIONS.keys() - _RARE | set(more)):
        responses[status] = {"description": _DESCRIPTIONS[status]}
        responses[status]["content"] = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        if status in {"429", "503"}:
            wait: Json = {"schema": {"type": "integer", "minimum": 1}, "description": "seconds"}
            responses[status]["headers"] = {"Retry-After": wait}
    operation: Json = {"summary": summary, "parameters": list(parameters), "responses": responses}
    if open_to_all:
        operation["security"] = []
    return {method: operation}
