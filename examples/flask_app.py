# Type:     python examples/flask_app.py
# Needs:    pip install flask; and redis-server, or else pip install 'fakeredis[lua]'
# You see:  a Flask service with one generator for all its threads; orders that are created and read over HTTP. In JSON
#           ids are strings, since JavaScript rounds numbers past 2**53; other numbers stay numbers.
#           To use your own Redis, replace embedded:// with its URL.

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flask import Flask, abort, request
from werkzeug.serving import WSGIRequestHandler, make_server

import snowredis
from snowredis.integrations.json import flask_provider

# nothing is claimed before the first id: each process that a server such as gunicorn forks gets its own worker id
snowredis.configure(url="embedded://", pool="flask-orders", label="flask")
app = Flask(__name__)
# keys: small ids, such as those of old tables, become strings, too
app.json = flask_provider(app, keys={"id", "customer"})
orders: dict[int, dict[str, Any]] = {}


@app.post("/orders")
def make() -> tuple[dict[str, Any], int]:
    new = request.get_json()
    order = {"id": snowredis.next_id(), "customer": int(new["customer"]), "pieces": new["pieces"]}
    orders[order["id"]] = order
    return order, 201


@app.get("/orders/<int:order_id>")
def read(order_id: int) -> dict[str, Any]:
    return orders.get(order_id) or abort(404)


class Quiet(WSGIRequestHandler):
    def log_request(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Run the service inside a with block, and yield its URL."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def request_json(url: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
    headers = {"Content-Type": "application/json"}
    data = json.dumps(body).encode() if body else None
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as response:  # noqa: S310
            return response.status, response.read().decode().strip()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.reason


with serving() as url:
    customer = 249734652741287937
    status, text = request_json(f"{url}/orders", {"customer": str(customer), "pieces": 3})
    print("created:  ", status, text)
    order = json.loads(text)
    assert order == {"id": order["id"], "customer": str(customer), "pieces": 3}
    print(f"customer {customer} as a number would be {int(float(customer))} in JavaScript")

    print("read:     ", *request_json(f"{url}/orders/{order['id']}"))
    print("not found:", *request_json(f"{url}/orders/1"))

    with ThreadPoolExecutor(8) as threads:
        created = list(
            threads.map(lambda _: request_json(f"{url}/orders", {"customer": "7", "pieces": 1})[1], range(200))
        )
    assert len({json.loads(text)["id"] for text in created}) == 200
    print("200 more orders from 8 threads: 200 different ids")

snowredis.close()
pool = snowredis.WorkerPool("embedded://", "flask-orders")
print("the worker id was released:", pool.workers() == [])
