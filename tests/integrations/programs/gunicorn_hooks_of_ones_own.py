"""Configuration of gunicorn with hooks of one's own, which note in the file HOOK_NOTES that they ran; one fails."""

import os

from snowredis.integrations import gunicorn
from snowredis.integrations.gunicorn import *  # noqa: F403 gunicorn looks for them by name


def note(text):
    with open(os.environ["HOOK_NOTES"], "a") as file:
        print(text, file=file)


def post_worker_init(worker):
    note("post_worker_init")
    gunicorn.post_worker_init(worker)


def worker_exit(server, worker):
    note("worker_exit")
    raise ValueError("mine")


def child_exit(server, worker):
    note("child_exit")
