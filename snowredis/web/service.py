"""The ASGI application, and the ids themselves: GET /id and GET /ids.

Ids are served here, before any routing, since a framework's routing costs more than an id. All other requests go to
routes.py and pages.py. Drain is the time between SIGTERM and the end. Nothing connects before the server starts the
application, so it may be created before a fork.

    gunicorn -k snowredis.web.gunicorn_worker.ServiceWorker 'snowredis.web.service:from_environment()'
    uvicorn --factory snowredis.web.service:from_environment
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from snowredis.errors import ConfigError, SnowredisError
from snowredis.settings import check, check_settings, required_pool, required_url
from snowredis.web import messages
from snowredis.web.access import ID_PATHS, PROBES, Proxies, RequestGuard
from snowredis.web.messages import HttpProblem
from snowredis.web.pages import EndedSessions, page_routes
from snowredis.web.routes import RequestCounts, Routes
from snowredis.web.served import ServedKind, ServedKinds, ServedPool, ServedPools
from snowredis.web.settings import Limits, check_token, settings_from_environment

log = logging.getLogger("snowredis")


def create_app(
    url: Any = None,
    *,
    pools: Sequence[str] | None = None,
    token: str | None = None,
    hosts: Sequence[str] = (),
    insecure: bool = False,
    trusted_proxies: Sequence[str] = (),
    create: bool = False,
    kinds: Sequence[str] = (),
    limits: Limits | None = None,
    **options: Any,
) -> Service:
    """Create the application. Does not connect.

    Args:
        url, options: as snowredis.connect() takes them, for every pool; settings that are not given are those of the
            existing pool.
        pools: their names, by default that of SNOWREDIS_POOL; requests without ``pool=`` use the first.
        token: required from every client; without one only requests over loopback or a unix socket are allowed.
        hosts: names of the service, without port, besides localhost, 127.0.0.1 and [::1]; "*" allows any.
        insecure: allow all clients, even without a token.
        trusted_proxies: addresses and networks whose X-Forwarded-For and X-Forwarded-Proto count.
        create: create pools that do not exist, instead of refusing to start.
        kinds: other kinds of ids, as snowredis.generator() takes them, such as "uuid7" and "segment:?tag=invoices", for
            requests with ``kind=`` or ``tag=``.

    Raises:
        ConfigError: a setting is not valid.
    """
    url, names = required_url(url), [required_pool(None, url)] if pools is None else list(pools)
    limits, options = limits or Limits(), check_settings(options)
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"pools must be one name or several different ones, not {names!r}")
    for name in names:
        check("pool", name)
    guard = RequestGuard(check_token(token), hosts, insecure, limits)
    others = ServedKinds(url, kinds, limits.wait_s)
    served = ServedPools(url, names, options, limits.wait_s, create)
    return Service(served, guard, limits, Proxies(trusted_proxies), others)


def from_environment(environment: Mapping[str, str] | None = None) -> Service:
    """Create the application from SNOWREDIS_* and SNOWREDIS_SERVE_* variables, for servers that import it.

    Raises:
        ConfigError: the value of a variable is not valid.
    """
    url, options = settings_from_environment(os.environ if environment is None else environment)
    return create_app(url, **options)


class Service:
    """The application; see create_app()."""

    def __init__(
        self, pools: ServedPools, guard: RequestGuard, limits: Limits, proxies: Proxies, kinds: ServedKinds
    ) -> None:
        self.pools, self.guard, self.limits = pools, guard, limits
        self.proxies, self.kinds = proxies, kinds
        self.counts = RequestCounts(pools.names)
        self.drain = Drain(limits.drain_s, pools.end_streams)
        self._running = 0
        self._sessions = EndedSessions(pools.url)
        self._routes = Routes(pools, guard, limits, self.counts, self._sessions, kinds, lambda: self.drain.draining)
        self._router = Router([*self._routes.all(), *page_routes(guard, self._sessions)], default=_not_found)
        self._entry = proxies.around(self._respond)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            connection = scope.get("state", {}).get(messages.CONNECTION)
            if connection is None:
                await self._entry(scope, receive, send)
            else:
                await connection.serve(self._entry, scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        if root := scope.get("root_path"):
            # the path of a mount, or of a proxy
            scope = {**scope, "path": scope["path"].removeprefix(root) or "/", "root_path": ""}
        if self.drain.draining:
            send = _closing(scope, send)
        if self._running >= self.limits.max_at_once and scope["path"] not in PROBES:
            busy = HttpProblem(503, "Busy", "too many concurrent requests. Try again.", 1)
            await self._send_problem(send, busy)
            return
        self._running += 1
        try:
            session = self.guard.check(scope)
            if session is not None:
                scope["snowredis.session"] = session
                await self._sessions.check(session)
            if scope["path"] in ID_PATHS and scope["method"] == "GET":
                await self._send_ids(scope, send)
            else:
                # makes the router raise its 404 and 405
                scope["app"] = self
                await self._router(scope, receive, send)
        except (HttpProblem, SnowredisError) as error:
            await self._send_problem(send, messages.problem_of(error))
        except HTTPException as error:
            detail = "this path does not support the method; see the Allow header"
            await self._send_problem(send, HttpProblem(405, "MethodNotAllowed", detail), error.headers)
        except ClientDisconnect:
            # the client has gone
            return
        except Exception:
            log.exception("%s: the request failed", scope["path"][:100])
            # fails if the response has begun; then the server closes the connection
            await self._send_problem(send, HttpProblem(500, "InternalError", "the service failed; see its log"))
        finally:
            self._running -= 1

    async def _send_problem(self, send: Send, problem: HttpProblem, more: Mapping[str, str] | None = None) -> None:
        self.counts.count_error(problem.status)
        headers = problem.headers()
        headers += [(name.lower().encode(), text.encode()) for name, text in (more or {}).items()]
        await messages.send_body(
            send, problem.body(), status=problem.status, media_type=messages.PROBLEM_JSON, more=headers
        )

    # --- ids ---------------------------------------------------------------------------------------

    async def _send_ids(self, scope: Scope, send: Send) -> None:
        """Respond to GET /id and GET /ids. What cannot be served is refused before an id is made."""
        media_type = messages.parse_media_type(scope["headers"])
        query, one = messages.parse_query(scope["query_string"]), scope["path"] == "/id"
        source = self.kinds.find(query) or self.pools.find(query)
        if media_type == messages.BINARY and source.makes_text:
            detail = f"ids of {source.name!r} are text, and cannot be packed"
            raise HttpProblem(406, "NotAcceptable", detail)
        ids = await source.make_ids(1 if one else messages.parse_count(query, self.limits.max_count))
        self.counts.count_ids(source.name, len(ids))
        body = messages.encode_ids(ids, media_type, one=one)
        connection = scope.get("state", {}).get(messages.CONNECTION)
        # a session may end
        if one and connection is not None and "snowredis.session" not in scope:
            connection.repeat(partial(self._id_again, source, media_type, messages.head_of(media_type)))
        await messages.send_body(send, body, media_type=media_type)

    def _id_again(self, source: ServedKind | ServedPool, media_type: str, head: bytes) -> bytes:
        """Return the response to a request for an id that was served before; b"" if that takes more than an id."""
        if self.drain.draining or not self.guard.ids.take(time.monotonic()):
            return b""
        an_id = source.id_now()
        if not an_id:
            return b""
        self.counts.count_ids(source.name, 1)
        body = messages.encode_ids([an_id], media_type, one=True)
        return head + b"content-length: %d\r\n\r\n%b" % (len(body), body)

    # --- start and stop ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all pools, in an event loop whose server has installed its signal handlers.

        Raises:
            SnowredisError: as ServedPool.start().
        """
        await self.pools.start()
        await self._routes.start()
        self.drain.start()

    async def stop(self) -> None:
        """Release all worker ids. May be called again, and after a start that failed."""
        self.drain.stop()
        await self.pools.stop()
        await self.kinds.stop()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Start and stop when the server says so. An error of the start is one line in its log."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return
            try:
                await self.start()
            except SnowredisError as error:
                await self.stop()
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})


