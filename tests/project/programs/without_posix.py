"""Use snowredis where fork, fcntl, unix sockets and POSIX signals are missing, as on Windows.

without_posix.py URL POOL

It stands in for a real Windows: what the standard library does there by itself is not shown.
"""

import asyncio
import importlib
import mmap
import os
import signal
import socket
import sys
import sysconfig
from collections.abc import Callable

FRAMEWORKS = (
    "celery.app.base django.conf opentelemetry.metrics prometheus_client pydantic pytest redis.asyncio "
    "sqlalchemy.types starlette.applications uvicorn"
)
# what looks at the system when it is imported has to see the real one, and a loop has to be made
for module in FRAMEWORKS.split():
    importlib.import_module(module)
loop = asyncio.new_event_loop()
sysconfig.get_config_vars()

for module in ("fcntl", "grp", "pwd", "pty", "resource", "termios"):
    sys.modules[module] = None  # type: ignore[assignment]
MISSING = {
    os: "fork forkpty register_at_fork getuid geteuid getgid setsid uname sched_getaffinity waitid killpg",
    signal: "SIGKILL SIGSTOP SIGCONT SIGCHLD SIGHUP SIGALRM SIGUSR1 SIGWINCH setitimer pthread_sigmask pause",
    socket: "AF_UNIX",
    mmap: "MADV_DONTFORK MAP_SHARED MAP_PRIVATE MAP_ANONYMOUS PROT_READ PROT_WRITE",
}
for holder, names in MISSING.items():
    for name in names.split():
        if hasattr(holder, name):
            delattr(holder, name)
sys.platform = "win32"

import snowredis
import snowredis.cli
import snowredis.testing


def refused(call: Callable[[], object], reason: str) -> None:
    """Make *call*, which must raise a ConfigError that names *reason*."""
    try:
        call()
    except snowredis.ConfigError as error:
        assert reason in str(error), error
    else:
        raise AssertionError(f"{reason} was not missed")


async def make_async() -> int:
    ids = await snowredis.aconnect(url, pool=pool, ttl=5)
    made = await ids.anext_id()
    await ids.aclose()
    return made


url, pool = sys.argv[1:]
with snowredis.testing.memory_pool().connect() as ids:
    assert len(set(ids.next_ids(5_000))) == 5_000
with snowredis.connect(url, pool=pool, ttl=5) as ids:
    made = ids.next_ids(5_000)
    ids._beat()
    assert ids.lease is not None
    assert ids.lease.renewals == 1
    assert len(snowredis.WorkerPool(url, pool).workers()) == 1
assert loop.run_until_complete(make_async()) > made[-1]
snowredis.configure(url=url, pool=pool, ttl=5)
assert snowredis.next_id() > made[-1]
snowredis.close()
assert snowredis.WorkerPool(url, pool).workers() == []

refused(lambda: snowredis.connect("unix:///tmp/redis.sock"), "unix socket")
refused(lambda: snowredis.connect("embedded://"), "fcntl")
for module in ("asgi", "celery", "django", "json", "opentelemetry", "prometheus", "pydantic", "pytest", "sqlalchemy"):
    importlib.import_module(f"snowredis.integrations.{module}")
importlib.import_module("snowredis.web.service")

at = ["--url", url, "--pool", pool]
for command in (["generate", *at], ["workers", *at], ["pool", "show", pool, "--url", url], ["events", *at], ["layout"]):
    assert snowredis.cli.main(command) == 0, command
assert snowredis.cli.main(["demo"]) == 3
