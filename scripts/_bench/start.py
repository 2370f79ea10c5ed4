"""Part `start`: time that `import snowredis` adds to a bare interpreter, and memory of a generator."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from scripts._bench.server import private_server
from snowredis.core.presets import resolve_layout
from snowredis.lease.model import PoolConfig
from snowredis.lease.redis_store import RedisStore
from snowredis.timing import in_turns, quartiles

ROOT = Path(__file__).resolve().parents[2]
BARE = "nothing"
IMPORTS = {
    BARE: "",
    "import snowredis": "import snowredis",
    "a generator made": "import snowredis; snowredis.connect('redis://127.0.0.1:1/0')",
    "import redis": "import redis",
    "import uuid": "import uuid",
}
# run in a process of its own: bytes of Python objects, and of the process, for one generator
_FOOTPRINT = """
import gc, os, resource, sys, threading, tracemalloc
import snowredis
count = int(sys.argv[2])
def resident():
    if not os.path.exists("/proc/self/statm"):
        return 0
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
def make():
    return [snowredis.connect(sys.argv[1], pool="footprint", layout="41/0/0/12/10") for _ in range(count)]
warm = snowredis.connect(sys.argv[1], pool="footprint", layout="41/0/0/12/10")
warm.next_id()
trace = sys.argv[3] == "trace"
if trace:
    tracemalloc.start()
gc.collect()
def used():
    gc.collect()
    return tracemalloc.get_traced_memory()[0] if trace else resident()
before, threads = used(), threading.active_count()
ids = make()
made = used()
for each in ids:
    each.next_id()
claimed = used()
print((made - before) // count, (claimed - before) // count, (threading.active_count() - threads) / count, flush=True)
os._exit(0)
"""


def measure(*, quick: bool) -> dict[str, Any]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    rounds, count = (3, 10) if quick else (61, 200)
    found: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for name in in_turns(list(IMPORTS), rounds):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-P", "-c", IMPORTS[name]], check=True, env=environment)
        found[name].append((time.perf_counter() - began) * 1000)
    with private_server() as server:
        RedisStore(server.url, PoolConfig(name="footprint", layout=resolve_layout("41/0/0/12/10"))).create(
            time.time_ns() // 1_000_000
        )
        sizes = {
            kind: [
                float(word)
                for word in subprocess.run(
                    [sys.executable, "-P", "-c", _FOOTPRINT, server.url, str(count), kind],
                    check=True,
                    env=environment,
                    capture_output=True,
                    text=True,
                ).stdout.split()
            ]
            for kind in ("trace", "resident")
        }
    return {
        "rounds": rounds,
        "bare_ms": quartiles(found[BARE]),
        "more_ms": {
            name: quartiles([ms - bare for ms, bare in zip(figures, found[BARE], strict=True)])
            for name, figures in found.items()
            if name != BARE
        },
        "generators": count,
        "made_bytes": sizes["trace"][0],
        "claimed_bytes": sizes["trace"][1],
        "resident_bytes": sizes["resident"][1],
        "threads": sizes["trace"][2],
    }
