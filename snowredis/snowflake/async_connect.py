"""The result of aconnect(): a generator that a coroutine connects."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Generator as Steps
from types import TracebackType
from typing import Any

from snowredis.process.coroutines import in_background, in_thread
from snowredis.snowflake.generator import Generator


class Connecting:
    """Result of aconnect(): ``async with`` it, or ``await`` it and call aclose() at the end."""

    def __init__(self, connect: Callable[[], Generator]) -> None:
        self._connect = connect
        self._ids: Generator | None = None

    def __await__(self) -> Steps[Any, None, Generator]:
        return self._open().__await__()

    async def __aenter__(self) -> Generator:
        self._ids = await self._open()
        return self._ids

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ids is not None:
            await self._ids.aclose()

    async def _open(self) -> Generator:
        ids = await in_thread(self._connect)
        try:
            await ids.aclaim()
        except BaseException:
            # cancelled, or refused: the caller has no generator to close
            in_background(ids.close)
            raise
        return ids
