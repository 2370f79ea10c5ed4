"""celery: leases given back by prefork children, the worker's name as the label, and ids for tasks.

To import it is enough, also with ``celery worker --include snowredis.integrations.celery``: it connects
three of celery's signals, which are sent in workers only. Nothing is claimed before the first id, since celery
kills a child that takes over 4 s to start.

A prefork child ends without Python's exit hooks; solo, threads, gevent and the main process end with them, after
the last task, so nothing is done for those. A child that is killed, by kill -9 or a hard time limit, gives
nothing back: its worker id is free again one ttl later.
"""

from __future__ import annotations

from typing import Any, Unpack

from celery import signals

from snowredis.connection import AllSettings
from snowredis.process_generator import configure, next_id
from snowredis.runtime.exit import EXIT
from snowredis.runtime.process import THIS


def setup(app: Any, *, task_ids: bool = False, **settings: Unpack[AllSettings]) -> None:
    """Say what tasks and those who send them make ids with. Call it where the app is made; connects to nothing.

    Args:
        app: the celery app.
        task_ids: give tasks that this app sends ids from snowredis.next_id(), as text, instead of UUIDs. Not
            those within chains, groups and chords, which celery numbers itself, and none under
            ``task_always_eager``. Sending a task then raises what next_id() raises.
        settings: as snowredis.configure().

    Raises:
        ConfigError: as snowredis.configure().
    """
    if settings:
        configure(**settings)
    if not task_ids:
        return

    def send_task(
        name: str,
        args: Any = None,
        kwargs: Any = None,
        countdown: Any = None,
        eta: Any = None,
        task_id: str | None = None,
        *more: Any,
        **options: Any,
    ) -> Any:
        task_id = task_id or str(next_id())
        # looked up now: tracers replace the method of the class, some of them after this
        return type(app).send_task(app, name, args, kwargs, countdown, eta, task_id, *more, **options)

    # every task that is sent comes through here: delay(), apply_async(), shared tasks, beat
    app.send_task = send_task


def _label(sender: Any = None, **_: Any) -> None:
    """Name this process after the worker; forked children inherit it, spawned ones are told."""
    hostname = getattr(sender, "hostname", sender)
    if isinstance(hostname, str) and not THIS.label:
        THIS.label = hostname


def _give_back(**_: Any) -> None:
    """In a child that ends: close every generator, at most 3 s."""
    EXIT.close_all()


signals.worker_init.connect(_label)
signals.worker_process_init.connect(_label)
signals.worker_process_shutdown.connect(_give_back)
