# Type:     python examples/gunicorn_app.py
# Needs:    pip install gunicorn; and redis-server, or else pip install 'fakeredis[lua]'
# You see:  gunicorn with three workers, each with a worker id before its first request; ids that they make; which
#           process has which worker id, also after a reload, and after one worker was killed with -9: that worker id
#           is available again at once. It starts its own Redis (embedded://), which goes on.

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import snowredis

POOL = "gunicorn-example"
snowredis.configure(url="embedded://", pool=POOL)


def app(_environ, start_response):
    """Return three ids, as strings, because JavaScript would round them. gunicorn serves this."""
    body = json.dumps({"pid": os.getpid(), "ids": list(map(str, snowredis.next_ids(3)))}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


def wait_for(condition):
    until_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until_s, "timed out waiting for gunicorn"
        time.sleep(0.01)


def main():
    pool = snowredis.WorkerPool("embedded://", POOL)
    made = []

    def living_pids():
        try:
            return {worker.pid for worker in pool.workers()}
        except snowredis.PoolNotFound:
            # nobody has claimed a worker id yet
            return set()

    def show(title):
        print(f"\n{title}")
        for worker in pool.workers():
            print(f"  worker id {worker.worker}: pid {worker.pid}, {worker.label!r}, {worker.ids_made} ids")

    def request_ids(times):
        for number in range(times):
            with urlopen(f"http://127.0.0.1:{port}/") as response:
                reply = json.load(response)
            made.extend(reply["ids"])
            if number < 3:
                print(f"  pid {reply['pid']} made", *reply["ids"])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        # in a project of yours: gunicorn --config python:snowredis.integrations.gunicorn --workers 3 project:app
        server = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--config", "python:snowredis.integrations.gunicorn"]
            + ["--workers", "3", "--bind", f"fd://{listener.fileno()}", "--log-level", "error", "gunicorn_app:app"],
            cwd=Path(__file__).parent,
            pass_fds=[listener.fileno()],
        )
    try:
        wait_for(lambda: len(living_pids()) == 3)
        show("three workers, before the first request:")
        request_ids(30)

        before = living_pids()
        server.send_signal(signal.SIGHUP)
        wait_for(lambda: len(living_pids()) == 3 and not before & living_pids())
        show("three new workers after a reload (HUP):")
        request_ids(30)

        killed = living_pids().pop()
        os.kill(killed, signal.SIGKILL)
        began = time.monotonic()
        wait_for(lambda: killed not in living_pids())
        took_ms = 1000 * (time.monotonic() - began)
        wait_for(lambda: len(living_pids()) == 3)
        show(f"pid {killed} was killed with -9; its worker id was available {took_ms:.0f} ms later; a new worker:")
        request_ids(30)
    finally:
        server.terminate()
        server.wait()
    print(f"\n{len(made)} ids, {len(made) - len(set(made))} of them repeated")
    print("worker ids in use after the end of gunicorn:", len(living_pids()))
    assert len(made) == len(set(made))


if __name__ == "__main__":
    main()
