"""Run snippets one after the other, each as __main__ of a process of its own: a program of test_snippets.py.

Standard input is a JSON list of [name, URL of a Redis, source]. The processes are forked from this one, which has
imported what takes long, and leave its objects out of their garbage collections, which would copy them. Exit code 1
if a snippet failed; its traceback is on standard error.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import types

import snowredis
import snowredis.snowflake.redis_store  # before the forks, since it takes long

# a snippet takes a second on a busy machine
LIMIT_S = 60


def start_next(snippets: list[list[str]]) -> tuple[str, str]:
    """Run each of *snippets* in a forked child: return name and source there, and exit here after the last one."""
    failed = False
    for name, url, source in snippets:
        pid = os.fork()
        if pid == 0:
            signal.alarm(LIMIT_S)
            os.environ["SNOWREDIS_URL"] = url
            return name, source.replace("redis://localhost:6379/0", url)
        status = os.waitpid(pid, 0)[1]
        if status:
            failed = True
            print(f"{name} failed: exit code {os.waitstatus_to_exitcode(status)}", file=sys.stderr)
    sys.exit(failed)


snowredis.connect  # noqa: B018 - loads its module
gc.freeze()
name_of_this, source_of_this = start_next(json.load(sys.stdin))
# without the names of this module, which a snippet has to import itself
sys.modules["__main__"] = main = types.ModuleType("__main__")
exec(compile(source_of_this, name_of_this, "exec"), vars(main))
