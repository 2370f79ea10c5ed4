"""The dashboard's files, and the login form. They contain nothing of a pool: the page requests it."""

from __future__ import annotations

import asyncio
import time
from importlib.resources import files
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from snowredis.web.access import COOKIE, COOKIE_LIFE_S
from snowredis.web.problems import Problem
from snowredis.web.request_guard import RequestGuard
from snowredis.web.responses import PAGE_HEADERS
from snowredis.web.sessions import EndedSessions

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
# a form is one packet
_BODY_LIMIT_S = 10.0
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
        self._files: dict[str, bytes] = {}

    async def dashboard(self, request: Request) -> Response:
        """Return the dashboard, or the login form if the request has neither token nor cookie. Raises Problem."""
        try:
            session = self._guard.check_caller(
                request.scope, _header(request, "authorization"), _header(request, "cookie")
            )
            if session is not None:
                await self._sessions.check(session)
        except Problem as problem:
            if problem.status != 401:
                raise
            return self._page("login.html", status=401)
        return self._page("index.html")

    async def login(self, request: Request) -> Response:
        """Return the login form; for a form with the token, set the cookie. Raises Problem."""
        auth = self._guard.auth
        if auth is None:
            return RedirectResponse("/", 303, headers=PAGE_HEADERS)
        if request.method != "POST":
            return self._page("login.html")
        _check_origin(request)
        form = await _read_form(request)
        try:
            self._guard.check_token(form.get("token", [""])[0].strip().encode("latin-1"))
        except Problem as problem:
            if problem.status != 401:
                raise
            return self._page("wrong.html", status=401)
        return _redirect_with_cookie(request, auth.make_cookie(time.time()))

    async def logout(self, request: Request) -> Response:
        """End the session and delete its cookie. Raises Problem."""
        _check_origin(request)
        auth, cookie = self._guard.auth, _header(request, "cookie")
        session = auth.session_of(cookie, time.time()) if auth is not None and cookie is not None else None
        if session is not None:
            await self._sessions.end(session)
        return _redirect_with_cookie(request, None)

    async def static(self, request: Request) -> Response:
        """Return a style sheet, script or icon."""
        return self._page(request.url.path.rpartition("/")[2])

    def _page(self, name: str, status: int = 200) -> Response:
        if name not in self._files:
            self._files[name] = self._read(name)
        media_type = _TYPES[name.rpartition(".")[2]]
        return Response(self._files[name], status, PAGE_HEADERS, media_type)

    def _read(self, name: str) -> bytes:
        """Read a small file of the package."""
        if name == "wrong.html":
            return (_FOLDER / "login.html").read_bytes().replace(b" hidden>", b">")
        page = (_FOLDER / name).read_bytes()
        if name == "index.html" and self._guard.auth is not None:
            page = page.replace(b'action="/logout" hidden', b'action="/logout"')
        return page


async def _read_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form. Raises Problem."""
    try:
        async with asyncio.timeout(_BODY_LIMIT_S):
            body = await request.body()
        return parse_qs(body.decode("latin-1"), max_num_fields=5)
    except TimeoutError:
        raise Problem(408, "RequestTimeout", "the body of the request did not arrive") from None
    except ValueError:
        raise Problem(400, "BadForm", "the form cannot be parsed") from None


def _check_origin(request: Request) -> None:
    """Raise Problem if a form was sent by a page of another origin. All current browsers send Origin with forms."""
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    if origin is not None and origin.partition("://")[2] != host:
        raise Problem(403, "CrossSite", "this form was sent from a page of another origin")


def _header(request: Request, name: str) -> bytes | None:
    values = request.headers.getlist(name)
    return ";".join(values).encode("latin-1") if values else None


def _redirect_with_cookie(request: Request, cookie: str | None) -> Response:
    """Redirect to the dashboard and set *cookie*; None deletes it."""
    response = RedirectResponse("/", 303, headers=PAGE_HEADERS)
    response.set_cookie(
        COOKIE,
        cookie or "",
        max_age=COOKIE_LIFE_S if cookie else 0,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response
