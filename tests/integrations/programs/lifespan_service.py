"""App that gives ids at /id, and says at /pid which process serves; its worker id is claimed by lifespan()."""

import os

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import snowredis
from snowredis.integrations.asgi import lifespan


async def an_id(request):
    return JSONResponse({"pid": os.getpid(), "id": await request.state.ids.anext_id()})


async def pid(request):
    return JSONResponse({"pid": os.getpid()})


async def no_ids(request, error):
    return JSONResponse({"pid": os.getpid(), "error": type(error).__name__}, 503, {"Retry-After": "1"})


app = Starlette(
    routes=[Route("/id", an_id), Route("/pid", pid)],
    lifespan=lifespan(),
    exception_handlers={snowredis.SnowredisError: no_ids},
)
