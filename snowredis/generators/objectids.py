"""The kind "objectid": MongoDB's ObjectId, from bson: 4 bytes of seconds, 5 random bytes a process, 3 of a counter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from snowredis.core.description import IdDescription
from snowredis.generators.kind import IdKind
from snowredis.generators.local import LocalGenerator, form_setting

_Form: TypeAlias = Literal["text", "bytes"]


def _describe(settings: Mapping[str, Any]) -> IdDescription:
    kind = bytes if settings.get("form", "text") == "bytes" else str
    return IdDescription(
        "objectid", kind, 96, 24, sortable=True, guessable=True, leaks=("time", "worker", "volume")
    )


def _open(settings: Mapping[str, Any]) -> LocalGenerator[Any]:
    from bson import ObjectId

    if settings.get("form", "text") == "bytes":
        return LocalGenerator(lambda: ObjectId().binary, _describe(settings))
    return LocalGenerator(lambda: str(ObjectId()), _describe(settings))


OBJECTID = IdKind(
    name="objectid",
    summary="24 hex digits, ordered by second, without any coordination",
    settings={"form": form_setting("text", _Form)},
    describe=_describe,
    open=_open,
    extra="objectid",
)
