"""The dashboard's files, the login form, and the sessions that ended. Nothing of a pool is in them.

Sessions of browsers that logged out are stored in the Redis of the pools, until their cookies would have ended: every
process of the service refuses these cookies. Each process looks once a second while cookies are used. While Redis is
unavailable, a process knows the sessions that it saw or ended itself.
"""

from __future__ import annotations

import logging
import time
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from snowredis.errors import SnowredisError
from snowredis.process.coroutines import in_thread
from snowredis.servers.clients import open_client
from snowredis.servers.runner import translated
from snowredis.servers.scripts import text_of
from snowredis.settings import is_in_memory
from snowredis.web.access import COOKIE, COOKIE_LIFE_S, RequestGuard, no_token
from snowredis.web.messages import PAGE_HEADERS, HttpProblem

log = logging.getLogger("snowredis")

# zset: session that was logged out -> end of its cookie, s since 1970
SESSIONS_KEY = "snowredis:ended-sessions"
_READ_EVERY_S = 1.0
_MAX_SESSIONS = 10_000


class EndedSessions:
    """Sessions whose cookies are refused.

    Args:
        url: as connect() takes it. Pools in memory have only one process, and nothing is stored.
    """

    def __init__(self, url: Any) -> None:
        self._url = url
        self._ended: dict[str, int] = {}
        # ended here, and not stored yet
        self._unstored: dict[str, int] = {}
        self._server: Any = None
        self._looked_at_s = float("-inf")
        self._failed = False

    async def end(self, session: str) -> bool:
        """End *session*, here at once, elsewhere within about a second. Return false if Redis did not store it."""
        self._ended[session] = self._unstored[session] = int(time.time()) + COOKIE_LIFE_S
        return await self._refresh()

    async def check(self, session: str) -> None:
        """Raise HttpProblem if *session* has ended."""
        if time.monotonic() - self._looked_at_s >= _READ_EVERY_S:
            await self._refresh()
        if session in self._ended:
            raise no_token()

    async def _refresh(self) -> bool:
        """Exchange sessions with the other processes. Return false if Redis did not allow it."""
        # set before the await, so that requests meanwhile do not look too
        self._looked_at_s = time.monotonic()
        try:
            found = await in_thread(self._exchange)
        except SnowredisError as error:
            if not self._failed:
                log.warning("a logout is not seen by other processes: %s", error)
            self._failed = True
            return False
        self._failed = False
        now_s = time.time()
        self._ended = {name: until_s for name, until_s in (self._ended | found).items() if until_s > now_s}
        return True

    def _exchange(self) -> dict[str, int]:
        """Store what is not stored yet, and return what is. Blocks for a few round trips to Redis."""
        unstored = dict(self._unstored)
        rows: list[Any] = []
        if not is_in_memory(self._url):
            self._server = server = self._server or open_client(self._url)
            now_s = int(time.time())
            with translated(server.where):
                if unstored:
                    server.client.zadd(SESSIONS_KEY, unstored)
                # the newest: a longer list must not bring an ended session back
                order: Any = {"desc": True, "byscore": True, "offset": 0, "num": _MAX_SESSIONS, "withscores": True}
                rows = server.client.zrange(SESSIONS_KEY, "+inf", "-inf", **order)
                old = [name for name, until_s in rows if until_s <= now_s]
                if old:
                    server.client.zrem(SESSIONS_KEY, *old)
        for name in unstored:
            self._unstored.pop(name, None)
        return {text_of(name): int(until_s) for name, until_s in rows}


_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FOLDER = files("snowredis.web") / "static"


def page_routes(guard: RequestGuard, sessions: EndedSessions) -> list[Route]:
    """Return the routes of the pages."""
    pages = Pages(guard, sessions)
    # HTML needs a handler of its own
    names = [file.name for file in _FOLDER.iterdir() if not file.name.endswith(".html")]
    return [
        Route("/", pages.dashboard),
        Route("/login", pages.login, methods=["GET", "POST"]),
        Route("/logout", pages.logout, methods=["POST"]),
        *(Route(f"/static/{name}", pages.static) for name in names),
    ]


