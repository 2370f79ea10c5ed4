"""The apps that test_gunicorn.py serves, ``wsgi`` and ``asgi``, with one generator.

In the environment: POOL_URL; POOL; TTL in s; WORKER_BITS; CLAIM_TIMEOUT and
OUTAGE_RESERVE in s. What can be asked for: see answer().
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

import snowredis
from snowredis.core.layout import Layout

bits = int(os.environ.get("WORKER_BITS", "10"))
# as programs do: made where it is imported, in the arbiter under --preload
ids = snowredis.connect(
    os.environ["POOL_URL"],
    pool=os.environ["POOL"],
    ttl=float(os.environ["TTL"]),
    claim_timeout=float(os.environ.get("CLAIM_TIMEOUT", "0")),
    outage_reserve=float(os.environ.get("OUTAGE_RESERVE", "0")),
    layout=Layout(worker_bits=bits, sequence_bits=20 - bits),
)


def answer(path: str) -> bytes:
    """Do what *path* says.

    /ids/N: JSON of the pid, whether there was a lease before, the worker id and N ids. /stuck/S: sleep S s, deaf to all
    signals but SIGKILL. /again/: release the worker id and claim at the next id.
    """
    _, what, argument = path.split("/")
    held = ids.lease
    if what == "stuck":
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        time.sleep(float(argument))
    elif what == "again":
        ids.suspend()
        ids.resume()
    made = ids.next_ids(int(argument)) if what == "ids" else []
    lease = ids.lease
    found = {
        "pid": os.getpid(),
        "held": held is not None,
        "worker": None if lease is None else lease.worker,
        "renewals": 0 if lease is None else lease.renewals,
        "ids": made,
    }
    return json.dumps(found).encode()


def respond(path: str) -> tuple[int, bytes]:
    try:
        return 200, answer(path)
    except snowredis.SnowredisError as error:
        return 503, f"{os.getpid()} {error!r}".encode()


def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    status, body = respond(environ["PATH_INFO"])
    start_response(f"{status} as said", [("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    if scope["type"] != "http":
        raise ValueError(f"no {scope['type']} here")
    status, body = respond(scope["path"])
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
