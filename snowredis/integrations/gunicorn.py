"""Worker ids that come and go with gunicorn's workers.

In ``gunicorn.conf.py``, either of:

    from snowredis.integrations.gunicorn import *   # if there are no hooks of your own

    from snowredis.integrations import gunicorn     # else, below them
    gunicorn.install(globals())

A worker has its worker id before its first request and gives it back when it stops. When one was killed,
the arbiter has it given back by a process of its own. No hook raises; none keeps the arbiter for longer
than it takes to start that process.

Source: gunicorn/arbiter.py: an exception in child_exit, post_fork or post_worker_init ends the service, and
worker_exit also runs in the arbiter, for a worker that is gone.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import subprocess
import time
from collections.abc import Callable, MutableMapping
from typing import Any

from snowredis.integrations.warm_up import warm_up
from snowredis.reclaim import reclaimer
from snowredis.reclaim.crash_record import CrashRecords
from snowredis.runtime.exit import EXIT
from snowredis.runtime.generator import renew_foreign_locks
from snowredis.runtime.process import THIS

__all__ = ["child_exit", "on_exit", "post_fork", "post_worker_init", "pre_fork", "worker_exit"]

log = logging.getLogger("snowredis")

# a worker is served requests after this long at most; gunicorn's timeout counts from then on
CLAIM_TIMEOUT_S = 5.0
# gunicorn's own end is held up by what its workers left for this long at most
EXIT_BOUND_S = 2.0

Hook = Callable[..., Any]
# in the arbiter: processes that are giving leases back
_reclaimers: list[subprocess.Popen[bytes]] = []


def _quietly(hook: Hook) -> Hook:
    # gunicorn checks how many arguments a hook takes; this keeps that
    @functools.wraps(hook)
    def quiet(*arguments: Any) -> None:
        try:
            hook(*arguments)
        except Exception:
            # the server's, or the worker's: where gunicorn writes
            logger = getattr(arguments[0], "log", log)
            logger.exception("snowredis: %s() failed; gunicorn goes on", hook.__name__)

    return quiet


@_quietly
def pre_fork(server: Any, worker: Any) -> None:
    worker.snowredis_crash_records = CrashRecords()


@_quietly
def post_fork(server: Any, worker: Any) -> None:
    worker.snowredis_crash_records.adopt()
    THIS.crash_records = worker.snowredis_crash_records
    THIS.label = THIS.label or f"gunicorn {server.proc_name}"


@_quietly
def post_worker_init(worker: Any) -> None:
    # of generators that --preload made before gevent patched threading
    renew_foreign_locks()
    warm_up(CLAIM_TIMEOUT_S)


@_quietly
def worker_exit(server: Any, worker: Any) -> None:
    if worker.pid == os.getpid():
        EXIT.close_all()
    else:
        child_exit(server, worker)


@_quietly
def child_exit(server: Any, worker: Any) -> None:
    _give_back([worker])


@_quietly
def on_exit(server: Any) -> None:
    # gunicorn does not wait for workers that it kills at the very end, and a container ends with it
    until_s = time.monotonic() + EXIT_BOUND_S
    _give_back([worker for worker in server.WORKERS.values() if _is_gone(worker.pid, until_s)])
    with contextlib.suppress(subprocess.TimeoutExpired):
        for process in _reclaimers:
            process.wait(max(0, until_s - time.monotonic()))


def _give_back(dead: list[Any]) -> None:
    # a worker that was started before these hooks were configured has none
    records = [getattr(worker, "snowredis_crash_records", None) for worker in dead]
    process = reclaimer.start([lease for record in records if record is not None for lease in record.read()])
    _reclaimers[:] = [
        other for other in (*_reclaimers, process) if other is not None and other.poll() is None
    ]


def _is_gone(pid: int, until_s: float) -> bool:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > until_s:
                return False
            time.sleep(0.01)
    return True


def install(settings: MutableMapping[str, Any]) -> None:
    """Add the hooks to those in *settings*, the globals() of gunicorn.conf.py. Yours run first, ours in any case."""
    for name in __all__:
        settings[name] = _both(settings.get(name), globals()[name])


def _both(theirs: Hook | None, ours: Hook) -> Hook:
    if theirs is None:
        return ours

    @functools.wraps(theirs)
    def both(*arguments: Any) -> None:
        try:
            theirs(*arguments)
        finally:
            ours(*arguments)

    return both
