"""The description of the service, an OpenAPI document. It is a file of the package, and a test compares it.

Its records, such as Reading, Event and Whois of snowredis.monitor, are those that the commands show with --json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scripts._docs.schema import schema_of
from snowredis import __version__
from snowredis.core.as_json import DecodedId
from snowredis.core.text import FORMS
from snowredis.monitor.history import Event, Whois
from snowredis.monitor.pool_monitor import Reading
from snowredis.web.messages import BINARY, JSON, MAX_COUNT, MAX_FILTER, MAX_ID_TEXT, MAX_WORKER_ID, PROBLEM_JSON, TEXT

FILE = Path(__file__).parents[2] / "snowredis" / "web" / "static" / "openapi.json"
Json = dict[str, Any]
_TEXT: Json = {"type": "string"}
_NUMBER: Json = {"type": "integer", "minimum": 0}
_PROBLEM = {
    "description": "a problem: 400, 404, 405, 406 for a request that cannot be served, 401, 403, 429 for one that is "
    "not allowed, 503 if there is no id now, 500 if the service failed",
    "headers": {"Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "seconds"}},
    "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def description() -> str:
    """Return the OpenAPI 3.1 document."""
    problem = _object(type=_TEXT, title=_TEXT, status=_NUMBER, detail=_TEXT, error=_TEXT)
    problem["properties"]["retry_after_s"] = {"type": "integer", "minimum": 1}
    schemes = {"token": {"type": "http", "scheme": "bearer"}, "password": {"type": "http", "scheme": "basic"}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "snowredis", "version": __version__, "description": "Ids over HTTP."},
        "paths": {path: {"get": _operation(*rest)} for path, *rest in _paths()},
        "security": [{"token": []}, {"password": []}, {}],
        "components": {"schemas": {"Problem": problem}, "securitySchemes": schemes},
    }
    return json.dumps(document, separators=(",", ":")) + "\n"


def _paths() -> list[tuple[Any, ...]]:
    """Return path, summary, schema of the response (None: text), and parameters of each operation."""
    pool = _parameter("pool", "default: the first of /pools", _TEXT)
    named = (pool, _parameter("kind", "ids of another kind", _TEXT), _parameter("tag", "ids of a tag", _TEXT))
    number = {"type": "integer", "minimum": 1, "maximum": MAX_COUNT}
    count = _parameter("count", "how many ids", number, required=True)
    text = _parameter(
        "text", "an id in any text form", _TEXT | {"minLength": 1, "maxLength": MAX_ID_TEXT}, place="path"
    )
    given = (pool, text, _parameter("form", "its text form", _TEXT | {"enum": list(FORMS)}))
    part = (
        _parameter("filter", "what host, label, pid or worker id contain", _TEXT | {"maxLength": MAX_FILTER}),
        _parameter("limit", "how many of them", number),
    )
    worker = _parameter("worker", "only events of this worker id", _NUMBER | {"maximum": MAX_WORKER_ID})
    an_id: Json = _TEXT | {"minLength": 1, "example": "249734652741287936"}
    report = schema_of(Reading)
    by_state = {"type": "object", "additionalProperties": _NUMBER}
    report["properties"] |= {"states": by_state, "found": by_state, "ids_per_second": _NUMBER, "services": _NUMBER}
    whois = _object(decoded=schema_of(DecodedId), whois=schema_of(Whois))
    events = _object(pool=_TEXT, events=_list(schema_of(Event)))
    state = _object(
        ready={"type": "boolean", "description": "whether this process can make ids of all these pools"},
        pools={
            "type": "object",
            "description": "by name; empty without the token, if the service has one",
            "additionalProperties": _object(
                ready={"type": "boolean"},
                error={"type": ["string", "null"], "description": "why it is not ready, a code"},
                detail={"type": ["string", "null"], "description": "the same for people"},
            ),
        },
    )
    return [
        ("/id", "One id.", _object(id=an_id), *named),
        ("/ids", "Several ids, strictly increasing.", _object(ids=_list(an_id)), *named, count),
        ("/decode/{text}", "Time, fields and bits of an id.", schema_of(DecodedId), *given),
        ("/whois/{text}", "Which process made an id.", whois, *given),
        ("/workers", "The pool, its workers and deaths, and the verdict.", report, pool, *part),
        ("/events", "The newest events of the pool.", events, pool, worker),
        ("/pools", "The pools of this service; the first is the default.", _object(pools=_list(_TEXT))),
        ("/healthz", "Liveness of the process.", _object(ok={"type": "boolean"})),
        ("/readyz", "Readiness: 200 if every pool can make ids, else 503.", state, pool),
        ("/metrics", "Metrics for Prometheus.", None),
        ("/openapi.json", "This description.", {"type": "object"}),
    ]


def _operation(summary: str, schema: Json | None, *parameters: Json) -> Json:
    content: Json = {TEXT: {"schema": _TEXT}} if schema is None else {JSON: {"schema": schema}}
    if summary in ("One id.", "Several ids, strictly increasing."):
        content[TEXT] = {"schema": _TEXT}
        content[BINARY] = {"schema": {"type": "string", "format": "binary", "description": "big-endian int64"}}
    responses = {"200": {"description": "success", "content": content}, "default": _PROBLEM}
    return {"summary": summary, "parameters": list(parameters), "responses": responses}


def _object(**properties: Json) -> Json:
    """Return the schema of an object with these properties, all required."""
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(of: Json) -> Json:
    return {"type": "array", "items": of}


def _parameter(name: str, text: str, schema: Json, *, place: str = "query", required: bool = False) -> Json:
    return {"name": name, "in": place, "required": required or place == "path", "description": text, "schema": schema}
