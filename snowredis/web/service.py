"""The ASGI application: ids over HTTP, what the pool looks like, and the dashboard.

Every request passes the door first (door.py). Ids are answered right behind it, since a framework's routing
costs more than an id does; everything else is Starlette's. Nothing is connected before the server starts
the application, so it may be made in a process that forks. A little over 400 lines: every route is in it.

    uvicorn --factory snowredis.web.service:from_environment
    gunicorn -k uvicorn_worker.UvicornWorker 'snowredis.web.service:from_environment()'
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, cast
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from snowredis.errors import ConfigError, SnowredisError
from snowredis.runtime.aio import in_thread
from snowredis.settings import check
from snowredis.web import metrics
from snowredis.web.answers import (
    BINARY,
    JSON,
    PLAIN_HEADERS,
    TEXT,
    Headers,
    Problem,
    as_json,
    id_as_json,
    kind_of,
    many_ids,
    one_id,
    plain,
    problem_of,
)
from snowredis.web.limits import Limits
from snowredis.web.openapi import description
from snowredis.web.pages import page_routes
from snowredis.web.pools import ServedPool
from snowredis.web.request_guard import RequestGuard
from snowredis.web.security import check_token
from snowredis.web.settings import settings_from_environment
from snowredis.web.shutdown import on_shutdown_signal
from snowredis.web.user_ids import parse_user_id
from snowredis.web.watch import last_events, pool_as_json

log = logging.getLogger("snowredis")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_CONTENT_TYPES = {
    JSON: b"application/json",
    TEXT: b"text/plain; charset=utf-8",
    BINARY: b"application/octet-stream",
}


def create_app(
    url: Any = "redis://localhost:6379/0",
    *,
    pools: Sequence[str] = ("default",),
    token: str | None = None,
    hosts: Sequence[str] = (),
    insecure: bool = False,
    limits: Limits | None = None,
    **options: Any,
) -> Service:
    """Make the application. Connects to nothing yet.

    Args:
        url, options: as snowredis.connect() takes them, for every pool; what is not said is as the pool was made.
        pools: their names; requests that name none are for the first.
        token: who has it may ask from anywhere; without one only requests that came in on a loopback address
            or a unix socket are answered.
        hosts: names, without port, that the service goes by besides localhost, 127.0.0.1 and [::1]; "*" for any.
        insecure: answer everybody, also without a token.

    Raises:
        ConfigError: a setting that cannot work.
    """
    return Service(url, list(pools), check_token(token), list(hosts), insecure, limits or Limits(), options)


def from_environment(environment: Mapping[str, str] | None = None) -> Service:
    """create_app() with what SNOWREDIS_* and SNOWREDIS_SERVE_* variables say; for servers that import it.

    Raises:
        ConfigError: a variable that is unknown, or has no such value.
    """
    url, options = settings_from_environment(os.environ if environment is None else environment)
    return create_app(url, **options)


class Service:
    """The application; made by create_app()."""

    def __init__(
        self,
        url: Any,
        names: list[str],
        token: str | None,
        hosts: list[str],
        insecure: bool,
        limits: Limits,
        options: dict[str, Any],
    ) -> None:
        if not names or len(set(names)) != len(names):
            raise ConfigError(
                f"the pools {names!r} are none, or one is named twice; the service was not started"
            )
        for name in names:
            check("pool", name)
        self.limits = limits
        self.door = RequestGuard(token, hosts, insecure, limits)
        self.counts = metrics.Counts()
        self._made: tuple[Any, list[str], dict[str, Any]] = (url, names, options)
        self._pools: dict[str, ServedPool] = {}
        self._metrics_of: metrics.Metrics | None = None
        self._first = names[0]
        self._kinds: dict[bytes, str | None] = {}
        self._busy = 0
        self._heads = {
            kind: [(b"content-type", written), *PLAIN_HEADERS] for kind, written in _CONTENT_TYPES.items()
        }
        self._inner = self._starlette()

    @property
    def names(self) -> list[str]:
        """Of the pools, the default first."""
        return self._made[1]

    # --- the way of a request ----------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._inner(scope, receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        if self._busy >= self.limits.max_at_once:
            await self._refuse(
                send, Problem(503, "Busy", "too many requests are being answered. Ask again.", 1)
            )
            return
        self._busy += 1
        try:
            self.door.check(scope)
            path = scope["path"]
            if (path in {"/id", "/ids"}) and scope["method"] == "GET":
                await self._ids(scope, send, path)
            else:
                await self._inner(scope, receive, send)
        except Problem as problem:
            await self._refuse(send, problem)
        except SnowredisError as error:
            await self._refuse(send, problem_of(error))
        finally:
            self._busy -= 1

    async def _refuse(self, send: Send, problem: Problem) -> None:
        self.counts.refused(problem.status)
        headers = problem.headers()
        if problem.status == 413:
            # what is still to come is not read
            headers.append((b"connection", b"close"))
        await self._send(send, problem.status, JSON, problem.body(), headers)

    async def _send(
        self, send: Send, status: int, kind: str, body: bytes, more: Headers | None = None
    ) -> None:
        headers = [(b"content-length", b"%d" % len(body)), *self._heads[kind]]
        if more:
            headers += more
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _ids(self, scope: Scope, send: Send, path: str) -> None:
        kind = self._kind(scope)
        query = scope["query_string"]
        asked = _query(query) if query else {}
        pool = self._pool(asked)
        count = None
        if path == "/ids":
            count = self._count(asked)
        try:
            made = await pool.make(count)
        except (SnowredisError, Problem):
            raise
        except Exception as error:
            log.exception("pool %s: no id was made", pool.name)
            raise Problem(500, "InternalError", "the service failed; its log says more") from error
        if isinstance(made, int):
            self.counts.made(pool.name, 1)
            body = one_id(made, kind)
        else:
            self.counts.made(pool.name, len(made))
            body = many_ids(made, kind)
        await self._send(send, 200, kind, body)

    def _kind(self, scope: Scope) -> str:
        accept = b""
        for name, value in scope["headers"]:
            if name == b"accept":
                accept = accept + b"," + value if accept else value
        kind = self._kinds.get(accept)
        if kind is None:
            kind = kind_of(accept.decode("latin-1"))
            if len(self._kinds) < 200:
                self._kinds[accept] = kind
        if kind is None:
            raise Problem(406, "NotAcceptable", f"there is {JSON}, {TEXT} and {BINARY} (big-endian int64)")
        return kind

    def _pool(self, asked: Mapping[str, str]) -> ServedPool:
        name = asked.get("pool", self._first)
        pool = self._pools.get(name)
        if pool is None:
            if name in self.names:
                raise Problem(503, "NotReady", "the service has not started yet. Ask again.", 1)
            raise Problem(
                404, "PoolNotFound", f"this service has no pool {name[:64]!r}; it has {', '.join(self.names)}"
            )
        return pool

    def _count(self, asked: Mapping[str, str]) -> int:
        text = asked.get("count", "")
        # without a look at its length int() takes a while for a text of megabytes
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0):
            raise Problem(
                400,
                "BadCount",
                f"count must be a whole number from 1 to {self.limits.max_count}, not {text[:40]!r}",
            )
        if int(text) > self.limits.max_count:
            raise Problem(
                400,
                "BadCount",
                f"{int(text)} ids are too many; {self.limits.max_count} can be asked for at once",
            )
        return int(text)

    # --- everything but ids ------------------------------------------------------------------------

    def _starlette(self) -> Starlette:
        routes = [
            Route(path, answer)
            for path, answer in (
                ("/decode/{text:path}", self._decode),
                ("/whois/{text:path}", self._whois),
                ("/workers", self._workers),
                ("/pool", self._pool_state),
                ("/pools", self._pool_names),
                ("/events", self._events),
                ("/healthz", self._healthz),
                ("/readyz", self._readyz),
                ("/metrics", self._metrics),
                ("/openapi.json", self._openapi),
            )
        ]
        return Starlette(
            routes=[
                *routes,
                # with another method than GET: ids are made in _ids()
                Route("/id", _unused),
                Route("/ids", _unused),
                Route("/live", self._live),
                *page_routes(self.door),
            ],
            exception_handlers={
                Problem: self._problem,
                SnowredisError: self._problem,
                HTTPException: self._http_error,
                Exception: self._unexpected,
            },
            lifespan=self._lifespan,
        )

    async def _problem(self, request: Request, error: Exception) -> Response:
        problem = error if isinstance(error, Problem) else problem_of(cast("SnowredisError", error))
        self.counts.refused(problem.status)
        more = _as_text(problem.headers())
        return self._response(problem.body(), status=problem.status, more=more)

    async def _http_error(self, request: Request, found: Exception) -> Response:
        error = cast("HTTPException", found)
        problem = Problem(
            error.status_code, error.detail.replace(" ", ""), _WHY.get(error.status_code, error.detail)
        )
        return self._response(problem.body(), status=error.status_code, more=dict(error.headers or {}))

    async def _unexpected(self, request: Request, error: Exception) -> Response:
        # Starlette raises it again, and the server logs it
        problem = Problem(500, "InternalError", "the service failed; its log says more")
        return self._response(problem.body(), status=500)

    def _response(
        self, body: bytes, *, kind: str = JSON, status: int = 200, more: Mapping[str, str] | None = None
    ) -> Response:
        headers = _as_text(self._heads[kind]) | dict(more or {})
        return Response(body, status_code=status, headers=headers)

    async def _decode(self, request: Request) -> Response:
        asked = _query(request.scope["query_string"])
        pool = self._pool(asked)
        layout = pool.layout
        if layout is None:
            # the bits mean nothing without it
            layout = (await pool.ask(lambda monitor: monitor.info())).layout
        form, an_id = parse_user_id(request.path_params["text"], layout, asked)
        return self._response(as_json(id_as_json(layout, an_id, form)))

    async def _whois(self, request: Request) -> Response:
        asked = _query(request.scope["query_string"])
        pool = self._pool(asked)
        self.door.check_lookup_rate()
        info = await pool.ask(lambda monitor: monitor.info())
        form, an_id = parse_user_id(request.path_params["text"], info.layout, asked)
        told = {"decoded": id_as_json(info.layout, an_id, form)}
        found = await pool.ask(lambda monitor: monitor.whois(an_id))
        answer = {name: value for name, value in plain(found).items() if name != "parts"}
        return self._response(as_json(told | {"whois": answer | {"id": str(an_id)}}))

    async def _workers(self, request: Request) -> Response:
        pool = self._pool(_query(request.scope["query_string"]))
        self.door.check_lookup_rate()
        workers = await pool.ask(lambda monitor: monitor.workers())
        return self._response(as_json({"pool": pool.name, "workers": workers}))

    async def _pool_state(self, request: Request) -> Response:
        pool = self._pool(_query(request.scope["query_string"]))
        self.door.check_lookup_rate()
        info = await pool.ask(lambda monitor: monitor.info())
        return self._response(as_json(pool_as_json(info) | {"served_by": pool.worker, "ready": pool.ready}))

    async def _pool_names(self, request: Request) -> Response:
        return self._response(as_json({"pools": self.names}))

    async def _events(self, request: Request) -> Response:
        pool = self._pool(_query(request.scope["query_string"]))
        self.door.check_lookup_rate()
        return self._response(as_json({"pool": pool.name, "events": await pool.ask(last_events)}))

    async def _healthz(self, request: Request) -> Response:
        return self._response(b'{"ok":true}')

    async def _readyz(self, request: Request) -> Response:
        ready = bool(self._pools) and all(pool.ready for pool in self._pools.values())
        body = as_json({"ready": ready})
        if ready:
            return self._response(body)
        return self._response(body, status=503, more={"retry-after": "1"})

    async def _metrics(self, request: Request) -> Response:
        self.door.check_lookup_rate()
        if self._metrics_of is None:
            raise Problem(503, "NotReady", "the service has not started yet. Ask again.", 1)
        kind, text = await in_thread(self._metrics_of.text)
        return self._response(text, kind=TEXT, more={"content-type": kind})

    async def _openapi(self, request: Request) -> Response:
        return self._response(as_json(description(self.limits, self.names)))

    async def _live(self, request: Request) -> Response:
        pool = self._pool(_query(request.scope["query_string"]))
        if sum(served.watch.viewers for served in self._pools.values()) >= self.limits.max_viewers:
            raise Problem(503, "Busy", f"{self.limits.max_viewers} dashboards are open already", 30)
        headers = _as_text(PLAIN_HEADERS)
        # for proxies that would collect it
        headers |= {"x-accel-buffering": "no"}
        return StreamingResponse(pool.watch.stream(), headers=headers, media_type="text/event-stream")

    # --- life --------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        url, names, options = self._made
        pools = {name: ServedPool(url, name, options, self.limits.wait_s) for name in names}
        async with contextlib.AsyncExitStack() as stack:
            for pool in pools.values():
                stack.push_async_callback(pool.stop)
            await asyncio.gather(*(pool.start() for pool in pools.values()))
            self._metrics_of = await in_thread(
                lambda: metrics.Metrics(self.counts, dict.fromkeys(names, url))
            )
            self._pools = pools
            with on_shutdown_signal(self.end_streams):
                yield
            self._pools = {}

    def end_streams(self) -> None:
        """End what would go on for ever, so that the server can stop."""
        for pool in self._pools.values():
            pool.watch.end_streams()


_WHY = {
    404: "there is nothing here; /openapi.json says what there is",
    405: "this can only be asked for with the methods in Allow",
}


async def _unused(_request: Request) -> Response:
    # HEAD: an id that nobody sees
    return Response(status_code=200, headers=_as_text(PLAIN_HEADERS))


def _as_text(headers: Headers) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in headers}


def _query(query: bytes) -> dict[str, str]:
    """The first of each name. A query that is no text of ours has none."""
    try:
        found = parse_qs(query.decode("ascii"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise Problem(400, "BadQuery", "the query cannot be read") from None
    return {name: values[0] for name, values in found.items()}
