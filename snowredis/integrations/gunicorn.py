"""gunicorn integration: each worker claims a worker id when it starts and releases it when it ends.

In ``gunicorn.conf.py``, either of:

    from snowredis.integrations.gunicorn import *   # if the file has no hooks of its own

    from snowredis.integrations import gunicorn     # else, below those hooks
    gunicorn.install(globals())                     # hold_reload=60: a reload waits until Redis replies

A worker claims its worker id before its first request and releases it when it stops. When workers were killed, the
arbiter starts a process that releases their worker ids. No hook raises, and none blocks the arbiter for longer than it
takes to start that process; only on_exit() waits, for EXIT_TIMEOUT_S at most, and on_reload() while Redis is away.

Source: gunicorn/arbiter.py: an exception in child_exit, post_fork or post_worker_init ends the service, and
worker_exit also runs in the arbiter, for a worker that is gone.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, MutableMapping
from typing import Any

from snowredis.integrations.warm_up import warm_up
from snowredis.process.exit import EXIT
from snowredis.snowflake import probe
from snowredis.snowflake.crash_record import CrashRecords
from snowredis.snowflake.generator import renew_foreign_locks
from snowredis.snowflake.lease import THIS
from snowredis.snowflake.reclaimer import Reclaimer

__all__ = ["child_exit", "on_exit", "on_reload", "post_fork", "post_worker_init", "pre_fork", "worker_exit"]

log = logging.getLogger("snowredis")

# a worker takes requests after this time at the latest; gunicorn's timeout counts from then on
CLAIM_TIMEOUT_S = 5.0
# on_exit() waits for this time at most until the worker ids of killed workers are released
EXIT_TIMEOUT_S = 2.0
# a reload waits for this time at most to learn that Redis does not reply
PROBE_TIMEOUT_S = 3.0
# until a reload that is held asks Redis again
PROBE_AGAIN_S = 1.0

Hook = Callable[..., Any]
# in the arbiter: processes that release leases of killed workers; the last one may take more of them
_reclaimers: list[Reclaimer] = []
# in the arbiter: settings of install(), in s
_settings = {"hold_reload": 0.0}


def _log_errors(hook: Hook) -> Hook:
    """Return *hook*, which logs its errors instead of raising them."""

    # gunicorn checks how many arguments a hook takes; wraps() preserves that
    @functools.wraps(hook)
    def logging_hook(*arguments: Any) -> None:
        try:
            hook(*arguments)
        except Exception:
            # the logger of the server or of the worker: gunicorn's error log
            logger = getattr(arguments[0], "log", log)
            logger.exception("snowredis: %s() failed; gunicorn goes on", hook.__name__)

    return logging_hook


@_log_errors
def pre_fork(server: Any, worker: Any) -> None:
    """In the arbiter: make the shared memory for the crash records of a new worker."""
    worker.snowredis_crash_records = CrashRecords()


@_log_errors
def post_fork(server: Any, worker: Any) -> None:
    """In the worker: use that memory, and the name of the service as the label."""
    worker.snowredis_crash_records.adopt()
    THIS.crash_records = worker.snowredis_crash_records
    THIS.label = THIS.label or f"gunicorn {server.proc_name}"
    for reclaimer in _reclaimers:
        reclaimer.forget()
    _reclaimers.clear()


@_log_errors
def post_worker_init(worker: Any) -> None:
    """In the worker, after the application was loaded: claim worker ids. Blocks for CLAIM_TIMEOUT_S at most."""
    # --preload makes generators, and their locks, before gevent patches threading
    renew_foreign_locks()
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end_by_signal)
    warm_up(CLAIM_TIMEOUT_S)


def _end_by_signal(number: int, _frame: Any) -> None:
    """Release the leases, then end by the signal as if there was no handler.

    uvicorn's workers shut down when they get a signal, and raise it again at their end: no worker_exit() follows, and
    it would look as if they had been killed.
    """
    EXIT.close_all()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


@_log_errors
def worker_exit(server: Any, worker: Any) -> None:
    """Release the leases of a worker that ends: in the worker at once, 3 s at most; in the arbiter by a process."""
    if worker.pid == os.getpid():
        EXIT.close_all()
    else:
        _release([worker])


@_log_errors
def child_exit(server: Any, worker: Any) -> None:
    """In the arbiter: start a process that releases the leases that an ended worker left."""
    _release([worker])


@_log_errors
def on_reload(server: Any) -> None:
    """In the arbiter, before a reload replaces the workers: warn, or wait for hold_reload, if Redis does not reply.

    Blocks for PROBE_TIMEOUT_S at most, and for hold_reload; not longer than until gunicorn is told to stop.
    """
    began_s, hold_s = time.monotonic(), _settings["hold_reload"]
    stores = _stores(server)
    error = probe.unavailable(stores, PROBE_TIMEOUT_S)
    if error and hold_s:
        server.log.warning("snowredis: the reload waits for %g s at most: %s", hold_s, error)
    while error and time.monotonic() - began_s < hold_s and not _is_stopping(server):
        # what gunicorn does meanwhile: workers that have ended, or hang
        server.reap_workers()
        server.murder_workers()
        time.sleep(PROBE_AGAIN_S)
        error = probe.unavailable(stores, PROBE_TIMEOUT_S)
    if error:
        server.log.warning(
            "snowredis: this reload replaces workers that have worker ids, and the new ones make no ids until "
            "Redis replies: %s",
            error,
        )


def _stores(server: Any) -> list[dict[str, Any]]:
    """Return where the living workers have their leases, each once."""
    found: list[dict[str, Any]] = []
    for worker in server.WORKERS.values():
        records = getattr(worker, "snowredis_crash_records", None)
        found += [store for store in (records.stores() if records else []) if store not in found]
    return found


def _is_stopping(server: Any) -> bool:
    """Return whether a signal that ends gunicorn waits for the arbiter; it is handled after the reload."""
    queue, waiting = server.SIG_QUEUE, []
    if isinstance(queue, list):
        # before gunicorn 25
        waiting = list(queue)
    else:
        while not queue.empty():
            waiting.append(queue.get_nowait())
        for number in waiting:
            queue.put_nowait(number)
    return bool({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}.intersection(waiting))


@_log_errors
def on_exit(server: Any) -> None:
    """In the arbiter, at its end: do the same for the last workers. Blocks for EXIT_TIMEOUT_S at most."""
    # gunicorn does not wait for workers that it kills at the very end, and its container ends with it
    deadline_s = time.monotonic() + EXIT_TIMEOUT_S
    _release([worker for worker in server.WORKERS.values() if _has_ended(worker.pid, deadline_s)])
    for reclaimer in _reclaimers:
        reclaimer.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        for reclaimer in _reclaimers:
            reclaimer.process.wait(max(0, deadline_s - time.monotonic()))


def _release(ended: list[Any]) -> None:
    """Let a process release the worker ids of workers that have ended. Does not wait for it."""
    # a worker that was started before these hooks were configured has no crash records
    records = [getattr(worker, "snowredis_crash_records", None) for worker in ended]
    for leases in [record.read() for record in records if record is not None]:
        if leases and not (_reclaimers and _reclaimers[-1].take(leases)):
            _reclaimers.append(Reclaimer())
            _reclaimers[-1].take(leases)
    _reclaimers[:] = [running for running in _reclaimers if running.process.poll() is None]


def _has_ended(pid: int, deadline_s: float) -> bool:
    """Wait for the child *pid* until *deadline_s* on the monotonic clock; return false if it still runs then."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.01)
    return True


def install(settings: MutableMapping[str, Any], *, hold_reload: float = 0.0) -> None:
    """Add the hooks to *settings*, the globals() of gunicorn.conf.py.

    A hook that is there already runs first; the one of this module runs after it, also if that raises.

    Args:
        hold_reload: how many seconds a reload waits while Redis does not reply; the old workers go on meanwhile.
    """
    _settings["hold_reload"] = hold_reload
    for name in __all__:
        settings[name] = _run_both(settings.get(name), globals()[name])


def _run_both(first: Hook | None, second: Hook) -> Hook:
    if first is None:
        return second

    @functools.wraps(first)
    def both(*arguments: Any) -> None:
        try:
            first(*arguments)
        finally:
            second(*arguments)

    return both
