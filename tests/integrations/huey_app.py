"""Module that huey's consumer loads for test_job_queues.py."""

from __future__ import annotations

from tests.integrations.queue_tasks import huey_task

huey, task = huey_task()
