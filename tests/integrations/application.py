"""Application that the hosts of hosts.py run: requests over WSGI and ASGI, see answer(), and tasks of queues.

In the environment: its settings, as SNOWREDIS_URL, and the key of NOTES, a list in Redis.
"""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import redis

import snowredis

# as programs do: made where it is imported, in the parent of the processes that are forked
ids: Any = snowredis.generator()


def note_ids(*words: str) -> None:
    """Note in Redis the pid of a task that ran, the ids that it made, and *words*."""
    # with two generators, so that a process that ends has two leases to release
    made = [*ids.next_ids(9), snowredis.next_id()]
    with redis.Redis.from_url(os.environ["SNOWREDIS_URL"]) as client:
        # only what is noted counts as made
        client.rpush(os.environ["NOTES"], json.dumps([os.getpid(), made, *words]))


def answer(path: str) -> bytes:
    """Do what *path* says.

    /ids/N: JSON of the pid, whether there was a lease before, the worker id and N ids; /pid/: without ids. /again/:
    release the worker id and claim at the next id.
    """
    _, what, argument = path.split("/")
    held = ids.lease
    if what == "again":
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
