"""The ASGI application, and the ids themselves: GET /id and GET /ids.

Ids are served here, before any routing, and the files of the page, in which nothing of a pool is: it asks for that. All
other requests go to routes.py. The settings are SNOWREDIS_SERVE_* variables, beside the SNOWREDIS_* variables of
connect(). Drain is the time between
SIGTERM and the end. Nothing connects before the server starts the application, so it may be created before a fork.

    gunicorn -k uvicorn_worker.UvicornWorker 'snowredis.web.service:from_environment()'
    uvicorn --factory snowredis.web.service:from_environment
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import FrameType
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from snowredis.errors import ConfigError, SnowredisError
from snowredis.process.log import log
from snowredis.settings import (
    BOOL,
    SETTINGS,
    TEXT,
    TIMEOUT,
    Kind,
    Setting,
    check,
    check_settings,
    is_in_memory,
    read_variables,
    required_pool,
    required_url,
)
from snowredis.settings import from_environment as settings_of_connect
from snowredis.web import PREFIX, messages
from snowredis.web.access import Guard
from snowredis.web.messages import JSON, PAGE_HEADERS, HttpProblem
from snowredis.web.routes import ID_PATHS, RequestCounts, Routes
from snowredis.web.served import ServedKinds, ServedPools

# load balancers know neither a host name nor a token
PROBES = frozenset({"/healthz", "/readyz"})

_NAMES = Kind("names, separated by spaces", str.split, lambda value: isinstance(value, list))

# 64 bits in hex, and longer than a word
MIN_TOKEN_LENGTH = 16
_TOKEN = re.compile(r"[\x21-\x7e]+")

# name -> declaration; each has a variable SNOWREDIS_SERVE_NAME
SERVICE_SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("pools", _NAMES, None, SETTINGS["pool"].variable, "names of the pools, separated by spaces"),
        Setting("token", TEXT, None, "none", "required from every client; 16 characters or more"),
        Setting("token_file", TEXT, None, "none", "file with the token"),
        Setting("hosts", _NAMES, [], "none", "names of the service besides localhost, separated by spaces"),
        Setting("create", BOOL, False, "off", "create pools that do not exist; their first worker waits"),
        Setting(
            "kinds",
            _NAMES,
            [],
            "none",
            "other kinds of ids, separated by spaces, for requests with `kind=` or `tag=`, such as `uuid7` and "
            "`segment:?tag=invoices`",
        ),
        Setting("insecure", BOOL, False, "off", "allow all clients, without a token"),
        Setting("wait_s", TIMEOUT, 2.0, "2.0", "how long a request waits for an id before it gets 503"),
        # while load balancers notice that it is not ready; 0: it stops at once
        Setting("drain_s", TIMEOUT, 5.0, "5.0", "how long it goes on serving after SIGTERM"),
    )
}


def create_app(
    url: Any = None,
    *,
    pools: Sequence[str] | None = None,
    token: str | None = None,
    hosts: Sequence[str] = (),
    insecure: bool = False,
    create: bool = False,
    kinds: Sequence[str] = (),
    wait_s: float = 2.0,
    drain_s: float = 5.0,
    **options: Any,
) -> Service:
    """Create the application. Does not connect.

    Args:
        url, options: as snowredis.connect() takes them, for pools in a Redis; settings that are not given are those of
            the existing pool.
        pools: their names, by default that of SNOWREDIS_POOL; requests without ``pool=`` use the first.
        token: required from every client; without one only requests over loopback or a unix socket are allowed.
        hosts: names of the service, without port, besides localhost, 127.0.0.1 and [::1]; "*" allows any.
        insecure: allow all clients, even without a token.
        create: create pools that do not exist, instead of refusing to start.
        kinds: other kinds of ids, as snowredis.generator() takes them, such as "uuid7" and "segment:?tag=invoices", for
            requests with ``kind=`` or ``tag=``.
        wait_s: how long a request waits for an id before it gets 503.
        drain_s: how long it goes on serving after SIGTERM.

    Raises:
        ConfigError: a setting is not valid.
    """
    url, names = required_url(url), [required_pool(None, url)] if pools is None else list(pools)
    if is_in_memory(url):
        raise ConfigError("a pool in memory cannot be served, so no service was made. Use embedded:// in its place.")
    options = check_settings(options)
    for name, value in {"wait_s": wait_s, "drain_s": drain_s}.items():
        SERVICE_SETTINGS[name].check(value)
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"pools must be one name or several different ones, not {names!r}")
    for name in names:
        check("pool", name)
    served = ServedPools(url, names, options, wait_s, create)
    guard = Guard(check_token(token), insecure, hosts)
    return Service(served, ServedKinds(url, kinds, wait_s), guard, drain_s)


def from_environment(environment: Mapping[str, str] | None = None) -> Service:
    """Create the application from SNOWREDIS_* and SNOWREDIS_SERVE_* variables, for servers that import it.

    Raises:
        ConfigError: the value of a variable is not valid.
    """
    url, options = settings_from_environment(os.environ if environment is None else environment)
    return create_app(url, **options)


class Service:
    """The application; see create_app()."""

    def __init__(self, pools: ServedPools, kinds: ServedKinds, guard: Guard, drain_s: float) -> None:
        self.pools, self.guard = pools, guard
        self.counts = RequestCounts(pools.names)
        self.drain = Drain(drain_s)
        self._kinds = kinds
        self._routes = Routes(pools, guard, self.counts, lambda: self.drain.draining)
        self._router = Router([*self._routes.all(), *page_routes()], redirect_slashes=False, default=_not_found)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if root := scope.get("root_path"):
                # the path of a mount, or of a proxy
                scope = {**scope, "path": scope["path"].removeprefix(root) or "/", "root_path": ""}
            await self._respond(scope, receive, _closing(scope, send) if self.drain.draining else send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        try:
            if path not in PROBES:
                self.guard.check_host(scope)
                if path not in OPEN_PATHS:
                    self.guard.check(scope)
            if path in ID_PATHS and scope["method"] == "GET":
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
            log.exception("%s: the request failed", path[:100])
            # fails if the response has begun; then the server closes the connection
            await self._send_problem(send, HttpProblem(500, "InternalError", "the service failed; see its log"))

    async def _send_problem(self, send: Send, problem: HttpProblem, more: Mapping[str, str] | None = None) -> None:
        self.counts.count_error(problem.status)
        headers = problem.headers()
        headers += [(name.lower().encode(), text.encode()) for name, text in (more or {}).items()]
        body = messages.json_bytes(problem.fields())
        await messages.send_body(send, body, status=problem.status, media_type=messages.PROBLEM_JSON, more=headers)

    # --- ids ---------------------------------------------------------------------------------------

    async def _send_ids(self, scope: Scope, send: Send) -> None:
        """Respond to GET /id and GET /ids. What cannot be served is refused before an id is made."""
        accept = b",".join([value for name, value in scope["headers"] if name == b"accept"])
        media_type = messages.choose_media_type(accept)
        one = scope["path"] == "/id"
        query = messages.parse_query(scope["query_string"], "pool", "kind", "tag", *(() if one else ("count",)))
        source = self._kinds.find(query) or self.pools.find(query)
        if media_type == messages.BINARY and source.makes_text:
            detail = f"ids of {source.name!r} are text, and cannot be packed"
            raise HttpProblem(406, "NotAcceptable", detail)
        ids = await source.make_ids(1 if one else messages.parse_whole(query, "count"))
        self.counts.count_ids(source.name, len(ids))
        await messages.send_body(send, messages.encode_ids(ids, media_type, one=one), media_type=media_type)

    # --- start and stop ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all pools, in an event loop whose server has installed its signal handlers.

        Raises:
            SnowredisError: as ServedPool.start().
        """
        logging.getLogger("uvicorn.error").addFilter(_once_a_minute)
        await self.pools.start()
        await self._routes.start()
        self.drain.start()

    async def stop(self) -> None:
        """Release all worker ids. May be called again, and after a start that failed."""
        self.drain.stop()
        await self.pools.stop()
        await self._kinds.stop()

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


