"""Play cases in a process of its own: one case a line on stdin, one outcome a line on stdout.

    python -m tests.lab.interrupts.player unix:///tmp/redis.sock

The process that started it detects a case that hangs: no line comes.
"""

import faulthandler
import json
import logging
import sys
import warnings
from dataclasses import asdict

from tests.lab.interrupts.cases import Case, forked, play, register_earlier_hook
from tests.lab.interrupts.stage import MemoryPlace, Place, RedisPlace, limit_time

# longer than any wait in a case
CASE_LIMIT_S = 20.0


def main() -> None:
    # a child that dies in C says where
    faulthandler.enable()
    register_earlier_hook()
    warnings.simplefilter("ignore", DeprecationWarning)
    logging.getLogger("snowredis").propagate = False
    url = sys.argv[1] if len(sys.argv) > 1 else ""
    memory: Place = MemoryPlace()
    server: Place | None = RedisPlace(url) if url else None
    for place in (memory, server):
        if place is not None:
            # imports and caches make the first case longer than the same case later
            play(Case.parse("first_id/clock:later@0"), place)
    for line in sys.stdin:
        case = Case.parse(line.strip().removeprefix("redis "))
        place = memory
        if server is not None and (forked(case) or line.startswith("redis ")):
            place = server
        limit_time(CASE_LIMIT_S)
        outcome = play(case, place)
        limit_time(0)
        print(json.dumps(asdict(outcome)), flush=True)


if __name__ == "__main__":
    main()
