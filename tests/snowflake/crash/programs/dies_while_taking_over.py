"""Take the lease of a dead process over, and be killed before or after one operation on the files of crash records.

Arguments: url, pool, ttl, the name of the operation, "before" or "after". For "write", the lease is being recorded.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import snowredis
from snowredis.snowflake.crash.files import Directory
from snowredis.snowflake.crash.record import CrashRecord

url, pool, ttl, operation, moment = sys.argv[1:6]
owner, name = (CrashRecord, "write") if operation == "write" else (Directory, operation)


def killed(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        # the claim before is recorded, too
        is_now = operation != "write" or args[1].terms.lanes_ms
        if is_now and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = method(*args, **options)
        if is_now:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return call


setattr(owner, name, killed(getattr(owner, name)))
snowredis.connect(url, pool=pool, ttl=float(ttl), outage_reserve=3600, claim_timeout=0).next_id()
