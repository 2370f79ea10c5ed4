# Type:     python examples/fastapi_app.py
# You see:  a FastAPI service that claims a worker id when it starts and gives it back when it ends; orders that are
#           made, read and refused over HTTP. In JSON ids are strings, since JavaScript rounds numbers past 2**53;
#           in Python they are ints. With a Redis of yours write its URL in place of embedded://.

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
from snowredis.integrations.pydantic import SnowflakeId


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with snowredis.aconnect("embedded://", pool="fastapi", label="fastapi") as ids:
        app.state.ids = ids
        yield


app = FastAPI(lifespan=lifespan)
orders: dict[int, Order] = {}


class NewOrder(BaseModel):
    customer: SnowflakeId
    what: str


class Order(NewOrder):
    id: SnowflakeId


@app.post("/orders", status_code=201)
async def make(new: NewOrder, request: Request) -> Order:
    an_id = await request.app.state.ids.anext_id()
    orders[an_id] = Order(id=an_id, **new.model_dump())
    return orders[an_id]


@app.get("/orders/{order_id}")
async def read(order_id: SnowflakeId) -> Order:
    if order_id not in orders:
        raise HTTPException(404, f"there is no order {order_id}")
    return orders[order_id]


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The service, for as long as it is looked at; its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        # who asks before the service has its worker id waits
        listening.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield "http://{}:{}".format(*listening.getsockname())
        finally:
            server.should_exit = True
            thread.join()


async def look(client: httpx.AsyncClient) -> None:
    async with client:
        customer = 249734652741287937
        answer = await client.post("/orders", json={"customer": customer, "what": "a lamp"})
        print("made:   ", answer.status_code, answer.text)
        order = answer.json()
        assert order["customer"] == str(customer)

        answer = await client.get(f"/orders/{order['id']}")
        print("read:   ", answer.status_code, answer.text)
        assert answer.json() == order

        for bad in ("0", "1.5", "9223372036854775808"):
            answer = await client.get(f"/orders/{bad}")
            print("refused:", answer.status_code, bad, "-", answer.json()["detail"][0]["msg"])
            assert answer.status_code == 422

        made = await asyncio.gather(
            *(client.post("/orders", json={"customer": "7", "what": "a lamp"}) for _ in range(200))
        )
        assert len({answer.json()["id"] for answer in made}) == 200
        print("200 more orders at once: 200 different ids")

        schema = (await client.get("/openapi.json")).json()["components"]["schemas"]["Order"]["properties"][
            "id"
        ]
        print("in OpenAPI an id is a", schema["type"], "with the pattern", schema["pattern"])


client = httpx.AsyncClient(timeout=30)
with serving() as url:
    client.base_url = url
    asyncio.run(look(client))
pool = snowredis.WorkerPool(snowredis.embedded.resolve("embedded://"), "fastapi")
left = [worker.label for worker in pool.workers()]
print("the worker id was given back:", left == [])
