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
from collections.abc import Callable, MutableMapping
from typing import Any

from snowredis import api
from snowredis.runtime import executor
from snowredis.runtime.exit import EXIT
from snowredis.runtime.process import THIS
from snowredis.runtime.will import Wills

__all__ = ["child_exit", "on_exit", "post_fork", "post_worker_init", "pre_fork", "worker_exit"]

log = logging.getLogger("snowredis")

# a worker is served requests after this long at most; gunicorn kills one that is silent for 30 s
CLAIM_BOUND_S = 5.0
# gunicorn's own end is held up by what its workers left for this long at most
EXIT_BOUND_S = 2.0

Hook = Callable[..., Any]


def _quietly(hook: Hook) -> Hook:
    # gunicorn checks how many arguments a hook takes; this keeps that
    @functools.wraps(hook)
    def quiet(*arguments: Any) -> None:
        try:
            hook(*arguments)
        except Exception:
            log.exception("%s() failed; gunicorn goes on", hook.__name__)

    return quiet


@_quietly
def pre_fork(server: Any, worker: Any) -> None:
    worker.snowredis_wills = Wills()


@_quietly
def post_fork(server: Any, worker: Any) -> None:
    worker.snowredis_wills.adopt()
    THIS.wills = worker.snowredis_wills
    THIS.label = THIS.label or f"gunicorn {server.proc_name}"


@_quietly
def post_worker_init(worker: Any) -> None:
    api.claim_all(CLAIM_BOUND_S)


@_quietly
def worker_exit(server: Any, worker: Any) -> None:
    if worker.pid == os.getpid():
        EXIT.close_all()


@_quietly
def child_exit(server: Any, worker: Any) -> None:
    executor.start(worker.snowredis_wills.read())


@_quietly
def on_exit(server: Any) -> None:
    # of workers that gunicorn killed at the very end it tells nothing
    left = [worker.snowredis_wills.read() for worker in server.WORKERS.values() if not _runs(worker.pid)]
    process = executor.start([right for rights in left for right in rights])
    if process is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(EXIT_BOUND_S)


def _runs(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


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
