"""Ask, in a process of its own, whether the Redis of living processes replies.

For a server that is about to replace its workers. As reclaimer.py, it imports no Redis client where it is called.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from snowredis.errors import StoreUnavailable

# the same sys.path as here, as in reclaimer.py
PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from snowredis.snowflake.probe import main; main()"


def unavailable(stores: list[dict[str, Any]], limit_s: float) -> str:
    """Return why no worker id can be claimed in one of *stores*, as CrashRecords.stores() returns them; "" if it can.

    Blocks for *limit_s* at most.
    """
    if not stores:
        return ""
    command = [sys.executable, "-c", PROGRAM, *map(str, sys.path)]
    try:
        # on stdin, since others could read arguments, and there are passwords in the URLs
        done = subprocess.run(
            command,
            input=json.dumps(stores),
            stdout=subprocess.PIPE,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"Redis did not reply within {limit_s:g} s"
    return done.stdout.strip()


def main() -> None:
    """Read stores from stdin, as JSON, and print why the first of those that cannot be used cannot."""
    for store in json.load(sys.stdin):
        urls = store["urls"] if isinstance(store["urls"], list) else [store["urls"]]
        errors = list(map(_ping, urls))
        # of independent servers, one is enough
        if all(errors):
            print(errors[0])
            return


def _ping(url: str) -> str:
    from snowredis.servers.clients import close_client
    from snowredis.snowflake.open import open_client
    from snowredis.snowflake.redis_store import translated

    own = open_client(url)
    try:
        with translated(own.where):
            own.client.ping()
    except StoreUnavailable as error:
        return str(error)
    finally:
        close_client(own.client)
    return ""
