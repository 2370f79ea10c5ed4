"""The kinds whose ids need no server: "uuid7", "uuid4", "ulid" and "objectid".

All go through the fork guard: a forked child repeats no id of its parent, however it was forked. What each is made of:

- uuid4: the standard library's, 122 random bits.
- uuid7: that of uuid-utils, whose random numbers are seeded again in a forked child; without it that of the standard
  library, which has one since 3.14.
- ulid: the time in ms and 80 bits of os.urandom(), as 26 characters that sort by time (github.com/ulid/spec). The text
  is that of ulid-transform, whose own random numbers, as of 2.2, repeat in processes that are forked from one process.
- objectid: MongoDB's ObjectId: 4 bytes of seconds, 5 random bytes a process, 3 of a counter. Not that of bson, which
  tells processes apart by their pids: in a pid namespace of its own, a child can have the pid of its parent.
"""

from __future__ import annotations

import itertools
import os
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from snowredis.core.description import IdDescription
from snowredis.core.values import check_count
from snowredis.errors import GeneratorClosed
from snowredis.kinds.protocol import GeneratorBase, IdKind
from snowredis.process.fork import GUARD
from snowredis.settings import Setting, one_of

Id = TypeVar("Id")
Form: TypeAlias = Literal["uuid", "text", "bytes"]
FORMS: tuple[Form, ...] = get_args(Form)
_TYPES: Mapping[Form, Any] = {"uuid": uuid.UUID, "text": str, "bytes": bytes}


class LocalGenerator(GeneratorBase[Id]):
    """Generator of ids that a function makes: of UUIDs, ULIDs, ObjectIds.

    Args:
        make: makes an id.
        reset: called in a forked child before its first id, so that *make* repeats nothing of the parent.
    """

    __slots__ = ("_closed", "_description", "_make", "_reset")

    def __init__(
        self, make: Callable[[], Id], description: IdDescription, reset: Callable[[], object] | None = None
    ) -> None:
        self._make, self._description, self._reset = make, description, reset
        self._closed = False
        GUARD.reset_in_child(self)

    @property
    def description(self) -> IdDescription:
        return self._description

    @property
    def closed(self) -> bool:
        return self._closed

    def next_id(self) -> Id:
        """Make one id. Thread-safe. Raises GeneratorClosed after close()."""
        return GUARD.in_one_process(self._make)

    def next_ids(self, count: int) -> list[Id]:
        """Make *count* ids at once, 0 to 1,000,000."""
        make, number = self._make, check_count(count)
        if self._closed:
            make()
        return GUARD.in_one_process(lambda: [make() for _ in range(number)])

    def close(self) -> None:
        """Stop making ids. Idempotent."""
        self._closed = True
        self._make = self._refuse

    def _refuse(self) -> Id:
        raise GeneratorClosed("", self._description.kind)

    def _after_fork(self) -> None:
        if self._reset is not None:
            self._reset()


def form_setting(default: Form, kind: object = Form) -> Setting:
    """Return the declaration of the setting ``form`` of a kind; *kind*: a Literal of the forms that it has."""
    text = "type of an id in Python: `uuid`, `text` or `bytes`"
    return Setting("form", one_of(kind), default, default, text)


# --- UUIDs -----------------------------------------------------------------------------------------


def _describe_uuid7(settings: Mapping[str, Any]) -> IdDescription:
    form: Form = settings.get("form", "uuid")
    return IdDescription("uuid7", _TYPES[form], 128, 36, sortable=True, guessable=False, leaks=("time",))


def _describe_uuid4(settings: Mapping[str, Any]) -> IdDescription:
    form: Form = settings.get("form", "uuid")
    return IdDescription("uuid4", _TYPES[form], 128, 36, sortable=False, guessable=False)


