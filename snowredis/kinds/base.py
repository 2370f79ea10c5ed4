"""Protocol of every generator of ids, declaration of a kind of ids and of Snowflakes, a base class for generators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, Self, TypeVar, runtime_checkable

from snowredis.core.description import IdDescription, describe_snowflake
from snowredis.errors import ConfigError
from snowredis.process.coroutines import OneThread, in_thread
from snowredis.settings import SETTINGS, Setting, check_settings

Id = TypeVar("Id")
T = TypeVar("T")


@runtime_checkable
class IdGenerator(Protocol[Id]):
    """A generator of ids of any kind. Made by snowredis.generator(); snowredis.SnowflakeGenerator is one, too.

    May be shared by threads. In a forked child it can be used further, and never makes an id of its parent again.
    """

    @property
    @abstractmethod
    def description(self) -> IdDescription:
        """Return the description of its ids: type, bits, text length, sortable, guessable, what they leak and need."""

    @property
    def closed(self) -> bool:
        """True after close()."""

    @abstractmethod
    def next_id(self) -> Id:
        """Make one id. Thread-safe. Raises SnowredisError; GeneratorClosed after close()."""

    @abstractmethod
    def next_ids(self, count: int) -> list[Id]:
        """Make *count* ids at once, 0 to 1,000,000, in the order in which next_id() would make them."""

    async def anext_id(self) -> Id:
        """Make one id. Async version of next_id(): does not block the event loop."""

    async def anext_ids(self, count: int) -> list[Id]:
        """Make *count* ids at once. Async version of next_ids(): does not block the event loop."""

    @abstractmethod
    def close(self) -> None:
        """Stop making ids, and release what the generator holds. Idempotent, never raises."""

    async def aclose(self) -> None:
        """Async version of close(): does not block the event loop."""

    def __iter__(self) -> Iterator[Id]: ...

    def __next__(self) -> Id: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: object, error: object, trace: object, /) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: object, error: object, trace: object, /) -> None: ...

    def __aiter__(self) -> AsyncIterator[Id]: ...

    async def __anext__(self) -> Id: ...


@dataclass(frozen=True, slots=True)
class IdKind:
    """Declaration of a kind of ids. Another package adds its own under the entry point group of lookup.py.

    Attributes:
        name: for snowredis.generator().
        summary: one line for people.
        settings: the settings of the kind by name, each declared once; others are refused.
        describe: returns the description of the ids from settings that check() returned. Connects to nothing.
        open: returns a generator from settings that check() returned. May raise ImportError if a library that *extra*
            installs is missing.
        extra: what to install for it, as in ``pip install 'snowredis[EXTRA]'``; None: nothing.
        package: the package that has the extra.
    """

    name: str
    summary: str
    settings: Mapping[str, Setting]
    describe: Callable[[Mapping[str, Any]], IdDescription]
    open: Callable[[Mapping[str, Any]], IdGenerator[Any]]
    extra: str | None = None
    package: str = "snowredis"

    def check(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return *given* with checked values, numbers as int or float.

        Raises ConfigError for an unknown setting and for a value that is not valid.
        """
        return check_settings(given, self.settings, f" of {self.name} generators")

    def generator(self, given: Mapping[str, Any]) -> IdGenerator[Any]:
        """Return a generator with the settings *given*.

        Raises ConfigError for settings that cannot work and for a missing library; and what the kind raises.
        """
        settings = self.check(given)
        try:
            return self.open(settings)
        except ImportError as error:
            if self.extra is None:
                raise
            raise ConfigError(
                f"{self.name} generators need a package that is not installed ({error}). Install it with: "
                f"pip install '{self.package}[{self.extra}]'"
            ) from error


def _describe_snowflake(settings: Mapping[str, Any]) -> IdDescription:
    from snowredis.core.presets import resolve_layout

    return describe_snowflake(resolve_layout(settings.get("layout")))


def _connect(settings: Mapping[str, Any]) -> IdGenerator[int]:
    from snowredis.connection import connect

    return connect(**settings)


SNOWFLAKE = IdKind(
    name="snowflake",
    summary="64-bit numbers, ordered by time, from a worker id that is leased from Redis",
    settings=SETTINGS,
    describe=_describe_snowflake,
    open=_connect,
)


class GeneratorBase(IdGenerator[Id]):
    """Implements IdGenerator for a subclass with a description, ``_closed``, next_id(), next_ids() and close().

    Ids that may wait for a server are made in a thread for coroutines, one for all of them; a subclass that can tell
    that an id is ready overrides anext_id().
    """

    _closed: bool
    _thread: OneThread | None = None

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._closed

    async def anext_id(self) -> Id:
        """Make one id. Async version of next_id(): does not block the event loop."""
        return await self.in_one_thread(self.next_id) if self.description.may_block else self.next_id()

    async def anext_ids(self, count: int) -> list[Id]:
        """Make *count* ids at once. Async version of next_ids(): does not block the event loop."""
        # a million ids of any kind take longer than an event loop should wait
        return await self.in_one_thread(lambda: self.next_ids(count))

    async def in_one_thread(self, function: Callable[[], T]) -> T:
        """Call *function*, which may block, in the thread of this generator, after calls that were made before."""
        thread = self._thread = self._thread or OneThread()
        return await thread.call(function)

    async def aclose(self) -> None:
        """Async version of close(): does not block the event loop."""
        await in_thread(self.close)

    def __iter__(self) -> Iterator[Id]:
        return self

    def __next__(self) -> Id:
        return self.next_id()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Id:
        return await self.anext_id()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a snowredis generator cannot be pickled or copied: two copies would make the same ids. Make one in each "
            "process, or use snowredis.next_id()."
        )

    def __repr__(self) -> str:
        return f"<snowredis {self.description.kind} generator{' closed' if self.closed else ''}>"
