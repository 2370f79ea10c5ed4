"""Module that `python -m dramatiq` loads for test_job_queues.py."""

from __future__ import annotations

from tests.integrations.queue_tasks import dramatiq_actor

actor = dramatiq_actor()
