"""The API description at /openapi.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from snowredis import __version__
from snowredis.core.text import FORMS
from snowredis.monitor.snapshot import PoolInfo, WorkerInfo
from snowredis.snowflake.codes import EventKind
from snowredis.web.json_values import is_public
from snowredis.web.messages import BINARY, JSON, MAX_ID_TEXT, PROBLEM_JSON, TEXT
from snowredis.web.served_kinds import ServedKind
from snowredis.web.settings import Limits

Json = dict[str, Any]
EVENTS = "text/event-stream"
# only the paths that name them respond with these
_RARE = {"304", "406", "429", "501"}


def _object(**properties: Json) -> Json:
    """Return the schema of an object with these properties, all required."""
    return {"type": "object", "required": list(properties), "properties": properties}


def _parameter(name: str, text: str, schema: Json, *, place: str = "query", required: bool = False) -> Json:
    return {"name": name, "in": place, "required": required, "description": text, "schema": schema}


_ID: Json = {"type": "string", "pattern": "^[0-9]{1,19}$", "example": "249734652741287936"}
_ANY_ID: Json = {"type": "string", "minLength": 1, "example": "249734652741287936"}
_OBJECT: Json = {"type": "object"}
_TEXT: Json = {"type": "string"}
_BOOL: Json = {"type": "boolean"}
_PROBLEM = _object(type=_TEXT, title=_TEXT, status={"type": "integer"}, detail=_TEXT, error=_TEXT)
_PROBLEM["properties"]["retry_after_s"] = {"type": "integer", "minimum": 1}
_KINDS: dict[str, Json] = {"int": {"type": "integer"}, "bool": _BOOL, "str": _TEXT, "Layout": _TEXT}


def _fields(kind: type[Any]) -> Json:
    """Return the schema of a dataclass as jsonable() converts it."""
    names = {field.name: str(field.type) for field in fields(kind) if is_public(field.name)}
    return _object(**{name: _KINDS.get(text, {}) for name, text in names.items()})


_DESCRIPTIONS = {
    "400": "a parameter is not valid",
    "401": "the token is missing or wrong",
    "403": "the host name or the origin is not allowed",
    "404": "no such pool, or nothing at this path",
    "304": "not changed since the ETag in If-None-Match",
    "405": "the method is not GET",
    "406": "no supported media type is acceptable",
    "413": "the request has a body",
    "414": "path and query are too long",
    "429": "too many requests; see Retry-After",
    "500": "the service failed",
    "501": "a required package is not installed",
    "503": "no id now: Redis unavailable, pool full, clock moved back; see Retry-After",
}


def description(limits: Limits, pools: Sequence[str], others: Sequence[ServedKind] = ()) -> Json:
    """Return the OpenAPI 3.1 document."""
    by_name = []
    if others:
        kinds, tags = sorted({one.kind for one in others}), sorted({one.tag for one in others} - {""})
        by_name.append(
            _parameter("kind", "ids of another kind, instead of a pool", {"type": "string", "enum": kinds})
        )
        if tags:
            by_name.append(
                _parameter("tag", "numbers of a tag, instead of a pool", {"type": "string", "enum": tags})
            )
    pool = _parameter("pool", f"default: {pools[0]}", {"type": "string", "enum": list(pools)})
    size: Json = {"type": "integer", "minimum": 1, "maximum": limits.max_count}
    count = _parameter("count", "how many ids", size, required=True)
    id_text: Json = {"type": "string", "minLength": 1, "maxLength": MAX_ID_TEXT}
    text = _parameter("text", "an id in any of its text forms", id_text, place="path", required=True)
    forms: Json = {"type": "string", "enum": list(FORMS)}
    form = _parameter("form", "the text form; default: the most plausible one", forms)
    kind = _parameter("kind", "only events of this kind", {"type": "string", "enum": list(EventKind)})
    worker = _parameter(
        "worker", "only events of this worker id", {"type": "integer", "minimum": 0, "maximum": 4_194_303}
    )
    an_id = _ANY_ID if others else _ID
    one, many = _object(id=an_id), _object(ids={"type": "array", "items": an_id})
    workers = _object(pool=_TEXT, workers={"type": "array", "items": _fields(WorkerInfo)})
    events = _object(pool=_TEXT, events={"type": "array", "items": _OBJECT})
    decoded = _object(
        id=_ID,
        form=forms,
        time={"type": ["string", "null"]},
        fields={"type": "array", "items": _object(name=_TEXT, bits=_TEXT, value=_TEXT)},
        forms=_OBJECT,
        layout=_TEXT,
    )
    points: Json = {"type": "array", "items": {"type": ["integer", "null"]}, "minItems": 4, "maxItems": 4}
    history = _object(pool=_TEXT, points={"type": "array", "items": points})
    all_kinds = _object(kinds={"type": "array", "items": _OBJECT})
    names = _object(pools={"type": "array", "items": _TEXT})
    status = _object(level=_TEXT, headline=_TEXT)
    ready_pool = _object(ready=_BOOL, status=status)
    ready_tag = _object(state=_TEXT, level=_TEXT)
    ready = _object(
        ready=_BOOL,
        pools={"type": "object", "additionalProperties": ready_pool},
        tags={"type": "object", "additionalProperties": ready_tag},
    )
    lookup = ("304", "429")
    paths = {
        "/id": _get("One id.", one, pool, *by_name, more=("406", "429"), ids=True),
        "/ids": _get(
            "Several ids, strictly increasing.", many, pool, count, *by_name, more=("406", "429"), ids=True
        ),
        "/decode/{text}": _get("Time, fields and bits of an id.", decoded, pool, text, form),
        "/whois/{text}": _get(
            "Which process made an id.",
            _object(decoded=decoded, whois=_OBJECT),
            pool,
            text,
            form,
            more=("429",),
        ),
        "/workers": _get("The workers of the pool.", workers, pool, more=lookup),
        "/events": _get("The newest events of the pool.", events, pool, kind, worker, more=lookup),
        "/history": _get("Use of the pool in the last day, a point a minute.", history, pool),
        "/pool": _get("Settings and use of the pool.", _fields(PoolInfo), pool, more=lookup),
        "/pools": _get("The pools of this service.", names),
        "/kinds": _get("The kinds of ids and tags of this service besides pools.", all_kinds, more=("304",)),
        "/live": _get("State and changes of the pool, as server-sent events.", None, pool, kind=EVENTS),
        "/healthz": _get("Liveness of the process.", _object(ok=_BOOL), open_to_all=True),
        "/readyz": _get(
            "Readiness: 200 if every pool can make ids, else 503.", ready, pool, open_to_all=True
        ),
        "/metrics": _get("Metrics for Prometheus.", None, more=("304", "429", "501")),
        "/openapi.json": _get("This description.", _OBJECT),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "snowredis", "version": __version__, "description": "Ids over HTTP."},
        "paths": paths,
        "security": [{"token": []}, {}],
        "components": {
            "schemas": {"Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _get(
    summary: str,
    schema: Json | None,
    *parameters: Json,
    ids: bool = False,
    open_to_all: bool = False,
    more: Sequence[str] = (),
    kind: str = TEXT,
) -> Json:
    media_type, body = (kind, _TEXT) if schema is None else (JSON, schema)
    content: Json = {media_type: {"schema": body}}
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
    return {"get": operation}
