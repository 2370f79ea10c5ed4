"""ASGI integration (Starlette, FastAPI, Litestar): a generator that lives as long as the application.

    app = FastAPI(lifespan=lifespan("redis://localhost:6379/0", pool="orders"))

    @app.get("/")
    async def index(request: Request):
        return str(await request.state.ids.anext_id())

The generator claims its worker id before the first request and releases it after the last. An application that gets
none within 5 s starts all the same, and goes on trying (claims.py). Without arguments it is the generator of the
process, the one of ``snowredis.next_id()``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Unpack

from snowredis.connection import connect
from snowredis.integrations.claims import CLAIM_TIMEOUT_S, claim_within
from snowredis.kinds.base import IdGenerator
from snowredis.process.coroutines import in_thread
from snowredis.process_generator import close, process_generator
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

    @asynccontextmanager
    async def lifespan_of_both(app: Any) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            state: dict[str, Any] = {"ids": await stack.enter_async_context(_claimed(*url, **settings))}
            if within is not None:
                own_state: Mapping[str, Any] | None = await stack.enter_async_context(within(app))
                state |= own_state or {}
            # Litestar takes no state from a lifespan, and has one of the application for handlers
            if isinstance(of_app := getattr(app, "state", None), MutableMapping):
                of_app.update(state)
            yield state

    return lifespan_of_both


@asynccontextmanager
async def _claimed(*url: Server, **settings: Unpack[Settings]) -> AsyncIterator[IdGenerator[Any]]:
    """Yield a generator that has claimed its worker id, if it got one in time; close it at the end.

    Without settings it is the process' own.
    """
    is_own = bool(url or settings)
    ids: IdGenerator[Any] = await in_thread(partial(connect, *url, **settings) if is_own else process_generator)
    try:
        await in_thread(partial(claim_within, CLAIM_TIMEOUT_S, [ids]))
        yield ids
    finally:
        await in_thread(ids.close if is_own else close)
