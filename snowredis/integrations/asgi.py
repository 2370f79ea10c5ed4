"""A generator that lives as long as an ASGI application: Starlette, FastAPI, or any other.

    app = FastAPI(lifespan=lifespan("redis://localhost:6379/0", pool="orders"))

    @app.get("/")
    async def index(request: Request):
        return str(await request.state.ids.anext_id())

It has its worker id before the first request, and gives it back after the last. Without arguments it is
the generator of the process, the one of ``snowredis.next_id()``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Unpack

from snowredis import process_generator
from snowredis.connection import Settings, aconnect
from snowredis.errors import ConfigError, SnowredisError
from snowredis.lease.open import Servers
from snowredis.runtime.aio import in_thread
from snowredis.runtime.generator import Generator

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]


def lifespan(*url: Servers, within: Lifespan | None = None, **settings: Unpack[Settings]) -> Lifespan:
    """For Starlette's and FastAPI's ``lifespan=``; the generator is ``request.state.ids``.

    Args:
        url, settings: as snowredis.connect(); none for the generator of the process.
        within: a lifespan of your own, which begins after and ends before; its state is kept.
    """

    @asynccontextmanager
    async def around(app: Any) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            state: dict[str, Any] = {"ids": await stack.enter_async_context(opened(*url, **settings))}
            if within is not None:
                mine: Mapping[str, Any] | None = await stack.enter_async_context(within(app))
                state |= mine or {}
            yield state

    return around


class SnowredisMiddleware:
    """The same around any ASGI application, also one without a lifespan; the generator is ``scope["state"]["ids"]``."""

    def __init__(self, app: App, *url: Servers, **settings: Unpack[Settings]) -> None:
        self._app = app
        self._opened: Callable[[], AbstractAsyncContextManager[Generator]] = lambda: opened(*url, **settings)
        self._state: dict[str, Any] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
            return
        if not self._state:
            raise ConfigError(
                "this server runs no lifespan, so there is no generator; uvicorn has --lifespan on"
            )
        scope.setdefault("state", {}).update(self._state)
        await self._app(scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        startup, told = await receive(), False
        stack = AsyncExitStack()
        try:
            self._state = {"ids": await stack.enter_async_context(self._opened())}
        except SnowredisError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return

        async def replay() -> Message:
            nonlocal startup
            message, startup = startup or await receive(), {}
            return message

        async def closing(message: Message) -> None:
            nonlocal told
            told = True
            if message["type"] != "lifespan.startup.complete":
                # the process may be gone as soon as this is said
                await stack.aclose()
            await send(message)

        async with stack:
            try:
                await self._app({**scope, "state": scope.setdefault("state", {})}, replay, closing)
            except Exception:
                if told:
                    raise
                # the application knows no lifespan
                await send({"type": "lifespan.startup.complete"})
                await receive()
                await closing({"type": "lifespan.shutdown.complete"})


@asynccontextmanager
async def opened(*url: Servers, **settings: Unpack[Settings]) -> AsyncIterator[Generator]:
    """A generator of these settings, or the process' own, that has claimed its worker id."""
    if url or settings:
        async with aconnect(*url, **settings) as ids:
            yield ids
        return
    ids = await in_thread(process_generator.process_generator)
    await ids.aclaim()
    try:
        yield ids
    finally:
        await in_thread(process_generator.close)
