"""The text of the Lua scripts."""

from __future__ import annotations

from snowredis.servers.scripts import PROLOGUE, read_lua
from snowredis.snowflake.protocol import redis_store


def lua_of(name: str) -> str:
    """Return the text of the script *name* of pools, or of a part that it begins with."""
    return read_lua(name) if name in PROLOGUE else read_lua(name, redis_store.__file__)
