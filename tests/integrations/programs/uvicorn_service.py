"""App that gives an id of a pool at POOL_URL to who asks for it."""

import os

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from snowredis.integrations.asgi import lifespan


async def an_id(request):
    return PlainTextResponse(str(await request.state.ids.anext_id()))


app = Starlette(routes=[Route("/id", an_id)], lifespan=lifespan(os.environ["POOL_URL"], pool="uvicorn", label="web"))
