"""The protocol with Redis: the headers of the Lua scripts, which a test compares with what the scripts do."""

from __future__ import annotations

import re

from scripts._docs.tables import table
from snowredis.numbers import stores as numbers
from snowredis.servers.scripts import PROLOGUE, read_lua
from snowredis.snowflake import redis_store
from snowredis.snowflake.administration import POOL_SCRIPTS

# place, name, type, meaning
_ITEM = re.compile(r"^((?:KEYS|ARGV)\[\d+\]) (\w+) +(\w+(?: \| \w+)*)(?:(?:, |: *| {2,})(.*))?$")


def lua_of(name: str) -> str:
    """Return the text of the script *name* of pools, or of a part that it begins with."""
    return read_lua(name) if name in PROLOGUE else read_lua(name, redis_store.__file__)


def of_leases() -> str:
    """Return a section for each script of leases; first for the parts that they begin with."""
    texts = [lua_of(name) for name in (*PROLOGUE, "pool", *POOL_SCRIPTS)]
    return "\n\n".join(map(_section, texts))


def of_numbers() -> str:
    """Return a section for each script of numbers; first for the part that they begin with."""
    return "\n\n".join(_section(read_lua(name, numbers.__file__)) for name in ("tag", *numbers.SCRIPTS))


def _section(source: str) -> str:
    lines = []
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").removeprefix(" "))
    at = next((i for i, line in enumerate(lines) if line.startswith("Returns ")), len(lines))
    # from there on the lines are shown as they are, because of their alignment
    lines[:at] = [line.replace("<", "&lt;") for line in lines[:at]]
    title, _colon, summary = lines[0].partition(": ")
    items: list[list[str]] = []
    prose: list[str] = []
    for line in lines[1:at]:
        item = _ITEM.match(line)
        if item:
            items.append([text or "" for text in item.groups()])
        elif items and line.startswith("    "):
            items[-1][3] += f" {line.strip()}"
        else:
            prose.append(line)
    parts = [f"### `{title}`", f"{summary[0].upper()}{summary[1:]}", "\n".join(prose).strip()]
    if items:
        rows = [(f"`{place}`", f"`{argument}`", *others) for place, argument, *others in items]
        parts.append(table(("", "name", "type", "what"), rows))
    after = "\n".join(lines[at:]).strip()
    if after:
        parts.append(f"```text\n{after}\n```")
    return "\n\n".join(part for part in parts if part)
