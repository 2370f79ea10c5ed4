"""ASGI integration (Starlette, FastAPI and others): a generator that lives as long as the application.

    app = FastAPI(lifespan=lifespan("redis://localhost:6379/0", pool="orders"))

    @app.get("/")
    async def index(request: Request):
        return str(await request.state.ids.anext_id())

The generator claims its worker id before the first request and releases it after the last. Without arguments it is
the generator of the process, the one of ``snowredis.next_id()``.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Unpack

from snowredis import process_generator
from snowredis.connection import aconnect
from snowredis.errors import ConfigError, SnowredisError
from snowredis.kinds.protocol import IdGenerator
from snowredis.process.coroutines import in_thread
from snowredis.settings import Servers, Settings, check_settings
from snowredis.snowflake.generator import SnowflakeGenerator

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]


def lifespan(*url: Servers, within: Lifespan | None = None, **settings: Unpack[Settings]) -> Lifespan:
    """Return a lifespan for Starlette, FastAPI or Litestar; the generator is ``request.state.ids``.

    In Litestar it is ``state.ids`` of the application's state.

    Args:
        url, settings: arguments of snowredis.connect(); none for the generator of the process.
        within: a lifespan of your own, which starts later and ends earlier; its state is kept.

    Raises:
        ConfigError: a setting is unknown or not valid.
        SnowredisError: at startup, if no worker id can be claimed; the application does not start then.
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


class SnowredisMiddleware:
    """Middleware for any ASGI application, also one without a lifespan: the generator is ``scope["state"]["ids"]``.

    Args:
        app: the application.
        url, settings: arguments of snowredis.connect(); none for the generator of the process.
    """

    def __init__(self, app: App, *url: Servers, **settings: Unpack[Settings]) -> None:
        check_settings(settings)
        self._app = app
        self._claimed = functools.partial(_claimed, *url, **settings)
        self._state: dict[str, Any] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection. Raises ConfigError if the server has not run the lifespan."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(scope, receive, send)
            return
        if not self._state:
            raise ConfigError(
                "this server runs no lifespan, so there is no generator. Turn it on; in uvicorn: --lifespan on."
            )
        scope.setdefault("state", {}).update(self._state)
        await self._app(scope, receive, send)

    async def _run_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        startup, is_answered = await receive(), False
        stack = AsyncExitStack()
        try:
            self._state = {"ids": await stack.enter_async_context(self._claimed())}
        except SnowredisError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return

        async def receive_startup_again() -> Message:
            nonlocal startup
            message, startup = startup or await receive(), {}
            return message

        async def release_then_send(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            if message["type"] != "lifespan.startup.complete":
                # the server may end the process as soon as it has this message
                await stack.aclose()
            await send(message)

        async with stack:
            try:
                state = scope.setdefault("state", {})
                await self._app({**scope, "state": state}, receive_startup_again, release_then_send)
            except Exception:
                if is_answered:
                    raise
                # the application has no lifespan
                await send({"type": "lifespan.startup.complete"})
                await receive()
                await release_then_send({"type": "lifespan.shutdown.complete"})


@asynccontextmanager
async def _claimed(*url: Servers, **settings: Unpack[Settings]) -> AsyncIterator[IdGenerator[Any]]:
    """Yield a generator that has claimed its worker id, of these settings or the process' own; close it at the end."""
    if url or settings:
        async with aconnect(*url, **settings) as ids:
            yield ids
        return
    ids = await in_thread(process_generator.process_generator)
    if isinstance(ids, SnowflakeGenerator):
        await ids.aclaim()
    try:
        yield ids
    finally:
        await in_thread(process_generator.close)
