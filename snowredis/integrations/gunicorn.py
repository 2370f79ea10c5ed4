"""gunicorn integration: each worker claims a worker id when it starts and releases it when it ends.

In ``gunicorn.conf.py``:

    from snowredis.integrations.gunicorn import *

A hook of your own with the name of one of these replaces it: call post_worker_init(worker), or on_starting(server), in
yours.

A worker claims its worker id before its first request, or serves without one after 5 s and goes on trying
(claims.py). It releases the worker id when it stops, as every process does at its exit. The worker id of a worker that
was killed is released by the worker that gunicorn starts in its place, right after its own claim. No hook raises.

Workers inherit what the arbiter imported. It imports redis-py for workers of the classes that patch nothing; others,
such as gevent's, import it themselves, after they patched what it needs.

Source: gunicorn/arbiter.py: an exception in post_worker_init ends the service.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from typing import Any

from snowredis.errors import SnowredisError
from snowredis.integrations.claims import CLAIM_TIMEOUT_S, claim_within
from snowredis.process.exit import EXIT
from snowredis.process.log import Log, log
from snowredis.process.sigterm import CloseAtSignal

__all__ = ["on_starting", "post_worker_init"]

# classes of workers that use sockets and threads as they are
PLAIN_WORKERS = ("sync", "gthread")

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
            logger = Log(getattr(arguments[0], "log", None))
            logger.exception("snowredis: %s() failed; gunicorn goes on", hook.__name__)

    return logging_hook


@_log_errors
def on_starting(server: Any) -> None:
    """In the arbiter: import what a claim needs, so that its workers share it instead of importing it each."""
    if server.cfg.worker_class_str in PLAIN_WORKERS:
        from snowredis.process_generator import preload

        preload()


@_log_errors
def post_worker_init(worker: Any) -> None:
    """In the worker, after the application was loaded: claim worker ids, with the name of the service as the label.

    Blocks for CLAIM_TIMEOUT_S at most; gunicorn's timeout counts from then on.
    """
    from snowredis.process.names import PROCESS

    PROCESS.label = PROCESS.label or f"gunicorn {worker.cfg.proc_name}"
    # --preload makes generators, and their locks, before gevent patches threading
    renew_foreign_locks()
    # uvicorn's workers shut down when they get a signal, and raise it again at their end: no exit handler follows
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, CloseAtSignal(signal.SIG_DFL))
    claim_all()


def renew_foreign_locks() -> None:
    """Give generators without a lease new locks if theirs were made before gevent patched threading.

    Such a lock blocks all greenlets, or none. Does not block.
    """
    from snowredis.snowflake.generator import SnowflakeGenerator

    kind: Any = type(threading.RLock())
    for member in EXIT.members:
        if isinstance(member, SnowflakeGenerator) and type(member._lock) is not kind and not member.lease:
            member._after_fork()


def claim_all() -> None:
    """Claim a worker id for every generator of this process before it takes requests. See claim_within().

    If there is no generator, that of the process is made, if it has settings. Blocks for CLAIM_TIMEOUT_S at most.
    """
    from snowredis.process_generator import effective_settings, process_generator
    from snowredis.snowflake.generator import SnowflakeGenerator

    generators = [member for member in EXIT.members if isinstance(member, SnowflakeGenerator) and not member.closed]
    try:
        if not generators and effective_settings():
            generators = [process_generator()]
    except SnowredisError as error:
        log.warning("no worker id yet; the first id claims again: %s", error)
    claim_within(CLAIM_TIMEOUT_S, generators)
