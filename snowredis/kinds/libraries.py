"""Generators whose ids are made by a function of a library, without a server.

The kinds "uuid7" and "uuid4".

uuid4 is the standard library's: 122 bits of os.urandom() each, so that no fork repeats one. uuid7 is uuid-utils', which
seeds its random numbers again in a forked child; without it that of the standard library, which has one since 3.14.
Versions of uuid-utils before 0.14.1 repeat ids in forked children, unless they are told of forks as here.

The kind "ulid": the time in ms and 80 random bits, as 26 characters that sort by time (github.com/ulid/spec).

The random bits are os.urandom()'s; the text is ulid-transform's. That library's own random numbers, as of 2.2, repeat
in processes that are forked from one process, and python-ulid's go on with the next number within a millisecond.

The kind "objectid": MongoDB's ObjectId, from bson: 4 bytes of seconds, 5 random bytes a process, 3 of a counter.
"""

from __future__ import annotations

import functools
import os
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from snowredis.core.description import IdDescription
from snowredis.errors import GeneratorClosed
from snowredis.kinds.protocol import GeneratorBase, IdKind
from snowredis.settings import Setting, one_of
from snowredis.snowflake.batches import check_count

Id = TypeVar("Id")
Form: TypeAlias = Literal["uuid", "text", "bytes"]
FORMS: tuple[Form, ...] = get_args(Form)


def form_setting(default: Form, kind: object = Form) -> Setting:
    """Return the declaration of the setting ``form`` of a kind; *kind*: a Literal of the forms that it has."""
    text = "type of an id in Python: `uuid`, `text` or `bytes`"
    return Setting("form", one_of(kind), default, default, text)


class LocalGenerator(GeneratorBase[Id]):
    """Generator of ids of a function: of UUIDs, ULIDs, ObjectIds.

    ``next_id`` is that function, with nothing around it.
    """

    __slots__ = ("_closed", "_description", "next_id")

    next_id: Callable[[], Id]  # a method of the base class

    def __init__(self, make: Callable[[], Id], description: IdDescription) -> None:
        self._description = description
        self._closed = False
        self.next_id = make

    @property
    def description(self) -> IdDescription:
        return self._description

    @property
    def closed(self) -> bool:
        return self._closed

    def next_ids(self, count: int) -> list[Id]:
        """Make *count* ids at once, 0 to 1,000,000."""
        make = self.next_id
        return [make() for _ in range(check_count(count))]

    def close(self) -> None:
        """Stop making ids. Idempotent."""
        self._closed = True
        self.next_id = self._refuse

    def _refuse(self) -> Id:
        raise GeneratorClosed("", self._description.kind)


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


def _describe_ulids(settings: Mapping[str, Any]) -> IdDescription:
    form: Form = settings.get("form", "text")
    length = 36 if form == "uuid" else 26
    return IdDescription("ulid", _TYPES[form], 128, length, sortable=True, guessable=False, leaks=("time",))


def _make_bytes() -> bytes:
    return (time.time_ns() // 1_000_000).to_bytes(6) + os.urandom(10)


def _open_ulids(settings: Mapping[str, Any]) -> LocalGenerator[Any]:
    form: Form = settings.get("form", "text")
    if form == "text":
        from ulid_transform import bytes_to_ulid

        make: Callable[[], Any] = lambda: bytes_to_ulid(_make_bytes())  # noqa: E731
    elif form == "uuid":
        make = lambda: uuid.UUID(bytes=_make_bytes())  # noqa: E731
    else:
        make = _make_bytes
    return LocalGenerator(make, _describe_ulids(settings))


ULID = IdKind(
    name="ulid",
    summary="26 characters, ordered by time, without any coordination",
    settings={"form": form_setting("text")},
    describe=_describe_ulids,
    open=_open_ulids,
    extra="ulid",
)


_Form: TypeAlias = Literal["text", "bytes"]


def _describe_objectids(settings: Mapping[str, Any]) -> IdDescription:
    kind = bytes if settings.get("form", "text") == "bytes" else str
    return IdDescription(
        "objectid", kind, 96, 24, sortable=True, guessable=True, leaks=("time", "worker", "volume")
    )


def _open_objectids(settings: Mapping[str, Any]) -> LocalGenerator[Any]:
    from bson import ObjectId

    if settings.get("form", "text") == "bytes":
        return LocalGenerator(lambda: ObjectId().binary, _describe_objectids(settings))
    return LocalGenerator(lambda: str(ObjectId()), _describe_objectids(settings))


OBJECTID = IdKind(
    name="objectid",
    summary="24 hex digits, ordered by second, without any coordination",
    settings={"form": form_setting("text", _Form)},
    describe=_describe_objectids,
    open=_open_objectids,
    extra="objectid",
)
