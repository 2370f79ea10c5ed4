"""gunicorn integration: each worker claims a worker id when it starts and releases it when it ends.

In ``gunicorn.conf.py``, either of:

    from snowredis.integrations.gunicorn import *   # if the file has no hooks of its own

    from snowredis.integrations import gunicorn     # if it has some, below them
    gunicorn.install(globals())

A worker claims its worker id before its first request and releases it when it stops. The worker id of a worker that
was killed is released by the worker that gunicorn starts in its place, right after its own claim. No hook raises.

Workers inherit what the arbiter imported. It imports redis-py for workers of the classes that patch nothing; others,
such as gevent's, import it themselves, after they patched what it needs.

Source: gunicorn/arbiter.py: an exception in post_worker_init ends the service, and worker_exit also runs in the
arbiter, for a worker that is gone.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import Any

from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.process.exit import EXIT

__all__ = ["on_starting", "post_worker_init", "worker_exit"]

log = logging.getLogger("snowredis")

# a worker takes requests after this time at the latest; gunicorn's timeout counts from then on
CLAIM_TIMEOUT_S = 5.0
# between two attempts while Redis is away
ASK_AGAIN_S = 0.2

# classes of workers that use sockets and threads as they are
PLAIN_WORKERS = ("sync", "gthread")
# modules that a claim imports; they import the others that it needs
CLAIM_MODULES = ("redis", "snowredis.connection", "snowredis.snowflake.redis_store")

Hook = Callable[..., Any]


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
def on_starting(server: Any) -> None:
    """In the arbiter: import what a claim needs, so that its workers share it instead of importing it each."""
    if server.cfg.worker_class_str in PLAIN_WORKERS:
        for name in CLAIM_MODULES:
            importlib.import_module(name)


@_log_errors
def post_worker_init(worker: Any) -> None:
    """In the worker, after the application was loaded: claim worker ids, with the name of the service as the label.

    Blocks for CLAIM_TIMEOUT_S at most.
    """
    from snowredis.process.names import PROCESS
    from snowredis.snowflake.generator import renew_foreign_locks

    PROCESS.label = PROCESS.label or f"gunicorn {worker.cfg.proc_name}"
    # --preload makes generators, and their locks, before gevent patches threading
    renew_foreign_locks()
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end_by_signal)
    claim_all(CLAIM_TIMEOUT_S)


def _end_by_signal(number: int, _frame: Any) -> None:
    """Release the leases, then end by the signal as if there was no handler.

    uvicorn's workers shut down when they get a signal, and raise it again at their end: no worker_exit() follows.
    """
    EXIT.close_all()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


@_log_errors
def worker_exit(server: Any, worker: Any) -> None:
    """In the worker: release the leases. Blocks for 3 s at most."""
    if worker.pid == os.getpid():
        EXIT.close_all()


def install(settings: MutableMapping[str, Any]) -> None:
    """Add the hooks to *settings*, the globals() of gunicorn.conf.py.

    A hook that is there already runs first; the one of this module runs after it, even if that raises.
    """
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


def claim_all(limit_s: float) -> None:
    """Claim a worker id for every generator of this process before it takes requests.

    If there is no generator, that of the process is made, if it has settings. Never raises: an error is logged, and
    the first id claims again.

    Blocks:
        for *limit_s* seconds at most; a claim that takes longer goes on in a thread.
    """
    until_s = time.monotonic() + limit_s - ASK_AGAIN_S
    thread = threading.Thread(target=_claim_all, args=(until_s,), name="snowredis-claim", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        log.warning("no worker id after %.0f s; the claim continues, and ids can be made once it succeeds", limit_s)


def _claim_all(until_s: float) -> None:
    """Claim; while Redis is away, try until *until_s* (monotonic) to take over the lease of an old worker."""
    from snowredis.process_generator import effective_settings, process_generator
    from snowredis.snowflake.generator import SnowflakeGenerator

    generators = [member for member in EXIT.members if isinstance(member, SnowflakeGenerator) and not member.closed]
    try:
        if not generators and effective_settings():
            # a generator of another kind claims nothing
            generators = [one for one in [process_generator()] if isinstance(one, SnowflakeGenerator)]
        for generator in generators:
            _claim(generator, until_s)
    except SnowredisError as error:
        log.warning("no worker id yet; the first id claims again: %s", error)


def _claim(generator: Any, until_s: float) -> None:
    while True:
        try:
            generator.claim()
            return
        except StoreUnavailable:
            # a reload starts the new workers before the old ones have ended
            if time.monotonic() > until_s:
                raise
            time.sleep(ASK_AGAIN_S)
