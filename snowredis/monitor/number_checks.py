"""Check which commands the credentials of this process may run on the keys of a pool or of tags. Only reads.

Check the tags on one Redis: whether those of segments are open, what a restart costs them, and the rights on all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from snowredis.errors import SnowredisError, StoreRefused, StoreUnavailable
from snowredis.monitor.checks import Finding, Result, error, not_checked, ok, unknown, warning
from snowredis.numbers import stores as numbers
from snowredis.numbers.administration import tag_info
from snowredis.numbers.stores import dated_keys, tag_keys
from snowredis.servers.clients import address, close_client
from snowredis.servers.runner import translated
from snowredis.servers.scripts import text_of
from snowredis.snowflake.open import open_client
from snowredis.snowflake.protocol import pool_keys
from snowredis.snowflake.redis_store import SCRIPTS, load

# a command, and the number of the key that it is called on, from 1; 0: none
Call = tuple[str, int]
# how many arguments ACL DRYRUN needs after the key of a command
_ARGUMENTS = {
    **dict.fromkeys(("del", "unlink", "hkeys", "zcard"), 0),
    **dict.fromkeys(("hget", "hmget", "hdel", "hexists", "hscan", "zrem"), 1),
    **dict.fromkeys(("hset", "hincrby", "zadd", "zcount", "zrange", "zrangebyscore"), 2),
    "xadd": 3,
}
# with all keys
_OF_SCRIPTS = {"eval": "return 1", "evalsha": "0" * 40}
_ADVICE = "enough for monitoring; generators need the rules in docs/how-to/monitoring.md"
# "User app has no permissions to access the 'k' key", of Redis and Valkey
_KEY_REFUSED = re.compile(r"\bkeys?\b")
# tags named in a text
_MAX_NAMED = 5


class Tag(NamedTuple):
    """A tag of segments or of dated numbers, or a pool, and what its generators need.

    Attributes:
        name: its name.
        keys: its keys, in the order in which its scripts take them.
        calls: what its scripts call.
    """

    name: str
    keys: Sequence[str]
    calls: Sequence[Call]


def segment_tag(name: str) -> Tag:
    """Return what generators of the segments of tag *name* need."""
    return Tag(name, tag_keys(name), sorted(calls_in(numbers.load("take").source)))


def dated_tag(name: str) -> Tag:
    """Return what generators of the dated numbers of tag *name* need."""
    return Tag(name, dated_keys(name), sorted(calls_in(numbers.load("dated").source)))


def check_rights(client: Any, name: str) -> Result:
    """Check that the user of *client* may run everything that generators of pool *name* need."""
    return _check_rights(client, [Tag(name, pool_keys(name), pool_calls())], "pool", "need")


def check_tag_rights(client: Any, tags: Sequence[Tag]) -> Result:
    """Check that the user of *client* may run everything that generators of *tags* need."""
    which = f"tag {tags[0].name} need" if len(tags) == 1 else f"these {len(tags):,} tags need"
    return _check_rights(client, tags, "tag", f"of {which}")


def _check_rights(client: Any, used: Sequence[Tag], kind: str, need: str) -> Result:
    refused, user = [], ""
    for each in used:
        try:
            user, what = _refused(client, each.keys, each.calls)
        except SnowredisError:
            return _try_script(client)
        if what:
            refused.append(f"{what} of {kind} {each.name}")
    if refused:
        more = f"; and so on for {len(refused) - _MAX_NAMED} more" if len(refused) > _MAX_NAMED else ""
        return warning(f"user {user} may not {'; not '.join(refused[:_MAX_NAMED])}{more}", _ADVICE)
    return ok(f"user {user} may run all commands that generators {need}")


def calls_in(source: str) -> set[Call]:
    """Return what a Lua script calls."""
    found = re.findall(r"redis\.p?call\('(\w+)'(?:, KEYS\[(\d+)\])?", source)
    return {(command.lower(), int(key or 0)) for command, key in found}


def pool_calls() -> list[Call]:
    """Return what the scripts call that generators of pools run."""
    return sorted(set[Call]().union(*(calls_in(load(script).source) for script in SCRIPTS)))


def _refused(client: Any, keys: Sequence[str], calls: Sequence[Call]) -> tuple[str, str]:
    """Return the user of *client*, and what of *calls* on *keys* is refused, as a phrase; "" if nothing is."""
    with translated(address(client)):
        user = text_of(client.acl_whoami())
        asked = list(_as_commands(keys, calls))
        dry_runs = client.pipeline(transaction=False)
        for _, _, command in asked:
            dry_runs.execute_command("ACL", "DRYRUN", user, *command)
        replies: Sequence[Any] = dry_runs.execute()
    # in order, each once
    commands: dict[str, None] = {}
    unusable: dict[str, None] = {}
    for (name, key, _), reply in zip(asked, map(text_of, replies), strict=True):
        if reply == "OK":
            continue
        if not _KEY_REFUSED.search(reply.rpartition("'")[2]):
            commands[name] = None
        elif key:
            unusable[key] = None
    phrases = [f"run {', '.join(commands)}"] if commands else []
    phrases += [f"use the key {', '.join(unusable)}"] if unusable else []
    return user, " nor ".join(phrases)


def _as_commands(keys: Sequence[str], calls: Sequence[Call]) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield name, key and words of each command; the key is empty if it has none or all of them."""
    for name, script in _OF_SCRIPTS.items():
        yield name, "", (name, script, str(len(keys)), *keys)
    for name, number in calls:
        key = keys[number - 1] if number else ""
        # those without a key, time and info, need no arguments
        yield name, key, (name, key, *["1"] * _ARGUMENTS[name]) if key else (name,)


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


