"""The description of the service for programs, /openapi.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snowredis import __version__
from snowredis.core.text import FORMS
from snowredis.web.answers import BINARY, JSON, TEXT
from snowredis.web.limits import Limits

Part = dict[str, Any]
_ID: Part = {"type": "string", "pattern": "^[0-9]{1,19}$", "example": "249734652741287936"}
_OBJECT: Part = {"type": "object"}
_PROBLEM: Part = {
    "type": "object",
    "required": ["error", "detail"],
    "properties": {"error": {"type": "string"}, "detail": {"type": "string"}},
}
_WHY = {
    "400": "a parameter that cannot be used",
    "401": "no token, or a wrong one",
    "403": "a Host or an origin that is not allowed",
    "404": "no such pool, or nothing at this path",
    "405": "another method than GET",
    "406": "none of the kinds that there are",
    "413": "a request with a body",
    "414": "a path and query that are too long",
    "429": "too many requests; Retry-After says when",
    "500": "a fault of the service",
    "501": "something that is needed for it is not installed",
    "503": "no id now: Redis away, pool full, clock moved back; Retry-After says when",
}
_COMMON = ("400", "401", "403", "404", "405", "413", "414", "429", "500", "503")


def description(limits: Limits, pools: Sequence[str]) -> Part:
    """OpenAPI 3.1."""
    pool: Part = {
        "name": "pool",
        "in": "query",
        "description": f"default: {pools[0]}",
        "schema": {"type": "string", "enum": list(pools)},
    }
    count: Part = {
        "name": "count",
        "in": "query",
        "required": True,
        "schema": {"type": "integer", "minimum": 1, "maximum": limits.max_count},
    }
    text: Part = {
        "name": "text",
        "in": "path",
        "required": True,
        "description": "an id in any of its text forms",
        "schema": {"type": "string", "minLength": 1, "maxLength": 100},
    }
    form: Part = {
        "name": "form",
        "in": "query",
        "description": "the form that it has; default: the most plausible",
        "schema": {"type": "string", "enum": list(FORMS)},
    }
    one = {"type": "object", "required": ["id"], "properties": {"id": _ID}}
    many = {
        "type": "object",
        "required": ["ids"],
        "properties": {"ids": {"type": "array", "items": _ID}},
    }
    listed = {"type": "object", "required": ["pool"], "properties": {"pool": {"type": "string"}}}
    ready = {"type": "object", "required": ["ready"], "properties": {"ready": {"type": "boolean"}}}
    paths = {
        "/id": _get("One id.", one, pool, ids=True),
        "/ids": _get("Many ids, strictly increasing.", many, pool, count, ids=True),
        "/decode/{text}": _get("An id taken apart.", _OBJECT, pool, text, form),
        "/whois/{text}": _get("Which process made an id.", _OBJECT, pool, text, form),
        "/workers": _get("Who holds which worker id.", listed, pool),
        "/events": _get("What happened in the pool lately.", listed, pool),
        "/pool": _get("The pool's settings and use.", _OBJECT, pool),
        "/pools": _get("The pools of this service.", _OBJECT),
        "/healthz": _get("Whether the process answers.", _OBJECT, open_to_all=True),
        "/readyz": _get("Whether it can make ids: 200 or 503.", ready, open_to_all=True),
        "/metrics": _get("For Prometheus.", None, more=("501",)),
        "/openapi.json": _get("This.", _OBJECT),
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
    schema: Part | None,
    *parameters: Part,
    ids: bool = False,
    open_to_all: bool = False,
    more: Sequence[str] = (),
) -> Part:
    content: Part = (
        {JSON: {"schema": schema}} if schema is not None else {TEXT: {"schema": {"type": "string"}}}
    )
    if ids:
        content[TEXT] = {"schema": {"type": "string", "description": "one a line"}}
        content[BINARY] = {
            "schema": {"type": "string", "format": "binary", "description": "big-endian int64, 8 bytes each"}
        }
    problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
    answers: Part = {"200": {"description": "the answer", "content": content}}
    for status in sorted({*_COMMON, *more, *(["406"] if ids else [])}):
        answers[status] = {"description": _WHY[status], "content": {JSON: problem}}
    if "ready" in str(schema):
        answers["503"] = {"description": "not ready", "content": {JSON: {"schema": schema}}}
    told: Part = {"summary": summary, "parameters": list(parameters), "responses": answers}
    if open_to_all:
        told["security"] = []
    return {"get": told}
