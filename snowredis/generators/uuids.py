"""The kinds "uuid7" and "uuid4".

uuid4 is the standard library's: 122 bits of os.urandom() each, so that no fork repeats one. uuid7 is uuid-utils', which
seeds its random numbers again in a forked child; without it that of the standard library, which has one since 3.14.
Versions of uuid-utils before 0.14.1 repeat ids in forked children, unless they are told of forks as here.
"""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from snowredis.core.description import IdDescription
from snowredis.generators.kind import IdKind
from snowredis.generators.local import Form, LocalGenerator, form_setting

_SETTINGS = {"form": form_setting("uuid")}
_TYPES: Mapping[Form, Any] = {"uuid": uuid.UUID, "text": str, "bytes": bytes}


def _describe_uuid7(settings: Mapping[str, Any]) -> IdDescription:
    form: Form = settings.get("form", "uuid")
    return IdDescription("uuid7", _TYPES[form], 128, 36, sortable=True, guessable=False, leaks=("time",))


def _describe_uuid4(settings: Mapping[str, Any]) -> IdDescription:
    form: Form = settings.get("form", "uuid")
    return IdDescription("uuid4", _TYPES[form], 128, 36, sortable=False, guessable=False)


def _open_uuid7(settings: Mapping[str, Any]) -> LocalGenerator[Any]:
    try:
        import uuid_utils
        from uuid_utils import compat, reseed_rng
    except ImportError:
        if not hasattr(uuid, "uuid7"):
            raise
        plain, full = uuid.uuid7, uuid.uuid7
    else:
        # its own type is not the standard library's UUID, which drivers expect, and is made ten times as fast
        plain, full = uuid_utils.uuid7, compat.uuid7
        _call_in_forked_children(reseed_rng)
    makers: Mapping[Form, Callable[[], Any]] = {
        "uuid": full,
        "text": lambda: str(plain()),
        "bytes": lambda: plain().bytes,
    }
    return LocalGenerator(makers[settings.get("form", "uuid")], _describe_uuid7(settings))


def _open_uuid4(settings: Mapping[str, Any]) -> LocalGenerator[Any]:
    makers: Mapping[Form, Callable[[], Any]] = {
        "uuid": uuid.uuid4,
        "text": lambda: str(uuid.uuid4()),
        "bytes": lambda: uuid.uuid4().bytes,
    }
    return LocalGenerator(makers[settings.get("form", "uuid")], _describe_uuid4(settings))


@functools.cache  # once a process
def _call_in_forked_children(function: Callable[[], None]) -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


UUID7 = IdKind(
    name="uuid7",
    summary="UUIDs, ordered by time (RFC 9562), without any coordination",
    settings=_SETTINGS,
    describe=_describe_uuid7,
    open=_open_uuid7,
    extra="uuid",
)
UUID4 = IdKind(
    name="uuid4",
    summary="random UUIDs, without any coordination",
    settings=_SETTINGS,
    describe=_describe_uuid4,
    open=_open_uuid4,
)