# tags after these are not checked
MAX_TAGS = 100
# states of a tag that hands out no numbers
_STATES = {"unknown": "of another version", "closed": "closed, so that they hand out no numbers"}
# that say whether a tag is open
_FIELDS = ("signature", "reason", "next", "alarm")


def find_tags(client: Any, name: str | None) -> tuple[Sequence[Tag], Sequence[Tag]]:
    """Return the tags of segments and those of dated numbers: of this name, or all.

    Raises StoreRefused: it may not be read whether there are any.
    """
    if name is None:
        return list(_scan(client, segment_tag)), list(_scan(client, dated_tag))
    refused: StoreRefused | None = None
    found: list[list[Tag]] = [[], []]
    for tags, tag in zip(found, (segment_tag(name), dated_tag(name)), strict=True):
        try:
            with translated(address(client)):
                if client.hget(tag.keys[0], "signature") is not None:
                    tags.append(tag)
        except StoreRefused as error:
            refused = error
    if refused is not None and not any(found):
        raise refused
    return found[0], found[1]


def tags_at(url: Any) -> tuple[str, list[str]]:
    """Return the address of a server, and the names of its tags: of MAX_TAGS of each kind at most.

    Raises StoreUnavailable.
    """
    server = open_client(url)
    try:
        with translated(server.where):
            return server.where, sorted({tag.name for tags in find_tags(server.client, None) for tag in tags})
    finally:
        close_client(server.client)


def check_tags(client: Any, name: str | None) -> Iterator[Finding]:
    """Check the tag *name*, or all tags."""
    tags: Sequence[Tag] = ()
    try:
        with translated(address(client)):
            segments, dated = find_tags(client, name)
            tags = (*segments, *dated)
            result = check_segments(client, segments)
        if name is not None and not tags:
            result = error(f"there is no tag {name}", f"once: snowredis numbers create {name}")
    except SnowredisError as failure:
        result = not_checked(failure)
        if not tags and isinstance(failure, StoreRefused):
            # whether it exists or not, its generators need the same
            tags = () if name is None else [segment_tag(name)]
            result = result._replace(advice="" if tags else "name the tag with --tag")
    yield Finding("segments", *result)
    if tags:
        yield Finding("rights of tags", *check_tag_rights(client, tags))


def check_segments(client: Any, tags: Sequence[Tag]) -> Result:
    """Check that *tags* of segments are open, and that a restart of this Redis loses none of their segments."""
    if not tags:
        return ok("no tags of segments here")
    where = address(client)
    # what is wrong -> the tags of which that is so
    found: dict[str, list[str]] = {}
    for tag in tags:
        try:
            with translated(where):
                values = client.hmget(tag.keys[0], _FIELDS)
            fields = {name: text_of(value) for name, value in zip(_FIELDS, values, strict=True) if value is not None}
            if "signature" not in fields:
                # deleted meanwhile, or a key of another program
                continue
            info = tag_info(where, tag.name, fields)
        except StoreRefused:
            raise
        except StoreUnavailable as failure:
            found.setdefault("not readable", []).append(f"{tag.name} ({failure.reason})")
            continue
        if info.state != "open":
            why = f" ({info.reason.text})" if info.reason else ""
            found.setdefault(_STATES[info.state], []).append(f"{tag.name}{why}")
        if info.alarm is not None:
            numbers = f"{tag.name} {info.alarm.first} to {info.alarm.last}"
            found.setdefault("numbers may have been handed out twice", []).append(numbers)
    if found:
        return error(
            "; ".join(f"{what}: {', '.join(names)}" for what, names in found.items()),
            "snowredis numbers show TAG says more; snowredis numbers open TAG --from N opens a closed one",
        )
    persistence = client.info("persistence")
    if not int(persistence.get("aof_enabled", 1)):
        return warning(
            f"{len(tags)} tags of segments, and no append-only file: a crash of Redis loses what was handed out since "
            "the last snapshot, and closes them",
            "set appendonly yes; with appendfsync always, a tag with durability=assured is closed by no restart",
        )
    return ok(f"{len(tags)} tags of segments, all open; append-only file")


def _scan(client: Any, kind: Callable[[str], Tag]) -> Iterator[Tag]:
    """Yield the tags of one kind, MAX_TAGS at most."""
    # what is before and after the name in its key
    before, _, after = kind("*").keys[0].partition("*")
    for key in islice(client.scan_iter(match=f"{before}*{after}", count=1000), MAX_TAGS):
        yield kind(text_of(key).removeprefix(before).removesuffix(after))
