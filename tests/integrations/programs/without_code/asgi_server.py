"""A Starlette application with a lifespan, for any ASGI server."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from snowredis.integrations.asgi import lifespan


async def make(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(await request.state.ids.anext_id()))


app = Starlette(routes=[Route("/", make)], lifespan=lifespan())
