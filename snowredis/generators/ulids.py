"""The kind "ulid": the time in ms and 80 random bits, as 26 characters that sort by time (github.com/ulid/spec).

The random bits are os.urandom()'s; the text is ulid-transform's. That library's own random numbers, as of 2.2, repeat
in processes that are forked from one process, and python-ulid's go on with the next number within a millisecond.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from snowredis.core.description import IdDescription
from snowredis.generators.kind import IdKind
from snowredis.generators.local import Form, LocalGenerator, form_setting

_TYPES: Mapping[Form, Any] = {"uuid": uuid.UUID, "text": str, "bytes": bytes}


def _describe(settings: Mapping[str, Any]) -> IdDescription:
    form: Form = settings.get("form", "text")
    length = 36 if form == "uuid" else 26
    return IdDescription("ulid", _TYPES[form], 128, length, sortable=True, guessable=False, leaks=("time",))


def _make_bytes() -> bytes:
    return (time.time_ns() // 1_000_000).to_bytes(6) + os.urandom(10)


def _open(settings: Mapping[str, Any]) -> LocalGenerator[Any]:
    form: Form = settings.get("form", "text")
    if form == "text":
        from ulid_transform import bytes_to_ulid

        make: Callable[[], Any] = lambda: bytes_to_ulid(_make_bytes())  # noqa: E731
    elif form == "uuid":
        make = lambda: uuid.UUID(bytes=_make_bytes())  # noqa: E731
    else:
        make = _make_bytes
    return LocalGenerator(make, _describe(settings))


ULID = IdKind(
    name="ulid",
    summary="26 characters, ordered by time, without any coordination",
    settings={"form": form_setting("text")},
    describe=_describe,
    open=_open,
    extra="ulid",
)
