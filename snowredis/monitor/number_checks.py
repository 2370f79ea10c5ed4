"""Check which commands the credentials of this process may run on the keys of a pool or of tags. Only reads.

Check the tags on one Redis: whether those of segments are open, what a restart costs them, and the rights on all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from snowredis.errors import SnowredisError, StoreRefused, StoreUnavailable
from snowredis.monitor.checks import Finding, error, not_checked, ok, unknown, warning
from snowredis.monitor.snapshot import SESSIONS_KEY
from snowredis.numbers import stores
from snowredis.numbers.administration import tag_info
from snowredis.numbers.tag_store import NumbersBroken
from snowredis.servers.clients import address, close_client, open_client
from snowredis.servers.runner import translated
from snowredis.servers.scripts import Script, text_of
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
# these commands take all keys
_OF_SCRIPTS = {"eval": "return 1", "evalsha": "0" * 40}
_ADVICE = "enough for monitoring; generators need the rules in docs/how-to/monitoring.md"
# tags named in a text
_MAX_NAMED = 5


class Needs(NamedTuple):
    """Commands and keys that the generators of a pool or a tag need.

    Attributes:
        what: "pool NAME" or "tag NAME".
        keys: its keys, in the order in which its scripts take them.
        calls: what its scripts call.
    """

    what: str
    keys: Sequence[str]
    calls: Sequence[Call]


def pool_needs(name: str) -> Needs:
    """Return what generators of pool *name* need."""
    return Needs(f"pool {name}", pool_keys(name), _calls_in(map(load, SCRIPTS)))


# script of a kind of tags, of segments or of dated numbers -> its keys by the name of the tag
_KEYS_OF: dict[str, Callable[[str], Sequence[str]]] = {"take": stores.tag_keys, "dated": stores.dated_keys}


def tag_needs(script: str, name: str) -> Needs:
    """Return what generators of tag *name* need that run *script*, one of _KEYS_OF."""
    return Needs(f"tag {name}", _KEYS_OF[script](name), _calls_in([stores.load(script)]))


def _calls_in(scripts: Iterable[Script]) -> list[Call]:
    """Return what Lua scripts call."""
    text = "\n".join(script.source for script in scripts)
    found = re.findall(r"redis\.p?call\('(\w+)'(?:, KEYS\[(\d+)\])?", text)
    return sorted({(command.lower(), int(key or 0)) for command, key in found})


def check_rights(client: Any, used: Sequence[Needs]) -> Finding:
    """Check that the user of *client* may run everything that generators of *used* need."""
    refused, user = list[str](), ""
    for each in used:
        try:
            user, what = _refused(client, each)
        except SnowredisError:
            return _try_script(client)
        refused += [f"{what} of {each.what}"] if what else []
    if refused:
        more = f"; and so on for {len(refused) - _MAX_NAMED} more" if len(refused) > _MAX_NAMED else ""
        return warning(f"user {user} may not {'; not '.join(refused[:_MAX_NAMED])}{more}", _ADVICE)
    whose = used[0].what if len(used) == 1 else f"these {len(used):,} tags"
    return ok(f"user {user} may run all commands that generators of {whose} need")


def _refused(client: Any, needs: Needs) -> tuple[str, str]:
    """Return the user of *client*, and what of *needs* is refused to that user, as a phrase; "" if nothing is."""
    commands = [(name, script, str(len(needs.keys)), *needs.keys) for name, script in _OF_SCRIPTS.items()]
    for name, number in needs.calls:
        # time and info take no key, and need no arguments
        commands.append((name, needs.keys[number - 1], *["1"] * _ARGUMENTS[name]) if number else (name,))
    with translated(address(client)):
        user = text_of(client.acl_whoami())
        dry_runs = client.pipeline(transaction=False)
        for command in commands:
            dry_runs.execute_command("ACL", "DRYRUN", user, *command)
        replies = map(text_of, dry_runs.execute())
    # the end of each "User app has no permissions to run the 'zadd' command", once
    refused = dict.fromkeys(reply.rpartition(" permissions to ")[2] for reply in replies if reply != "OK")
    return user, " nor ".join(refused)


def check_logouts(client: Any) -> Finding:
    """Check that `snowredis serve` could store logouts as the user of *client*, which not every user needs."""
    try:
        user, what = _refused(client, Needs("", [SESSIONS_KEY], [("zadd", 1), ("zrange", 1), ("zrem", 1)]))
    except SnowredisError as failure:
        return not_checked(failure)
    if what:
        return unknown(f"user {user} may not {what}", "only `snowredis serve` needs it: see docs/how-to/service.md")
    return ok(f"user {user} may store logouts of `snowredis serve`")


def _try_script(client: Any) -> Finding:
    """Call a script that does not exist: Redis checks the permission first."""
    try:
        with translated(address(client)):
            client.evalsha("0" * 40, 0)
    except StoreRefused:
        return unknown("this user may not run scripts, so generators cannot use it", _ADVICE)
    except StoreUnavailable:
        # there is no such script
        pass
    return unknown("scripts are allowed; ACL DRYRUN is not, so other rights are not known")


# tags after these are not checked
MAX_TAGS = 100
# states of a tag that hands out no numbers
_STATES = {"unknown": "of another version", "closed": "closed, so that they hand out no numbers"}
# fields that say whether a tag is open
_FIELDS = ("signature", "reason", "next", "alarm")


def find_tags(client: Any, name: str | None) -> dict[str, list[str]]:
    """Return the names of all tags, or of the one with this *name* if it exists, for each of _KEYS_OF.

    Raises StoreRefused: it may not be read whether there are any.
    """
    if name is None:
        return {script: list(_scan(client, keys_of("*")[0])) for script, keys_of in _KEYS_OF.items()}
    found: dict[str, list[str]] = {script: [] for script in _KEYS_OF}
    refused: StoreRefused | None = None
    for script, keys_of in _KEYS_OF.items():
        try:
            with translated(address(client)):
                found[script] += [name] if client.hget(keys_of(name)[0], "signature") is not None else []
        except StoreRefused as error:
            refused = error
    if refused is not None and not any(found.values()):
        raise refused
    return found


def tags_at(url: Any) -> tuple[str, list[str]]:
    """Return the address of a server, and the names of its tags: of MAX_TAGS of each kind at most.

    Raises StoreUnavailable.
    """
    server = open_client(url)
    try:
        with translated(server.where):
            return server.where, sorted(set().union(*find_tags(server.client, None).values()))
    finally:
        close_client(server.client)


def check_tags(client: Any, name: str | None) -> Iterator[Finding]:
    """Check the tag *name*, or all tags."""
    needed: list[Needs] = []
    try:
        with translated(address(client)):
            found = find_tags(client, name)
            needed = [tag_needs(script, each) for script, names in found.items() for each in names]
            result = check_segments(client, found["take"])
        if name is not None and not needed:
            result = error(f"there is no tag {name}", f"once: snowredis numbers create {name}")
    except SnowredisError as failure:
        result = not_checked(failure)
        if not needed and isinstance(failure, StoreRefused):
            # its generators need the same if it does not exist
            needed = [] if name is None else [tag_needs("take", name)]
            result = result._replace(advice="" if needed else "name the tag with --tag")
    yield result.of("segments")
    if needed:
        yield check_rights(client, needed).of("rights of tags")


def check_segments(client: Any, tags: Sequence[str]) -> Finding:
    """Check that *tags* of segments are open, and that a restart of this Redis loses none of their segments."""
    if not tags:
        return ok("no tags of segments here")
    # each problem -> the tags that have it
    found: dict[str, list[str]] = {}
    for tag in tags:
        values = client.hmget(stores.tag_keys(tag)[0], _FIELDS)
        fields = {name: text_of(value) for name, value in zip(_FIELDS, values, strict=True) if value is not None}
        if "signature" not in fields:
            # deleted meanwhile, or a key of another program
            continue
        try:
            info = tag_info(address(client), tag, fields)
        except NumbersBroken as failure:
            found.setdefault("not readable", []).append(f"{tag} ({failure.reason})")
            continue
        if info.state != "open":
            why = f" ({info.reason.text})" if info.reason else ""
            found.setdefault(_STATES[info.state], []).append(f"{tag}{why}")
        if info.alarm is not None:
            text = f"{tag} {info.alarm.first} to {info.alarm.last}"
            found.setdefault("numbers may have been handed out twice", []).append(text)
    if found:
        return error(
            "; ".join(f"{what}: {', '.join(names)}" for what, names in found.items()),
            "snowredis numbers show TAG says more; snowredis numbers open TAG --from N opens a closed one",
        )
    if not int(client.info("persistence").get("aof_enabled", 1)):
        return warning(
            f"{len(tags)} tags of segments, and no append-only file: a crash of Redis loses what was handed out since "
            "the last snapshot, and closes them",
            "set appendonly yes; with appendfsync always, a tag with durability=assured is closed by no restart",
        )
    return ok(f"{len(tags)} tags of segments, all open; append-only file")


def _scan(client: Any, pattern: str) -> Iterator[str]:
    """Yield what stands in keys for the * of *pattern*, MAX_TAGS of them at most."""
    before, _, after = pattern.partition("*")
    for key in islice(client.scan_iter(match=pattern, count=1000), MAX_TAGS):
        yield text_of(key).removeprefix(before).removesuffix(after)
