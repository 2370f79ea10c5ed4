"""A worker of rq that imports its tasks before it forks: python -m scripts._deaths.rq_worker worker ..."""

from __future__ import annotations

from rq.cli.cli import main

import scripts._deaths.tasks  # noqa: F401

if __name__ == "__main__":
    main()
