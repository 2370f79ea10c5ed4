"""rq integration: a worker whose jobs release their worker ids, with the worker's name as the label.

    rq worker --worker-class snowredis.integrations.rq.Worker

rq forks a process for each job, its work-horse, which ends by os._exit(), without Python's exit handlers. The worker
imports what a claim needs, so that the jobs do not: that is most of the time of a short job.
"""

from __future__ import annotations

from typing import Any

import rq

from snowredis.process.exit import EXIT
from snowredis.process.names import PROCESS
from snowredis.process_generator import preload


class ReleasingMixin:
    """Mixin for a worker class of rq that forks or spawns a work-horse for each job."""

    def main_work_horse(self, *arguments: Any, **named: Any) -> None:
        """In the work-horse: name it after the worker. Ends the process."""
        PROCESS.label = PROCESS.label or f"rq {getattr(self, 'name', '')}".strip()[:100]
        super().main_work_horse(*arguments, **named)  # type: ignore[misc]

    def perform_job(self, *arguments: Any, **named: Any) -> bool:
        """In the work-horse: run the job, then release the worker ids. Blocks for 3 s longer at most."""
        try:
            done: bool = super().perform_job(*arguments, **named)  # type: ignore[misc]
            return done
        finally:
            # in a worker without work-horses, the next job uses the same worker id
            if getattr(self, "is_horse", False):
                EXIT.close_all()


class Worker(ReleasingMixin, rq.Worker):
    """rq's Worker, whose jobs release their worker ids."""


preload()