class Pages:
    """Handlers of the pages.

    A browser sends the token once, in a form, and gets a cookie derived from it. The token is never part of a URL:
    browsers and proxies keep URLs in histories and logs.
    """

    def __init__(self, guard: RequestGuard, sessions: EndedSessions) -> None:
        self._guard, self._sessions = guard, sessions

    async def dashboard(self, request: Request) -> Response:
        """Return the dashboard, or the login form if the request has neither token nor cookie. Raises HttpProblem."""
        try:
            session = self._guard.check_caller(
                request.scope, _header(request, "authorization"), _header(request, "cookie")
            )
            if session is not None:
                await self._sessions.check(session)
        except HttpProblem as problem:
            if problem.status != 401:
                raise
            return _page("login.html", status=401)
        return _page("index.html" if self._guard.auth is None else "index.html#logout")

    async def login(self, request: Request) -> Response:
        """Return the login form; for a form with the token, set the cookie. Raises HttpProblem."""
        auth = self._guard.auth
        if auth is None:
            return _to_dashboard()
        if request.method != "POST":
            return _page("login.html")
        check_origin(request)
        form = await _read_form(request)
        try:
            self._guard.check_token(request.scope, form.get("token", [""])[0].strip().encode())
        except HttpProblem as problem:
            if problem.status != 401:
                raise
            return _page("login.html#wrong", status=401)
        return _with_cookie(request, _to_dashboard(), auth.make_cookie(time.time()))

    async def logout(self, request: Request) -> Response:
        """End the session and delete its cookie; 503 if only the latter was done. Raises HttpProblem."""
        check_origin(request)
        auth, cookie = self._guard.auth, _header(request, "cookie")
        session = auth.session_of(cookie, time.time()) if auth is not None and cookie is not None else None
        if session is None or await self._sessions.end(session):
            return _with_cookie(request, _to_dashboard(), None)
        # the session may live on: it must not look as if it had ended
        return _with_cookie(request, _page("login.html#lives", status=503), None)

    async def static(self, request: Request) -> Response:
        """Return a style sheet, script or icon."""
        return _page(request.url.path.rpartition("/")[2])


@cache
def _page_bytes(name: str) -> bytes:
    """Return the file *name*; of FILE#ID, with the hidden element ID shown."""
    file, _, shown = name.partition("#")
    return (_FOLDER / file).read_bytes().replace(f' id="{shown}" hidden'.encode(), f' id="{shown}"'.encode())


def _page(name: str, status: int = 200) -> Response:
    return Response(_page_bytes(name), status, PAGE_HEADERS, _TYPES[name.partition("#")[0].rpartition(".")[2]])


async def _read_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form. Raises HttpProblem."""
    try:
        return parse_qs((await request.body()).decode("latin-1"), max_num_fields=5)
    except ValueError:
        raise HttpProblem(400, "BadForm", "the form cannot be parsed") from None


def check_origin(request: Request) -> None:
    """Raise HttpProblem if a request that changes something comes from a page of another origin.

    All current browsers send Origin with such requests.
    """
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    if origin is not None and origin.partition("://")[2] != host:
        raise HttpProblem(403, "CrossSite", "this request was sent from a page of another origin")


def _header(request: Request, name: str) -> bytes | None:
    values = request.headers.getlist(name)
    return ";".join(values).encode("latin-1") if values else None


def _to_dashboard() -> Response:
    return RedirectResponse("./", 303, headers=PAGE_HEADERS)


def _with_cookie(request: Request, response: Response, cookie: str | None) -> Response:
    """Return *response*, which sets *cookie*; None deletes it."""
    life_s, secure = COOKIE_LIFE_S if cookie else 0, request.url.scheme == "https"
    # the path is that of the form: behind a proxy there may be a prefix
    response.set_cookie(COOKIE, cookie or "", life_s, path=None, secure=secure, httponly=True, samesite="strict")
    return response
