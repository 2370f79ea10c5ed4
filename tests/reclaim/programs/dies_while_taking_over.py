"""Take the lease of a dead process over, and be killed before or after one operation on the files of crash records.

Arguments: url, pool, ttl, the name of the operation, "before" or "after". For "write", the lease is being recorded.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import snowredis
from snowredis.snowflake.crash_record import CrashRecord
from snowredis.snowflake.record_files import Directory

url, pool, ttl, operation, moment = sys.argv[1:6]
owner, name = (CrashRecord, "write_lease") if operation == "write" else (Directory, operation)


def killed(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> None:
        if moment == "after":
            method(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    return call


setattr(owner, name, killed(getattr(owner, name)))
snowredis.connect(url, pool=pool, ttl=float(ttl), outage_reserve=3600, claim_timeout=0).next_id()
