"""The files of the page, and the description of the service. Nothing of a pool is in them: the page asks for it."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from snowredis.web.messages import JSON, PAGE_HEADERS

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
