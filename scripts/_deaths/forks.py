"""Children that this process forks, and how they die."""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

import snowredis

IDS = 20


class Death(NamedTuple):
    """A child that has died: its pid, 0 if unknown, when, in ms since 1970, and the ids that it made."""

    pid: int
    at_ms: float
    ids: list[int]


def job(ending: Callable[[], object]) -> list[Death]:
    """Fork a child that makes ids and then calls *ending*, and wait until it is dead."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        made = _make()
        os.write(write_end, struct.pack(f"{len(made)}q", *made))
        ending()
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    return [Death(pid, time.time() * 1000, list(struct.unpack(f"{len(data) // 8}q", data)))]


def pool_of_four() -> list[Death]:
    """Let the children of a pool of multiprocessing make ids, and be terminated."""
    with multiprocessing.get_context("fork").Pool(4) as children:
        # one task each, as far as it goes: a child that has done its own may take another
        made = children.map(_make_in_pool, range(4), chunksize=1)
        ended_ms = time.time() * 1000
    ids: dict[int, list[int]] = {}
    for pid, batch in made:
        ids.setdefault(pid, []).extend(batch)
    return [Death(pid, ended_ms, batch) for pid, batch in ids.items()]


def _make_in_pool(_: int) -> tuple[int, list[int]]:
    made = _make()
    time.sleep(0.005)
    return os.getpid(), made


def _make() -> list[int]:
    """Make ids; -1 if the pool is full."""
    try:
        return snowredis.next_ids(IDS)
    except snowredis.PoolExhausted:
        return [-1]


def _die_by(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(10)


WAYS: dict[str, Callable[[], list[Death]]] = {
    "os._exit": lambda: job(lambda: os._exit(0)),
    "kill -9": lambda: job(lambda: _die_by(signal.SIGKILL)),
    "SIGTERM": lambda: job(lambda: _die_by(signal.SIGTERM)),
    "multiprocessing": pool_of_four,
}
