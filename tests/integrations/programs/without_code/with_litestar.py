"""Litestar with the lifespan of the ASGI integration, whose generator handlers find in the application's state."""

from litestar import Litestar, get
from litestar.datastructures import State
from litestar.testing import TestClient

from snowredis.integrations.asgi import lifespan


@get("/")
async def make(state: State) -> str:
    return str(await state.ids.anext_id())


with TestClient(Litestar([make], lifespan=[lifespan()])) as client:
    for _ in range(10):
        print(client.get("/").raise_for_status().text)
