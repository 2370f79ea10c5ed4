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
from dataclasses import replace
from typing import Any, Literal, TypeAlias, TypeVar

from snowredis.core.description import IdDescription
from snowredis.core.values import check_count
from snowredis.errors import GeneratorClosed
from snowredis.kinds.base import GeneratorBase, IdKind
from snowredis.process.clock import now_ms
from snowredis.process.fork import GUARD
from snowredis.settings import Setting, one_of

Id = TypeVar("Id")
Form: TypeAlias = Literal["uuid", "text", "bytes"]
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


_Maker: TypeAlias = tuple[Callable[[], Any], Callable[[], object] | None]


def _kind(described: IdDescription, summary: str, maker: Callable[[Form], _Maker], extra: str | None = None) -> IdKind:
    """Return a kind with one setting, ``form``.

    Args:
        described: ids of the default form. Ids of 128 bits can be UUIDs.
        maker: returns what makes ids of a form, and what resets it in a forked child, if anything does.
    """
    forms = [form for form in _TYPES if form != "uuid" or described.bits == 128]
    default = next(form for form in forms if _TYPES[form] is described.type)

    def describe(settings: Mapping[str, Any]) -> IdDescription:
        form: Form = settings.get("form", default)
        return replace(described, type=_TYPES[form], text_length=36 if form == "uuid" else described.text_length)

    def open_generator(settings: Mapping[str, Any]) -> LocalGenerator[Any]:
        make, reset = maker(settings.get("form", default))
        return LocalGenerator(make, describe(settings), reset)

    text = "type of an id in Python: `uuid`, `text` or `bytes`"
    form = Setting("form", one_of(Literal[tuple(forms)]), default, default, text)
    return IdKind(described.kind, summary, {"form": form}, describe, open_generator, extra)


def _make_uuid7(form: Form) -> _Maker:
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
    return full if form == "uuid" else _in_form(form, plain), reset


def _in_form(form: Form, make: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that makes UUIDs in *form*."""
    return {"uuid": make, "text": lambda: str(make()), "bytes": lambda: make().bytes}[form]


def _make_ulid() -> bytes:
    return now_ms().to_bytes(6) + os.urandom(10)


def _make_ulids(form: Form) -> _Maker:
    if form == "text":
        from ulid_transform import bytes_to_ulid

        return lambda: bytes_to_ulid(_make_ulid()), None
    return (_make_ulid if form == "bytes" else lambda: uuid.UUID(bytes=_make_ulid())), None


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


def _make_objectids(form: Form) -> _Maker:
    ids = _ObjectIds()
    return (ids.make if form == "bytes" else lambda: ids.make().hex()), ids.reset


UUID7 = _kind(
    IdDescription("uuid7", uuid.UUID, 128, 36, sortable=True, guessable=False, leaks=("time",)),
    "UUIDs, ordered by time (RFC 9562), without any coordination",
    _make_uuid7,
    extra="uuid",
)
UUID4 = _kind(
    IdDescription("uuid4", uuid.UUID, 128, 36, sortable=False, guessable=False),
    "random UUIDs, without any coordination",
    lambda form: (_in_form(form, uuid.uuid4), None),
)
ULID = _kind(
    IdDescription("ulid", str, 128, 26, sortable=True, guessable=False, leaks=("time",)),
    "26 characters, ordered by time, without any coordination",
    _make_ulids,
    extra="ulid",
)
OBJECTID = _kind(
    IdDescription("objectid", str, 96, 24, sortable=True, guessable=True, leaks=("time", "worker", "volume")),
    "24 hex digits, ordered by second, without any coordination",
    _make_objectids,
)
