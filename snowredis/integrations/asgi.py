"""ASGI integration (Starlette, FastAPI, Litestar): a generator that lives as long as the application.

    app = FastAPI(lifespan=lifespan("redis://localhost:6379/0", pool="orders"))

    @app.get("/")
    async def index(request: Request):
        return str(await request.state.ids.anext_id())

The generator claims its worker id before the first request and releases it after the last. An application that gets
none within 5 s starts all the same, and goes on trying (claims.py). Without arguments, and in a block of
snowredis.testing.use(), it is the generator of the process, the one of ``snowredis.next_id()``.

Adapters for serverless, such as Mangum, start and end the application at each call: from the second start on, the
generator stays open until the process ends.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Unpack

from snowredis.connection import connect
from snowredis.integrations.claims import CLAIM_TIMEOUT_S, claim_within
from snowredis.kinds.base import IdGenerator
from snowredis.process.coroutines import in_thread
from snowredis.process_generator import close, is_replaced, process_generator
from snowredis.settings import Server, Settings, check_settings

# a lifespan of Starlette has a state or none; type checkers take no mix of the two
Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]
Within = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]


def lifespan(*url: Server, within: Within | None = None, **settings: Unpack[Settings]) -> Lifespan:
    """Return a lifespan for Starlette, FastAPI or Litestar; the generator is ``request.state.ids``.

    In Litestar it is ``state.ids`` of the application's state.

    Args:
        url, settings: arguments of snowredis.connect(); none for the generator of the process.
        within: a lifespan of your own, which starts later and ends earlier; its state is kept.

    Raises:
        ConfigError: a setting is unknown or not valid.
    """
    check_settings(settings)
    held = _Held(partial(connect, *url, **settings) if url or settings else None)

    @asynccontextmanager
    async def lifespan_of_both(app: Any) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            state: dict[str, Any] = {"ids": await stack.enter_async_context(held.running())}
            if within is not None:
                own_state: Mapping[str, Any] | None = await stack.enter_async_context(within(app))
                state |= own_state or {}
            # Litestar takes no state from a lifespan, and has one of the application for handlers
            if isinstance(of_app := getattr(app, "state", None), MutableMapping):
                of_app.update(state)
            yield state

    return lifespan_of_both


class _Held:
    """The generator of a lifespan.

    Args:
        connect: makes it; None: it is that of the process.
    """

    def __init__(self, connect: Callable[[], IdGenerator[Any]] | None) -> None:
        self._connect = connect
        self._ids: IdGenerator[Any] | None = None
        self._starts, self._lock = 0, threading.Lock()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[IdGenerator[Any]]:
        """Yield the generator, which has claimed its worker id if it got one in time."""
        if is_replaced():
            # by a test, which closes it
            yield await in_thread(process_generator)
            return
        self._starts += 1
        try:
            yield await in_thread(self._claimed)
        finally:
            # a server may skip Python's exit handlers: there may be no later moment
            if self._starts == 1:
                await in_thread(self._close)

    def _claimed(self) -> IdGenerator[Any]:
        with self._lock:
            ids = self._ids
            if ids is None or ids.closed:
                ids = self._ids = process_generator() if self._connect is None else self._connect()
        claim_within(CLAIM_TIMEOUT_S, [ids])
        return ids

    def _close(self) -> None:
        if self._connect is None:
            close()
        elif self._ids is not None:
            self._ids.close()
