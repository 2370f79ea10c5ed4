# Type:     python examples/fastapi_app.py
# Needs:    pip install fastapi httpx uvicorn; and redis-server, or else pip install 'fakeredis[lua]'
# You see:  a FastAPI service that claims a worker id when it starts and releases it when it ends; orders that are
#           created, read and refused over HTTP. In JSON ids are strings, since JavaScript rounds numbers past 2**53;
#           in Python they are ints. To use your own Redis, replace embedded:// with its URL.

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator

import httpx
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

import snowredis
from snowredis.integrations.pydantic import JsonSnowflakeId


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with snowredis.aconnect("embedded://", pool="fastapi", label="fastapi") as ids:
        app.state.ids = ids
        yield


app = FastAPI(lifespan=lifespan)
orders: dict[int, Order] = {}


class NewOrder(BaseModel):
    customer: JsonSnowflakeId
    what: str


class Order(NewOrder):
    id: JsonSnowflakeId


@app.post("/orders", status_code=201)
async def make(new: NewOrder, request: Request) -> Order:
    an_id = await request.app.state.ids.anext_id()
    orders[an_id] = Order(id=an_id, **new.model_dump())
    return orders[an_id]


@app.get("/orders/{order_id}")
async def read(order_id: JsonSnowflakeId) -> Order:
    if order_id not in orders:
        raise HTTPException(404, f"there is no order {order_id}")
    return orders[order_id]


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Run the service inside a with block, and yield its URL."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        # requests wait until the service has its worker id
        listening.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield "http://{}:{}".format(*listening.getsockname())
        finally:
            server.should_exit = True
            thread.join()


async def try_service(client: httpx.AsyncClient) -> None:
    async with client:
        customer = 249734652741287937
        response = await client.post("/orders", json={"customer": customer, "what": "a lamp"})
        print("created:", response.status_code, response.text)
        order = response.json()
        assert order["customer"] == str(customer)

        response = await client.get(f"/orders/{order['id']}")
        print("read:   ", response.status_code, response.text)
        assert response.json() == order

        for bad in ("0", "1.5", "9223372036854775808"):
            response = await client.get(f"/orders/{bad}")
            print("refused:", response.status_code, bad, "-", response.json()["detail"][0]["msg"])
            assert response.status_code == 422

        created = await asyncio.gather(
            *(client.post("/orders", json={"customer": "7", "what": "a lamp"}) for _ in range(200))
        )
        assert len({response.json()["id"] for response in created}) == 200
        print("200 more orders at once: 200 different ids")

        schema = (await client.get("/openapi.json")).json()["components"]["schemas"]["Order"]["properties"]["id"]
        print("in OpenAPI an id is a", schema["type"], "with the pattern", schema["pattern"])


client = httpx.AsyncClient(timeout=30)
with serving() as url:
    client.base_url = url
    asyncio.run(try_service(client))
pool = snowredis.WorkerPool("embedded://", "fastapi")
left = [worker.label for worker in pool.workers()]
print("the worker id was released:", left == [])
