"""Part `start`: what imports add to a bare interpreter, a program up to its first id, and memory of a generator.

Each program writes a line when it has done its work, so there are two times: until then, and until it has ended, when
Python has freed everything.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import redis

from scripts._bench.measuring import in_turns, quartiles, ratios
from scripts._bench.server import private_server
from snowredis import WorkerPool
from snowredis.core.presets import resolve_layout
from snowredis.snowflake.protocol.pool_config import PoolConfig

ROOT = Path(__file__).resolve().parents[2]
BARE, REDIS, FIRST_ID = "nothing", "import redis", "`app.py`: one id, and exit"
# claims on a redis-server that listens on a unix socket
_APP = """\
import snowredis

snowredis.configure(url="{url}", pool="default")
print(snowredis.next_id(), flush=True)
"""
IMPORTS = {
    BARE: "",
    "import snowredis": "import snowredis",
    "a generator made": "import snowredis; snowredis.connect('redis://127.0.0.1:1/0', pool='default')",
    REDIS: "import redis",
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
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    rounds, count = (2, 3) if quick else (61, 200)
    with tempfile.TemporaryDirectory(prefix="snowredis-bench-") as directory, private_server() as server:
        python = _bare_environment(Path(directory))
        app = Path(directory) / "app.py"
        app.write_text(_APP.format(url=server.url))
        WorkerPool(server.url, "default").create(PoolConfig(name="default"))
        programs = {name: ["-c", f"{source}\nprint(flush=True)"] for name, source in IMPORTS.items()}
        programs[FIRST_ID] = [str(app)]
        for arguments in () if quick else programs.values():
            # writes the byte code
            _run_ms(python, arguments, environment)
        ready, wall, cpu = ({name: list[float]() for name in programs} for _ in range(3))
        for name in in_turns(list(programs), rounds):
            for kind, ms in zip((ready, wall, cpu), _run_ms(python, programs[name], environment), strict=True):
                kind[name].append(ms)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with private_server() as server:
        config = PoolConfig(name="footprint", layout=resolve_layout("41/0/0/12/10"))
        WorkerPool(server.url, "footprint").create(config)
        sizes: dict[str, list[float]] = {}
        for how in ("trace", "resident"):
            command = [sys.executable, "-P", "-c", _FOOTPRINT, server.url, str(count), how]
            sizes[how] = [float(word) for word in subprocess.check_output(command, env=environment).split()]
    return {
        "rounds": rounds,
        "bare_ms": quartiles(wall[BARE]),
        "more_ms": {
            name: quartiles([ms - bare for ms, bare in zip(figures, wall[BARE], strict=True)])
            for name, figures in wall.items()
            if name != BARE
        },
        "first_id": {
            "ms": quartiles(wall[FIRST_ID]),
            "ready_ms": quartiles(ready[FIRST_ID]),
            # the first id, before the program ends, to a whole `python -c 'import redis'`; then like to like
            "ready_ratio": ratios(ready[FIRST_ID], wall[REDIS]),
            "ready_to_ready": ratios(ready[FIRST_ID], ready[REDIS]),
            "ratio": ratios(wall[FIRST_ID], wall[REDIS]),
            "cpu_ms": quartiles(cpu[FIRST_ID]),
            "cpu_ratio": ratios(cpu[FIRST_ID], cpu[REDIS]),
        },
        "generators": count,
        "made_bytes": sizes["trace"][0],
        "claimed_bytes": sizes["trace"][1],
        "resident_bytes": sizes["resident"][1],
        "threads": sizes["trace"][2],
    }


def _bare_environment(directory: Path) -> str:
    """Make a virtual environment with redis-py and this tree only; return its Python.

    What else is installed changes what `import redis` costs: it loads opentelemetry if that is there.
    """
    venv.create(directory / "venv", symlinks=os.name != "nt")
    (packages,) = (directory / "venv").glob("lib/python*/site-packages")
    found = Path(redis.__file__).parent
    # redis-py needs async_timeout before Python 3.11.3
    for path in (found, *found.parent.glob("redis-*.dist-info"), *found.parent.glob("async_timeout*")):
        (packages / path.name).symlink_to(path)
    (packages / "snowredis.pth").write_text(f"{ROOT}\n")
    return str(directory / "venv" / "bin" / "python")


def _run_ms(python: str, arguments: list[str], environment: dict[str, str]) -> tuple[float, float, float]:
    """Run Python; return the wall time until its first line, that until its end, and its CPU time, in ms."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with subprocess.Popen([python, "-P", *arguments], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout
        wrote = process.stdout.readline()
        ready_s = time.perf_counter() - began
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if not wrote or process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ready_s * 1000, wall_s * 1000, cpu_s * 1000
