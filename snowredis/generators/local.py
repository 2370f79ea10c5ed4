"""Generators whose ids are made by a function of a library, without a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar, get_args

from snowredis.core.description import IdDescription
from snowredis.errors import GeneratorClosed
from snowredis.generators.base import GeneratorBase
from snowredis.runtime.batches import check_count
from snowredis.settings import Setting, one_of

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
