"""The description of the service at /openapi.json, and the records that only the service has.

All others, such as PoolReport, Event and Whois of snowredis.monitor, are shown as the commands show them with --json.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from snowredis import __version__
from snowredis.core.as_json import TimeMs, schema_of
from snowredis.core.decoded import DecodedId
from snowredis.core.text import FORMS
from snowredis.monitor.conditions import Status
from snowredis.monitor.events import Event
from snowredis.monitor.pool_monitor import PoolReport
from snowredis.monitor.whois import Whois
from snowredis.snowflake.record import EventKind
from snowredis.web.messages import BINARY, JSON, MAX_ID_TEXT, MAX_WORKER_ID, PROBLEM_JSON, TEXT
from snowredis.web.settings import Limits


@dataclass(frozen=True, slots=True)
class UsagePoint:
    """Use of a pool in one step of time.

    Attributes:
        at_ms: the begin of the step, ms since 1970.
        living: most workers alive in it; None: nothing could be read.
        ids_per_second: mean over the readings; None: nothing could be read.
        deaths: how many more deaths than at the end of the step before, less processes that returned; None: unknown.
    """

    at_ms: TimeMs
    living: int | None = None
    ids_per_second: int | None = None
    deaths: int | None = None


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
_PROBLEM = {
    "description": "a problem. 400, 404, 405, 406, 413 and 414: the request cannot be served. 401 and 403: it is not "
    "allowed. 429: too many requests. 503: no id now, since Redis is unavailable, the pool is full, the clock moved "
    "back or the layout is at its end. 500: the service failed",
    "headers": {"Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "seconds"}},
    "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def _object(**properties: Json) -> Json:
    """Return the schema of an object with these properties, all required."""
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(of: Json) -> Json:
    return {"type": "array", "items": of}


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
    one, many = _object(id=an_id), _object(ids=_list(an_id))
    return {
        "/id": _get("One id.", one, *named, ids=True),
        "/ids": _get("Several ids, strictly increasing.", many, *named, count, ids=True),
        "/decode/{text}": _get("Time, fields and bits of an id.", DecodedId, *given),
        "/whois/{text}": _get(
            "Which process made an id.", _object(decoded=schema_of(DecodedId), whois=schema_of(Whois)), *given
        ),
    }


def _paths_of_pools(pool: Json) -> Json:
    """Return the other paths. *pool*: the parameter of that name."""
    worker_id: Json = {"type": "integer", "minimum": 0, "maximum": MAX_WORKER_ID}
    filters = (
        _choice("kind", "only events of this kind", list(EventKind)),
        _parameter("worker", "only events of this worker id", worker_id),
    )
    ready = "Readiness: 200 if every pool can make ids, else 503."
    state = "The pool, its workers and deaths, and the verdict."
    events, points = _list(schema_of(Event)), _list(schema_of(UsagePoint))
    return {
        "/workers": _get(state, PoolReport, pool),
        "/events": _get(
            "The newest events of the pool, the oldest first.", _object(pool=_TEXT, events=events), pool, *filters
        ),
        "/history": _get(
            "Use of the pool in the last day, a point a minute.", _object(pool=_TEXT, points=points), pool
        ),
        "/pools": _get("The pools of this service; the first is the default.", _object(pools=_list(_TEXT))),
        "/live": _get("State and changes of the pool, for the dashboard.", None, pool, kind=EVENTS),
        "/healthz": _get("Liveness of the process.", _object(ok={"type": "boolean"}), open_to_all=True),
        "/readyz": _get(ready, Readiness, pool, open_to_all=True),
        "/metrics": _get("Metrics for Prometheus.", None),
        "/openapi.json": _get("This description.", {"type": "object"}),
    }


def _get(
    summary: str,
    body: type | Json | None,
    *parameters: Json,
    ids: bool = False,
    open_to_all: bool = False,
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
    responses: Json = {"200": {"description": "success", "content": content}, "default": _PROBLEM}
    operation: Json = {"summary": summary, "parameters": list(parameters), "responses": responses}
    if open_to_all:
        operation["security"] = []
    return {method: operation}