def _once_a_minute(record: logging.LogRecord, logged_s: dict[str, float] = {}) -> bool:  # noqa: B006 - it is kept
    """Return whether the server logs a warning: the same one once a minute, since strangers cause most of them."""
    now_s, text = time.monotonic(), str(record.msg)
    if record.levelno != logging.WARNING or now_s - logged_s.get(text, float("-inf")) >= 60:
        logged_s[text] = now_s
        return True
    return False


class Drain:
    """The time between SIGTERM and the end: not ready any more, but every request is served.

    Load balancers notice that /readyz fails and send requests elsewhere; clients are told to close their connections,
    each with the response to a request, so that none is lost. Then the server's own handler of the signal stops it.
    This works under every server that handles signals by signal.signal(), as uvicorn and gunicorn's worker for it do.

    Args:
        drain_s: its length; 0: none.

    Attributes:
        draining: true from SIGTERM on.
    """

    def __init__(self, drain_s: float) -> None:
        self.draining = False
        self._drain_s = drain_s
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
            self._handlers[number](number, frame)
        elif first:
            log.info("SIGTERM: not ready any more, and stopping in %g s", self._drain_s)
            self._loop.call_soon_threadsafe(self._loop.call_later, self._drain_s, self._end, number)

    def _end(self, number: int) -> None:
        if number in self._handlers:
            self._handlers[number](number, None)


