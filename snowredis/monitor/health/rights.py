"""Check which commands the credentials of this process may run on a pool. Only reads."""

from __future__ import annotations

import re
from typing import Any

from snowredis.errors import SnowredisError, StoreRefused, StoreUnavailable
from snowredis.lease.clients import address
from snowredis.lease.redis_store import translated
from snowredis.lease.scripts import SCRIPTS, pool_keys, read_lua, text_of
from snowredis.monitor.health.finding import Result, ok, unknown, warning

# arguments for ACL DRYRUN, which also checks their number
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "eval": ("return 1", "1", "KEY"),
    "evalsha": ("0" * 40, "1", "KEY"),
    "time": (),
    "info": ("server",),
    "del": ("KEY",),
    "hget": ("KEY", "f"),
    "hmget": ("KEY", "f"),
    "hdel": ("KEY", "f"),
    "hexists": ("KEY", "f"),
    "hset": ("KEY", "f", "v"),
    "hincrby": ("KEY", "f", "1"),
    "hscan": ("KEY", "0"),
    "persist": ("KEY",),
    "unlink": ("KEY",),
    "zadd": ("KEY", "1", "m"),
    "zcard": ("KEY",),
    "zcount": ("KEY", "0", "1"),
    "zrange": ("KEY", "0", "0"),
    "zrangebyscore": ("KEY", "0", "1"),
    "zrem": ("KEY", "m"),
    "xadd": ("KEY", "*", "f", "v"),
}
_ADVICE = "enough for monitoring; generators need the rules in docs/how-to/monitoring.md"


def check_rights(client: Any, name: str) -> Result:
    """Check that the user of *client* may run everything that generators of pool *name* need."""
    key = pool_keys(name)[0]
    try:
        with translated(address(client)):
            user = text_of(client.acl_whoami())
            missing = [command for command in needed_commands() if not _may_run(client, user, command, key)]
    except SnowredisError:
        return _try_script(client)
    if missing:
        return warning(f"user {user} may not run {', '.join(missing)} on pool {name}", _ADVICE)
    return ok(f"user {user} may run all commands that generators need")


def needed_commands() -> list[str]:
    """Return every command that a generator sends or that its scripts call, in lower case."""
    called = {
        name.lower()
        for script in ("identity", "common", *SCRIPTS)
        # those are of administrators
        if script not in ("delete", "change_layout")
        for name in re.findall(r"redis\.p?call\('(\w+)'", read_lua(script))
    }
    return sorted(called | {"eval", "evalsha"})


def _may_run(client: Any, user: str, command: str, key: str) -> bool:
    arguments = [key if argument == "KEY" else argument for argument in _ARGUMENTS[command]]
    return text_of(client.execute_command("ACL", "DRYRUN", user, command, *arguments)) == "OK"


def _try_script(client: Any) -> Result:
    """Call a script that does not exist: Redis checks the permission first."""
    try:
        with translated(address(client)):
            client.evalsha("0" * 40, 0)
    except StoreRefused:
        return unknown("this user may not run scripts, so generators cannot use it", _ADVICE)
    except StoreUnavailable:
        return unknown("scripts are allowed; ACL DRYRUN is not, so other rights are not known")
    return unknown("EVALSHA of a script that does not exist succeeded")
