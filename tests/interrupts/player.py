"""A process that plays cases: one a line on stdin, one outcome a line on stdout.

    python -m tests.interrupts.player unix:///tmp/redis.sock

Whoever starts it notices a case that hangs: no line comes.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from dataclasses import asdict

from tests.interrupts.cases import Case, needs_redis, play, register_earlier_hook
from tests.interrupts.stage import MemoryPlace, Place, RedisPlace, limit_time


def main() -> None:
    register_earlier_hook()
    warnings.simplefilter("ignore", DeprecationWarning)
    logging.getLogger("snowredis").propagate = False
    url = sys.argv[1] if len(sys.argv) > 1 else ""
    limit_s = 40.0
    memory, server = MemoryPlace(), RedisPlace(url) if url else None
    for line in sys.stdin:
        case = Case.parse(line.strip().removeprefix("redis "))
        place: Place = memory
        if server is not None and (needs_redis(case) or line.startswith("redis ")):
            place = server
        limit_time(limit_s)
        outcome = play(case, place)
        limit_time(0)
        print(json.dumps(asdict(outcome)), flush=True)


if __name__ == "__main__":
    main()
