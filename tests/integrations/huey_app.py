"""Module that huey's consumer loads."""

import os

from tests.integrations.queue_apps import huey_task

huey, task = huey_task(os.environ["SNOWREDIS_URL"])
