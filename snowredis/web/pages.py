"""The dashboard's files, and the form that takes a token. Nothing of a pool is in them: the page asks for it."""

from __future__ import annotations

import time
from importlib.resources import files
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from snowredis.web.answers import Headers, Problem
from snowredis.web.request_guard import RequestGuard
from snowredis.web.security import PAGE_HEADERS, set_cookie

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_STATIC = ("page.css", "dashboard.js", "draw.js", "icon.svg")


def page_routes(door: RequestGuard) -> list[Route]:
    """The routes of the pages."""
    pages = Pages(door)
    return [
        Route("/", pages.dashboard),
        Route("/login", pages.login, methods=["GET", "POST"]),
        Route("/logout", pages.logout, methods=["POST"]),
        *(Route(f"/static/{name}", pages.static) for name in _STATIC),
    ]


class Pages:
    """With a token a browser gets in by a form, and gets a cookie that is made from it. The token itself stays
    out of addresses, which end up in histories and logs."""

    def __init__(self, door: RequestGuard) -> None:
        self._door = door
        self._files: dict[str, bytes] = {}

    async def dashboard(self, request: Request) -> Response:
        if self._door.keys is not None and not self._is_let_in(request):
            return self._page("login.html", status=401)
        self._door.check_caller(request.scope, _header(request, "authorization"), _header(request, "cookie"))
        return self._page("index.html")

    async def login(self, request: Request) -> Response:
        keys = self._door.keys
        if keys is None:
            return _with_headers(RedirectResponse("/", 303))
        if request.method != "POST":
            return self._page("login.html")
        if _foreign_form(request):
            raise Problem(403, "CrossSite", "this form was sent from another page")
        form = parse_qs((await request.body()).decode("latin-1"), max_num_fields=5)
        given = form.get("token", [""])[0].strip().encode("latin-1")
        if not self._door.try_token(given):
            return self._page("wrong.html", status=401)
        answer = _with_headers(RedirectResponse("/", 303))
        cookie = set_cookie(keys.cookie(time.time()), secure=request.url.scheme == "https")
        answer.raw_headers.append((b"set-cookie", cookie))
        return answer

    async def logout(self, request: Request) -> Response:
        if _foreign_form(request):
            raise Problem(403, "CrossSite", "this form was sent from another page")
        answer = _with_headers(RedirectResponse("/", 303))
        cookie = set_cookie("", secure=request.url.scheme == "https", life_s=0)
        answer.raw_headers.append((b"set-cookie", cookie))
        return answer

    async def static(self, request: Request) -> Response:
        return self._page(request.url.path.rpartition("/")[2])

    def _is_let_in(self, request: Request) -> bool:
        try:
            self._door.check_caller(
                request.scope, _header(request, "authorization"), _header(request, "cookie")
            )
        except Problem as problem:
            if problem.status != 401:
                raise
            return False
        return True

    def _page(self, name: str, status: int = 200) -> Response:
        found = self._files.get(name)
        if found is None:
            found = self._files[name] = self._read(name)
        kind = _TYPES[name.rpartition(".")[2]]
        return _with_headers(Response(found, status_code=status, media_type=kind))

    def _read(self, name: str) -> bytes:
        """A small file of the package, once."""
        folder = files("snowredis.web") / "static"
        if name == "wrong.html":
            page = (folder / "login.html").read_bytes()
            return page.replace(b" hidden>", b">")
        page = (folder / name).read_bytes()
        if name == "index.html" and self._door.keys is not None:
            # there is a way out where there is a way in
            page = page.replace(b'action="/logout" hidden', b'action="/logout"')
        return page


def _foreign_form(request: Request) -> bool:
    """Whether a form was sent by another page than ours; what sends no Origin is no browser of today."""
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    return origin is not None and origin.partition("://")[2] != host


def _header(request: Request, name: str) -> bytes | None:
    found = request.headers.getlist(name)
    return ";".join(found).encode("latin-1") if found else None


def _with_headers(answer: Response, headers: Headers = PAGE_HEADERS) -> Response:
    answer.raw_headers.extend(headers)
    return answer
