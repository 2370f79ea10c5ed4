"""Log of a chaos run, for tests/lab/spec: every call of a script with its reply, and what happened to the server.

All processes append to one file, a line a system call, so that no kill leaves half of one. Ids are added when the run
is over, from what the processes recorded. tests/lab/spec/log.py says what the lines are; order.py beside it puts them
in the order in which the server ran the scripts.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

from snowredis.core.layout import Layout
from snowredis.servers.scripts import split_reply
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.redis_store import RedisStore
from tests.lab.chaos.runs import read_runs, read_status
from tests.lab.spec.log import NONCE, header

# the scripts of generators
TRACED = ("claim", "renew", "release")


class TraceFile:
    """File that this process and others append lines to."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    def write(self, **entry: Any) -> None:
        line = json.dumps({**entry, "at_ns": time.monotonic_ns()}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")


def trace_calls(path: Path) -> None:
    """Log every call of this process and its children."""
    file, numbers = TraceFile(path), itertools.count(1)
    store: Any = RedisStore
    run = store.run

    def traced(self: Any, script: Any, keys: Sequence[str], args: Sequence[str | int]) -> Any:
        if script.name not in TRACED:
            return run(self, script, keys, args)
        pid = os.getpid()
        call = f"{pid}-{next(numbers)}"
        file.write(do="send", call=call, process=str(pid), script=script.name, args=list(map(str, args)))
        reply = run(self, script, keys, args)
        texts = split_reply(reply)
        # the reply to another request is not logged, nor what a child reads that was forked meanwhile
        if texts and texts[-1] == args[NONCE] and os.getpid() == pid:
            file.write(do="reply", call=call, reply=texts)
        return reply

    store.run = traced


class ServerTrace:
    """Log of what the driver does to the server."""

    def __init__(self, path: Path, config: PoolConfig, seed: int) -> None:
        self._file = TraceFile(path)
        self._file.write(do="begin", kind="chaos", seed=seed, classes=[], **header(config))

    def fault(self, name: str) -> None:
        self._file.write(do="fault", name=name)

    def snapshot(self, client: redis.Redis, key: str) -> None:
        """Log which state of the pool a snapshot that was just taken has, at the latest."""
        values: list[Any] = [None, None]
        with contextlib.suppress(redis.RedisError):
            values = list(client.hmget(key, ["incarnation", "version"]))
        self._file.write(do="snapshot", incarnation=values[0] or "", version=int(values[1] or 0))


def add_ids(path: Path, directory: Path, layout: Layout, began_ns: int) -> None:
    """Add the ids that the processes of a run recorded, and its end."""
    with path.open("a") as file:
        for runs in sorted(directory.glob("*.runs")):
            status = read_status(runs)
            if status is None:
                continue
            for first, _, written_ms in read_runs(runs).rows():
                ms = layout.ms_at(first >> layout.timestamp_shift)
                entry = {
                    "do": "use",
                    "process": str(status.pid),
                    "worker": first >> layout.worker_shift & (layout.workers - 1),
                    "lane": first >> layout.backup_shift & (layout.namespaces - 1),
                    "ticks_ms": [ms],
                    # it was made before it was written
                    "at_ns": began_ns + (written_ms + 1) * 1_000_000,
                }
                file.write(json.dumps(entry, separators=(",", ":")) + "\n")
        file.write(json.dumps({"do": "end"}) + "\n")
