"""The app of celery's worker: its task makes ids and then kills its process, a child of the prefork pool."""

from __future__ import annotations

import os
import signal
from typing import Any

from celery import Celery

from scripts._deaths.tasks import URL, note_ids

app: Any = Celery("deaths", broker=URL.replace("unix://", "redis+socket://") + "?virtual_host=1")
app.conf.update(broker_connection_retry_on_startup=True, worker_prefetch_multiplier=1, task_ignore_result=True)


@app.task  # type: ignore[untyped-decorator]
def note_ids_and_die() -> None:
    """Make ids, note them, and kill this child of the prefork pool."""
    note_ids()
    os.kill(os.getpid(), signal.SIGKILL)
