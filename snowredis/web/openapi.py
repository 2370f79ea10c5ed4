"""The API description at /openapi.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snowredis import __version__
from snowredis.core.text import FORMS
from snowredis.lease.codes import EventKind
from snowredis.web.id_formats import BINARY, JSON, TEXT
from snowredis.web.limits import Limits
from snowredis.web.parameters import MAX_ID_TEXT

Json = dict[str, Any]


def _object(**properties: Json) -> Json:
    """Return the schema of an object with these properties, all required."""
    return {"type": "object", "required": list(properties), "properties": properties}


def _parameter(name: str, text: str, schema: Json, *, place: str = "query", required: bool = False) -> Json:
    return {"name": name, "in": place, "required": required, "description": text, "schema": schema}


_ID: Json = {"type": "string", "pattern": "^[0-9]{1,19}$", "example": "249734652741287936"}
_OBJECT: Json = {"type": "object"}
_PROBLEM = _object(error={"type": "string"}, detail={"type": "string"})
_DESCRIPTIONS = {
    "400": "a parameter is not valid",
    "401": "the token is missing or wrong",
    "403": "the host name or the origin is not allowed",
    "404": "no such pool, or nothing at this path",
    "405": "the method is not GET",
    "406": "no supported media type is acceptable",
    "413": "the request has a body",
    "414": "path and query are too long",
    "429": "too many requests; see Retry-After",
    "500": "the service failed",
    "501": "a required package is not installed",
    "503": "no id now: Redis unavailable, pool full, clock moved back; see Retry-After",
}


def description(limits: Limits, pools: Sequence[str]) -> Json:
    """Return the OpenAPI 3.1 document."""
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
    one, many = _object(id=_ID), _object(ids={"type": "array", "items": _ID})
    listed, ready = _object(pool={"type": "string"}), _object(ready={"type": "boolean"})
    paths = {
        "/id": _get("One id.", one, pool, ids=True),
        "/ids": _get("Several ids, strictly increasing.", many, pool, count, ids=True),
        "/decode/{text}": _get("Time, fields and bits of an id.", _OBJECT, pool, text, form),
        "/whois/{text}": _get("Which process made an id.", _OBJECT, pool, text, form),
        "/workers": _get("The workers of the pool.", listed, pool),
        "/events": _get("The newest events of the pool.", listed, pool, kind, worker),
        "/history": _get("Use of the pool in the last day, a point a minute.", listed, pool),
        "/pool": _get("Settings and use of the pool.", _OBJECT, pool),
        "/pools": _get("The pools of this service.", _OBJECT),
        "/healthz": _get("Liveness of the process.", _OBJECT, open_to_all=True),
        "/readyz": _get("Readiness: 200 if every pool can make ids, else 503.", ready, open_to_all=True),
        "/metrics": _get("Metrics for Prometheus.", None, more=("501",)),
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
) -> Json:
    media_type, body = (TEXT, {"type": "string"}) if schema is None else (JSON, schema)
    content: Json = {media_type: {"schema": body}}
    if ids:
        packed = {"type": "string", "format": "binary", "description": "big-endian int64, 8 bytes an id"}
        content[TEXT] = {"schema": {"type": "string", "description": "one id a line"}}
        content[BINARY] = {"schema": packed}
        more = ("406",)
    problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
    responses: Json = {"200": {"description": "success", "content": content}}
    # only the paths that name them in *more* respond with these two
    for status in sorted(_DESCRIPTIONS.keys() - {"406", "501"} | set(more)):
        responses[status] = {"description": _DESCRIPTIONS[status], "content": {JSON: problem}}
    if "ready" in str(schema):
        responses["503"] = {"description": "not ready", "content": {JSON: {"schema": schema}}}
    operation: Json = {"summary": summary, "parameters": list(parameters), "responses": responses}
    if open_to_all:
        operation["security"] = []
    return {"get": operation}
