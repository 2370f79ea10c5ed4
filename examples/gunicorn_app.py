# Type:     python examples/gunicorn_app.py
# You see:  gunicorn with three workers, each with a worker id before its first request; ids that they make; who
#           holds which worker id, after a reload too, and after one worker was killed with -9: that worker id is
#           free again at once. Needs gunicorn; it brings its own Redis (embedded://), which ends after it.

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
    """What gunicorn serves: ids, as strings, because JavaScript would round them."""
    body = json.dumps({"pid": os.getpid(), "ids": list(map(str, snowredis.next_ids(3)))}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


def wait_for(condition):
    until_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until_s, "gunicorn does not do what it should"
        time.sleep(0.01)


def main():
    pool = snowredis.WorkerPool(snowredis.embedded.resolve("embedded://"), POOL)
    made = []

    def holders():
        try:
            return {worker.pid for worker in pool.workers()}
        except snowredis.PoolNotFound:
            # nobody has claimed a worker id yet
            return set()

    def show(title):
        print(f"\n{title}")
        for worker in pool.workers():
            print(f"  worker id {worker.worker}: pid {worker.pid}, {worker.label!r}, {worker.ids_made} ids")

    def ask(times):
        for number in range(times):
            with urlopen(f"http://127.0.0.1:{port}/") as response:
                answer = json.load(response)
            made.extend(answer["ids"])
            if number < 3:
                print(f"  pid {answer['pid']} made", *answer["ids"])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        # in a project of yours: gunicorn --config python:snowredis.integrations.gunicorn --workers 3 project:app
        server = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--config", "python:snowredis.integrations.gunicorn"]
            + [
                "--workers",
                "3",
                "--bind",
                f"fd://{listener.fileno()}",
                "--log-level",
                "error",
                "gunicorn_app:app",
            ],
            cwd=Path(__file__).parent,
            pass_fds=[listener.fileno()],
        )
    try:
        wait_for(lambda: len(holders()) == 3)
        show("three workers, and not one request yet:")
        ask(30)

        before = holders()
        server.send_signal(signal.SIGHUP)
        wait_for(lambda: len(holders()) == 3 and not before & holders())
        show("after a reload (HUP), three new ones:")
        ask(30)

        killed = holders().pop()
        os.kill(killed, signal.SIGKILL)
        began = time.monotonic()
        wait_for(lambda: killed not in holders())
        took_ms = 1000 * (time.monotonic() - began)
        wait_for(lambda: len(holders()) == 3)
        show(
            f"pid {killed} was killed with -9, its worker id free {took_ms:.0f} ms later; another took its place:"
        )
        ask(30)
    finally:
        server.terminate()
        server.wait()
    print(f"\n{len(made)} ids, {len(made) - len(set(made))} of them twice")
    print("worker ids in use after the end of gunicorn:", len(holders()))
    assert len(made) == len(set(made))


if __name__ == "__main__":
    main()
