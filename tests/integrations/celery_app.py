"""The app that the workers of test_celery.py run: its tasks note every id in Redis.

In the environment: BROKER and POOL_URL, of one Redis; TTL in s; if need be NOTES_URL, TASK_IDS=1, START=spawn, and
SETUP=0 for one that does not call setup().
"""

from __future__ import annotations

import os
import time

import redis
from celery import Celery

import snowredis
from tests.integrations.celery_worker import IDS_KEY, IDS_PER_TASK, POOL

POOL_URL = os.environ["POOL_URL"]

app = Celery("tests", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
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

    task_ids = os.environ.get("TASK_IDS") == "1"
    setup(app, task_ids=task_ids, url=POOL_URL, pool=POOL, ttl=float(os.environ["TTL"]))
# as programs do: made where it is imported, in the parent of prefork children
ids = snowredis.connect(POOL_URL, pool=POOL, ttl=float(os.environ["TTL"]))
notes = redis.Redis.from_url(os.environ.get("NOTES_URL", POOL_URL))


@app.task
def make(seconds: float = 0.0) -> None:
    """Make ids with both generators, so that an ending process has two leases to release."""
    made = ids.next_ids(IDS_PER_TASK // 2)
    time.sleep(seconds)
    made += [snowredis.next_id() for _ in range(IDS_PER_TASK // 2)]
    # only what is noted counts as made; pid and task come with it
    notes.rpush(IDS_KEY, f"{os.getpid()} {make.request.id} {' '.join(map(str, made))}")


@app.task(ignore_result=False)
def answer() -> list[str]:
    """Return the id of this task and a new one."""
    return [answer.request.id, str(ids.next_id())]
