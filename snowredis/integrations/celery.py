"""celery integration: children of the prefork pool release their leases, the worker's name is the label, ids for tasks.

Importing this module is enough, also by ``celery worker --include snowredis.integrations.celery``: it connects
handlers to three of celery's signals, which celery sends in workers only. Nothing is claimed before the first id,
since celery kills a child that takes longer than 4 s to start.

A prefork child ends without Python's exit handlers, so a signal handler here releases its lease. The pools solo,
threads and gevent and the main process run Python's exit handlers, after the last task. The lease of a child that
is killed (by kill -9 or a hard time limit) is released by the child that replaces it, at its own claim.
"""

from __future__ import annotations

from typing import Any, Unpack

from celery import signals

from snowredis.process.exit import EXIT
from snowredis.process.names import PROCESS
from snowredis.process.sigterm import close_on_sigterm
from snowredis.process_generator import configure, next_id, preload
from snowredis.settings import AllSettings


def setup(app: Any, *, task_ids: bool = False, **settings: Unpack[AllSettings]) -> None:
    """Configure the generator of tasks and of those who send them. Call it where the app is made; connects to nothing.

    Args:
        app: the celery app.
        task_ids: give tasks that this app sends ids from snowredis.next_id(), as text, instead of UUIDs. Tasks within
            chains, groups and chords keep celery's ids, and so do tasks under ``task_always_eager``. Sending a
            task then raises what next_id() raises.
        settings: arguments of snowredis.configure().

    Raises:
        ConfigError: see snowredis.configure().
    """
    if settings:
        configure(**settings)
    if not task_ids:
        return

    def send_task(*args: Any, **options: Any) -> Any:
        # task_id is the sixth parameter of Celery.send_task()
        if len(args) < 6 and not options.get("task_id"):
            options["task_id"] = str(next_id())
        # the method is looked up at each call: tracers replace it in the class, some of them later
        return type(app).send_task(app, *args, **options)

    # every task that is sent comes through here: delay(), apply_async(), shared tasks, beat
    app.send_task = send_task


def _label(sender: Any = None, **_: Any) -> None:
    """Use the worker's name as the label of this process. Forked children inherit it; spawned ones get the signal."""
    hostname = getattr(sender, "hostname", sender)
    if isinstance(hostname, str) and not PROCESS.label:
        PROCESS.label = hostname


def _release(**_: Any) -> None:
    """Close every generator of a child that ends. Blocks for 3 s at most."""
    EXIT.close_all()


def _release_at_sigterm(**_: Any) -> None:
    """Release the leases of the process of `worker -B`, which celery ends by SIGTERM. It makes ids with task_ids."""
    close_on_sigterm()


preload()
signals.beat_embedded_init.connect(_release_at_sigterm)
signals.worker_init.connect(_label)
signals.worker_process_init.connect(_label)
signals.worker_process_shutdown.connect(_release)