def _closing(scope: Scope, send: Send) -> Send:
    """Return *send* for a process that stops: the client closes the connection after the response."""
    if not scope.get("http_version", "1.1").startswith("1"):
        return send

    async def send_and_close(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        await send(message)

    return send_and_close


async def _not_found(_scope: Any, _receive: Any, _send: Any) -> None:
    raise HttpProblem(404, "NotFound", "there is nothing at this path; see /openapi.json")


class Drain:
    """The time between SIGTERM and the end: not ready any more, but every request is served.

    Load balancers notice that /readyz fails and send requests elsewhere; clients are told to close their connections,
    each with the response to a request, so that none is lost. Then the server's own handler of the signal stops it.
    This works under every server that handles signals by signal.signal(), as uvicorn and gunicorn's worker for it do.

    Args:
        drain_s: its length; 0: none.
        end_streams: ends responses that have no end of their own, which the server would wait for.

    Attributes:
        draining: true from SIGTERM on.
    """

    def __init__(self, drain_s: float, end_streams: Callable[[], None]) -> None:
        self.draining = False
        self._drain_s, self._end_streams = drain_s, end_streams
        # the server's handlers
        self._handlers: dict[int, Any] = {}

    def start(self) -> None:
        """Handle SIGTERM and SIGINT in this event loop before the server's own handlers do.

        SIGINT, Ctrl-C for a person, stops the server at once, also during the drain. More of SIGTERM change nothing:
        gunicorn repeats it every second.
        """
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                installed = signal.getsignal(number)
                # without a handler of the server the signal ends the process anyway
                if callable(installed) and installed is not signal.default_int_handler:
                    self._handlers[number] = installed
                    signal.signal(number, self._handle)

    def stop(self) -> None:
        """Leave the signals to the server again."""
        handlers, self._handlers = self._handlers, {}
        for number, installed in handlers.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, installed)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first, self.draining = not self.draining, True
        if number != signal.SIGTERM or self._drain_s <= 0:
            self._loop.call_soon_threadsafe(self._end_streams)
            self._handlers[number](number, frame)
        elif first:
            log.info("SIGTERM: not ready any more, and stopping in %g s", self._drain_s)
            self._loop.call_soon_threadsafe(self._loop.call_later, self._drain_s, self._end, number)

    def _end(self, number: int) -> None:
        self._end_streams()
        if number in self._handlers:
            self._handlers[number](number, None)
