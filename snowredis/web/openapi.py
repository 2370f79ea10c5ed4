"""The API description at /openapi.json, made from the dataclasses of the responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snowredis import __version__
from snowredis.core.as_json import schema_of
from snowredis.core.text import FORMS
from snowredis.monitor.deaths import Acknowledgement
from snowredis.monitor.polling import PoolReport
from snowredis.snowflake.codes import EventKind
from snowredis.web import records
from snowredis.web.messages import BINARY, JSON, MAX_ID_TEXT, PROBLEM_JSON, TEXT
from snowredis.web.served_kinds import ServedKind
from snowredis.web.settings import Limits

Json = dict[str, Any]
EVENTS = "text/event-stream"
_TEXT: Json = {"type": "string"}
# only the paths that name them respond with these
_RARE = {"304", "406", "429", "501"}
_DESCRIPTIONS = {
    "400": "a parameter is not valid",
    "401": "the token is missing or wrong",
    "403": "the host name or the origin is not allowed",
    "404": "no such pool, or nothing at this path",
    "304": "not changed since the ETag in If-None-Match",
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


def description(limits: Limits, pools: Sequence[str], others: Sequence[ServedKind] = ()) -> Json:
    """Return the OpenAPI 3.1 document."""
    pool = _choice("pool", f"default: {pools[0]}", pools)
    by_name = []
    if others:
        by_name.append(
            _choice("kind", "ids of another kind, instead of a pool", sorted({one.kind for one in others}))
        )
    if tags := sorted({one.tag for one in others} - {""}):
        by_name.append(_choice("tag", "numbers of a tag, instead of a pool", tags))
    size: Json = {"type": "integer", "minimum": 1, "maximum": limits.max_count}
    count = _parameter("count", "how many ids", size, required=True)
    id_text: Json = {"type": "string", "minLength": 1, "maxLength": MAX_ID_TEXT}
    an_id_given = (
        pool,
        _parameter("text", "an id in any of its text forms", id_text, place="path", required=True),
        _choice("form", "the text form; default: the most plausible one", list(FORMS)),
    )
    filters = (
        _choice("kind", "only events of this kind", list(EventKind)),
        _parameter(
            "worker",
            "only events of this worker id",
            {"type": "integer", "minimum": 0, "maximum": 4_194_303},
        ),
    )
    an_id: Json = {"type": "string", "minLength": 1, "example": "249734652741287936"}
    if not others:
        an_id["pattern"] = "^[0-9]{1,19}$"
    one, many = _object(id=an_id), _object(ids={"type": "array", "items": an_id})
    lookup = ("304", "429")
    paths = {
        "/id": _get("One id.", one, pool, *by_name, more=("406", "429"), ids=True),
        "/ids": _get(
            "Several ids, strictly increasing.", many, pool, count, *by_name, more=("406", "429"), ids=True
        ),
        "/decode/{text}": _get("Time, fields and bits of an id.", records.DecodedId, *an_id_given),
        "/whois/{text}": _get("Which process made an id.", records.FoundMaker, *an_id_given, more=("429",)),
        "/workers": _get("The pool, its workers and deaths, and the verdict.", PoolReport, pool, more=lookup),
        "/events": _get("The newest events of the pool.", records.Events, pool, *filters, more=lookup),
        "/acknowledge": _get(
            "Store that the deaths of the pool have been seen.",
            Acknowledgement,
            pool,
            _parameter(
                "until", "deaths up to this time; default: now", {"type": "string", "format": "date-time"}
            ),
            more=("429",),
            method="post",
        ),
        "/history": _get("Use of the pool in the last day, a point a minute.", records.History, pool),
        "/pool": _get("Settings and use of the pool.", records.PoolState, pool, more=lookup),
        "/pools": _get("The pools of this service.", records.PoolNames),
        "/kinds": _get(
            "The kinds of ids and tags of this service besides pools.", records.Kinds, more=("304",)
        ),
        "/live": _get("State and changes of the pool, for the dashboard.", None, pool, kind=EVENTS),
        "/healthz": _get("Liveness of the process.", records.Alive, open_to_all=True),
        "/readyz": _get(
            "Readiness: 200 if every pool can make ids, else 503.", records.Readiness, pool, open_to_all=True
        ),
        "/metrics": _get("Metrics for Prometheus.", None, more=("304", "429", "501")),
        "/openapi.json": _get("This description.", {"type": "object"}),
    }
    problem = _object(type=_TEXT, title=_TEXT, status={"type": "integer"}, detail=_TEXT, error=_TEXT)
    problem["properties"]["retry_after_s"] = {"type": "integer", "minimum": 1}
    return {
        "openapi": "3.1.0",
        "info": {"title": "snowredis", "version": __version__, "description": "Ids over HTTP."},
        "paths": paths,
        "security": [{"token": []}, {}],
        "components": {
            "schemas": {"Problem": problem},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
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
        if status != "304":
            responses[status]["content"] = {
                PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}
            }
        if status in {"429", "503"}:
            wait: Json = {"schema": {"type": "integer", "minimum": 1}, "description": "seconds"}
            responses[status]["headers"] = {"Retry-After": wait}
    operation: Json = {"summary": summary, "parameters": list(parameters), "responses": responses}
    if open_to_all:
        operation["security"] = []
    return {method: operation}
