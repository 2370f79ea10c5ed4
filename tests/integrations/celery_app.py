"""The app that workers of celery run. In the environment: BROKER, and SETUP=0 for one that does not call setup()."""

import os
import time
from typing import Any

from celery import Celery, signals

import snowredis
from tests.integrations.application import note_ids

app = Celery("tests", broker=os.environ["BROKER"])
app.conf.update(
    broker_connection_retry_on_startup=True,
    # a task whose process is killed is given to another
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=4,
    # a task whose worker is killed is given to another after so many s
    broker_transport_options={"visibility_timeout": 20},
    task_ignore_result=True,
    worker_pool_start_method=os.environ.get("START", "fork"),
)
if os.environ.get("SETUP", "1") == "1":
    from snowredis.integrations.celery import setup

    setup(app)


@signals.beat_init.connect
def make_in_beat(**_: Any) -> None:
    """Make an id, as beat does for a task that it sends with task_ids."""
    snowredis.next_id()


@app.task(bind=True)
def make(self: Any, seconds: float = 0.0) -> None:
    """Take *seconds*, and note ids and the id of this task."""
    time.sleep(seconds)
    note_ids(self.request.id)
