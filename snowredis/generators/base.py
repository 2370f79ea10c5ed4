"""Base class for generators: the parts of IdGenerator that follow from next_id(), next_ids() and close()."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from snowredis.core.description import IdDescription
from snowredis.runtime.aio import in_thread

Id = TypeVar("Id")


class GeneratorBase(ABC, Generic[Id]):
    """Implements IdGenerator for a subclass with a description, ``closed``, next_id(), next_ids() and close().

    Ids that may wait for a server are made in a thread for coroutines; a subclass that can tell that an id is ready
    overrides anext_id().
    """

    __slots__ = ("__weakref__",)

    @property
    @abstractmethod
    def description(self) -> IdDescription:
        """Return the description of its ids."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """True after close()."""

    @abstractmethod
    def next_id(self) -> Id:
        """Make one id. Thread-safe."""

    @abstractmethod
    def next_ids(self, count: int) -> list[Id]:
        """Make *count* ids at once."""

    @abstractmethod
    def close(self) -> None:
        """Stop making ids. Idempotent, never raises."""

    async def anext_id(self) -> Id:
        """Make one id. Async version of next_id(): does not block the event loop."""
        return await in_thread(self.next_id) if self.description.may_block else self.next_id()

    async def anext_ids(self, count: int) -> list[Id]:
        """Make *count* ids at once. Async version of next_ids(): does not block the event loop."""
        # a million ids of any kind take longer than an event loop should wait
        return await in_thread(lambda: self.next_ids(count))

    async def aclose(self) -> None:
        """Async version of close(): does not block the event loop."""
        await in_thread(self.close)

    def __iter__(self) -> Iterator[Id]:
        return self

    def __next__(self) -> Id:
        return self.next_id()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<snowredis {self.description.kind} generator{' closed' if self.closed else ''}>"
