# Type:     python examples/celery_tasks.py
# Needs:    pip install celery; and redis-server, or else pip install 'fakeredis[lua]'
# You see:  a celery worker with two prefork children, 12 tasks that each make an id, and which child made which id.
#           Each child has a worker id of its own, and releases it when the worker ends. The ids of the tasks are from
#           snowredis, too. It starts its own Redis, which is also the broker.

import subprocess
import sys
from pathlib import Path

from celery import Celery

import snowredis
from snowredis.integrations.celery import setup

# in your program: redis://localhost:6379/0, and for the broker any URL that celery supports
POOL_URL, POOL = "embedded://", "celery-tasks"


def broker_url(url: str) -> str:
    return url.replace("unix://", "redis+socket://")


url = snowredis.embedded.join(POOL_URL).url
app = Celery("celery_tasks", broker=broker_url(url), backend=broker_url(url))
app.conf.broker_connection_retry_on_startup = True
setup(app, task_ids=True, url=POOL_URL, pool=POOL)


@app.task
def make_order(customer: str) -> list[str]:
    # text: JSON's numbers do not have 64 bits everywhere
    return [customer, str(snowredis.next_id())]


if __name__ == "__main__":
    # in a shell: celery -A celery_tasks worker --concurrency=2 -n orders@here
    celery = [sys.executable, "-m", "celery", "--quiet", "-A", "celery_tasks"]
    options = ["--concurrency=2", "-n", "orders@here", "--loglevel=ERROR", "--without-mingle", "--without-gossip"]
    worker = subprocess.Popen([*celery, "worker", *options], cwd=Path(__file__).parent)
    try:
        # by name, as programs do that do not import the task
        sent = [app.send_task("celery_tasks.make_order", (f"customer-{number}",)) for number in range(12)]
        made = [int(result.get(timeout=20)[1]) for result in sent]
        assert len({*made, *(int(result.id) for result in sent)}) == 24
        workers = {info.worker: info for info in snowredis.WorkerPool(url, POOL).workers()}
        for result, an_id in zip(sent, made, strict=True):
            parts = snowredis.Layout().decode(an_id)
            maker = workers[parts.worker]
            print(f"task {result.id} made {an_id}: worker id {parts.worker}, {maker.label}, pid {maker.pid}")
    finally:
        worker.terminate()
        worker.wait(20)
    snowredis.close()
    print("all worker ids were released:", snowredis.WorkerPool(url, POOL).workers() == [])
