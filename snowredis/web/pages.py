"""The files of the page. Nothing of a pool is in them: the page asks for it."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from snowredis.web.messages import PAGE_HEADERS

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
# icons are public: a browser asks for them without the password
OPEN_PATHS = frozenset({"/static/icon.svg"})


def page_routes() -> list[Route]:
    """Return the routes of the page and of its style sheets, scripts and icons."""
    folder = files("snowredis.web") / "static"
    return [_route(file.name, file.read_bytes()) for file in folder.iterdir()]


def _route(name: str, body: bytes) -> Route:
    kind = _TYPES[name.rpartition(".")[2]]

    async def page(_request: Request) -> Response:
        return Response(body, 200, PAGE_HEADERS, kind)

    return Route("/" if name == "index.html" else f"/static/{name}", page)
