"""Parameters of a request: its query, how many ids, which media type, which id. Raises Problem for invalid ones."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import parse_qs

from snowredis.core.layout import Layout
from snowredis.core.text import parse_user_id
from snowredis.errors import InvalidId
from snowredis.snowflake.codes import EventKind
from snowredis.web.id_formats import BINARY, JSON, TEXT, choose_media_type
from snowredis.web.problems import Headers, Problem

MAX_ID_TEXT = 100


def parse_query(query: bytes) -> dict[str, str]:
    """Return the value of each name in a query string. Raises Problem, also for a name that is given twice."""
    if not query:
        return {}
    try:
        values = parse_qs(query.decode("ascii"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise Problem(400, "BadQuery", "the query cannot be parsed") from None
    if twice := [name for name, texts in values.items() if len(texts) > 1]:
        raise Problem(400, "BadQuery", f"{twice[0][:40]} is given twice")
    return {name: texts[0] for name, texts in values.items()}


def parse_count(query: Mapping[str, str], max_count: int) -> int:
    """Return how many ids are requested. Raises Problem."""
    text = query.get("count", "")
    # the length first: int() is slow for megabytes of digits
    if text.isascii() and text.isdecimal() and len(text) < 10 and 0 < int(text) <= max_count:
        return int(text)
    raise Problem(400, "BadCount", f"count must be a whole number from 1 to {max_count}, not {text[:40]!r}")


def parse_media_type(headers: Headers) -> str:
    """Return JSON, TEXT or BINARY as the Accept header prefers. Raises Problem."""
    accept = b",".join([value for name, value in headers if name == b"accept"])
    return _media_type_of(accept)


# clients send few different Accept headers
@lru_cache(maxsize=200)
def _media_type_of(accept: bytes) -> str:
    media_type = choose_media_type(accept.decode("latin-1"))
    if media_type is None:
        raise Problem(
            406, "NotAcceptable", f"ids are available as {JSON}, {TEXT} and {BINARY} (big-endian int64)"
        )
    return media_type


def parse_id(text: str, query: Mapping[str, str], layout: Layout) -> tuple[str, int]:
    """Return (form, id) of the most plausible reading of *text*. Raises InvalidId, ConfigError."""
    if len(text) > MAX_ID_TEXT:
        raise InvalidId(f"the text of an id has {MAX_ID_TEXT} characters at most, not {len(text)}")
    form = query["form"][:20] if "form" in query else None
    return parse_user_id(text, layout, form=form, now_ms=time.time_ns() // 1_000_000)[0]


def parse_event_filter(query: Mapping[str, str]) -> tuple[EventKind | None, int | None]:
    """Return the kind and the worker id that events are to have; None: any. Raises Problem."""
    kind, worker = query.get("kind"), query.get("worker")
    if kind is not None and kind not in set(EventKind):
        raise Problem(400, "BadKind", f"kind must be one of {', '.join(EventKind)}, not {kind[:40]!r}")
    if worker is not None and not re.fullmatch(r"0|[1-9]\d{0,6}", worker, re.ASCII):
        raise Problem(400, "BadWorker", f"worker must be a worker id, not {worker[:40]!r}")
    return EventKind(kind) if kind is not None else None, int(worker) if worker is not None else None