def _open_uuid7(settings: Mapping[str, Any]) -> LocalGenerator[Any]:
    reset: Callable[[], object] | None = None
    try:
        import uuid_utils
        from uuid_utils import compat, reseed_rng
    except ImportError:
        if not hasattr(uuid, "uuid7"):
            raise
        plain, full = uuid.uuid7, uuid.uuid7
    else:
        # its own type is not the standard library's UUID, which drivers expect, and is made ten times as fast
        plain, full, reset = uuid_utils.uuid7, compat.uuid7, reseed_rng
    return LocalGenerator(_maker(settings, full, plain), _describe_uuid7(settings), reset)


def _open_uuid4(settings: Mapping[str, Any]) -> LocalGenerator[Any]:
    return LocalGenerator(_maker(settings, uuid.uuid4, uuid.uuid4), _describe_uuid4(settings))


def _maker(settings: Mapping[str, Any], full: Callable[[], Any], plain: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that makes UUIDs in the form of *settings*: what *full* makes, else of what *plain* makes."""
    form: Form = settings.get("form", "uuid")
    return {"uuid": full, "text": lambda: str(plain()), "bytes": lambda: plain().bytes}[form]


UUID7 = IdKind(
    name="uuid7",
    summary="UUIDs, ordered by time (RFC 9562), without any coordination",
    settings={"form": form_setting("uuid")},
    describe=_describe_uuid7,
    open=_open_uuid7,
    extra="uuid",
)
UUID4 = IdKind(
    name="uuid4",
    summary="random UUIDs, without any coordination",
    settings={"form": form_setting("uuid")},
    describe=_describe_uuid4,
    open=_open_uuid4,
)


# --- ULIDs -----------------------------------------------------------------------------------------


def _describe_ulids(settings: Mapping[str, Any]) -> IdDescription:
    form: Form = settings.get("form", "text")
    length = 36 if form == "uuid" else 26
    return IdDescription("ulid", _TYPES[form], 128, length, sortable=True, guessable=False, leaks=("time",))


def _make_ulid() -> bytes:
    return (time.time_ns() // 1_000_000).to_bytes(6) + os.urandom(10)


def _open_ulids(settings: Mapping[str, Any]) -> LocalGenerator[Any]:
    form: Form = settings.get("form", "text")
    make: Callable[[], Any] = _make_ulid
    if form == "text":
        from ulid_transform import bytes_to_ulid

        make = lambda: bytes_to_ulid(_make_ulid())  # noqa: E731
    elif form == "uuid":
        make = lambda: uuid.UUID(bytes=_make_ulid())  # noqa: E731
    return LocalGenerator(make, _describe_ulids(settings))


ULID = IdKind(
    name="ulid",
    summary="26 characters, ordered by time, without any coordination",
    settings={"form": form_setting("text")},
    describe=_describe_ulids,
    open=_open_ulids,
    extra="ulid",
)


# --- ObjectIds -------------------------------------------------------------------------------------


class _ObjectIds:
    """Makes ObjectIds of one process (github.com/mongodb/specifications, bson-objectid)."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Take other random bytes, and another number to count from."""
        self._process, self._numbers = os.urandom(5), itertools.count(int.from_bytes(os.urandom(3)))

    def make(self) -> bytes:
        number = next(self._numbers) & 0xFFFFFF
        return (int(time.time()) & 0xFFFFFFFF).to_bytes(4) + self._process + number.to_bytes(3)


def _describe_objectids(settings: Mapping[str, Any]) -> IdDescription:
    kind = bytes if settings.get("form", "text") == "bytes" else str
    return IdDescription("objectid", kind, 96, 24, sortable=True, guessable=True, leaks=("time", "worker", "volume"))


def _open_objectids(settings: Mapping[str, Any]) -> LocalGenerator[Any]:
    ids = _ObjectIds()
    make: Callable[[], Any] = ids.make if settings.get("form") == "bytes" else lambda: ids.make().hex()
    return LocalGenerator(make, _describe_objectids(settings), ids.reset)


OBJECTID = IdKind(
    name="objectid",
    summary="24 hex digits, ordered by second, without any coordination",
    settings={"form": form_setting("text", Literal["text", "bytes"])},
    describe=_describe_objectids,
    open=_open_objectids,
)
