"""Protocol that every generator of ids has, whatever its ids look like."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from snowredis.core.description import IdDescription

Id = TypeVar("Id")


@runtime_checkable
class IdGenerator(Protocol[Id]):
    """A generator of ids of any kind. Made by snowredis.generator(); snowredis.Generator is one, too.

    May be shared by threads. In a forked child it can be used further, and never makes an id of its parent again.
    """

    @property
    def description(self) -> IdDescription:
        """Return the description of its ids: type, bits, text length, sortable, guessable, what they leak and need."""

    @property
    def closed(self) -> bool:
        """True after close()."""

    def next_id(self) -> Id:
        """Make one id. Thread-safe. Raises SnowredisError; GeneratorClosed after close()."""

    def next_ids(self, count: int) -> list[Id]:
        """Make *count* ids at once, 0 to 1,000,000, in the order in which next_id() would make them."""

    async def anext_id(self) -> Id:
        """Make one id. Async version of next_id(): does not block the event loop."""

    async def anext_ids(self, count: int) -> list[Id]:
        """Make *count* ids at once. Async version of next_ids(): does not block the event loop."""

    def close(self) -> None:
        """Stop making ids, and give back what the generator holds. Idempotent, never raises."""

    async def aclose(self) -> None:
        """Async version of close(): does not block the event loop."""

    def __iter__(self) -> Iterator[Id]: ...

    def __next__(self) -> Id: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class NumberGenerator(IdGenerator[int], Protocol):
    """A generator of 64-bit numbers, which can also be written to a buffer."""

    def fill(self, buffer: Any) -> None:
        """Fill a writable buffer of int64 with ids. Raises ConfigError if ids cannot be written to it."""