# --- settings ------------------------------------------------------------------------------------------


def settings_from_environment(environment: Mapping[str, str]) -> tuple[str | list[str], dict[str, Any]]:
    """Return the URL and the options of create_app(). Raises ConfigError for a variable that cannot be used."""
    options = settings_of_connect(environment)
    given = read_variables(environment, PREFIX, SERVICE_SETTINGS.values())
    token_file = given.pop("token_file", "")
    url, pool = required_url(options.pop("url", None)), options.pop("pool", None)
    if token_file:
        given["token"] = read_token(token_file)
    return url, {**options, **given, "pools": given.get("pools") or [required_pool(pool, url)]}


def check_token(token: str | None) -> str | None:
    """Return the token without surrounding white space; None if it is empty. Raises ConfigError if it is too weak."""
    text = (token or "").strip()
    if not text:
        return None
    if len(text) < MIN_TOKEN_LENGTH or not _TOKEN.fullmatch(text):
        raise ConfigError(
            f"the token must be {MIN_TOKEN_LENGTH} or more visible ASCII characters without spaces; the service was "
            "not started. Create one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return text


def read_token(path: str) -> str:
    """Return the token in a file. Raises ConfigError."""
    try:
        token = check_token(Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise ConfigError(
            f"the token cannot be read from {path}: {error.strerror}; the service was not started"
        ) from error
    if token is None:
        raise ConfigError(f"there is no token in {path}; the service was not started")
    return token


# --- files of the page ---------------------------------------------------------------------------------

_TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript", "json": JSON, "svg": "image/svg+xml"}
# the others are at /static/
_PATHS = {"index.html": "/", "openapi.json": "/openapi.json"}
# icons are public: a browser asks for them without the password
OPEN_PATHS = frozenset({"/static/icon.svg"})


def page_routes() -> list[Route]:
    """Return the routes of the page, of its style sheets, scripts and icons, and of the description."""
    folder = files("snowredis.web") / "static"
    return [_route(file.name, file.read_bytes()) for file in folder.iterdir()]


def _route(name: str, body: bytes) -> Route:
    kind = _TYPES[name.rpartition(".")[2]]

    async def page(_request: Request) -> Response:
        return Response(body, 200, PAGE_HEADERS, kind)

    return Route(_PATHS.get(name, f"/static/{name}"), page)
