"""Check the tags on one Redis: whether those of segments are open, what a restart costs them, and the rights on all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from snowredis.errors import SnowredisError, StoreRefused
from snowredis.lease.clients import address
from snowredis.lease.redis_store import translated
from snowredis.lease.scripts import text_of
from snowredis.monitor.health.finding import Finding, Result, error, not_checked, ok, warning
from snowredis.monitor.health.rights import Tag, check_tag_rights, dated_tag, segment_tag

# tags after these are not checked
MAX_TAGS = 100


class Tags(NamedTuple):
    """Tags on one Redis.

    Attributes:
        segments, dated: tags of segments, and of dated numbers.
        refused: why they could not be read; None if they could.
    """

    segments: Sequence[Tag]
    dated: Sequence[Tag]
    refused: StoreRefused | None = None


def find_tags(client: Any, name: str | None) -> Tags:
    """Return the tag *name*, of both kinds, or all tags. One that may not be read may exist or not."""
    if name is None:
        return Tags(list(_scan(client, segment_tag)), list(_scan(client, dated_tag)))
    refused: StoreRefused | None = None
    found: dict[Callable[[str], Tag], list[Tag]] = {segment_tag: [], dated_tag: []}
    for kind, tags in found.items():
        tag = kind(name)
        try:
            with translated(address(client)):
                if client.hget(tag.keys[0], "signature") is not None:
                    tags.append(tag)
        except StoreRefused as error:
            refused = error
    segments, dated = found.values()
    if refused is not None and not segments and not dated:
        return Tags([segment_tag(name)], [], refused)
    return Tags(segments, dated)


def check_tags(client: Any, name: str | None) -> Iterator[Finding]:
    """Check the tag *name*, or all tags."""
    try:
        with translated(address(client)):
            tags = find_tags(client, name)
    except SnowredisError as failure:
        advice = "name the tag with --tag" if isinstance(failure, StoreRefused) else ""
        yield Finding("segments", *not_checked(failure)._replace(advice=advice))
        return
    if tags.refused is not None:
        yield Finding("segments", *not_checked(tags.refused))
    elif name is not None and not tags.segments and not tags.dated:
        yield Finding("segments", *error(f"there is no tag {name}", f"once: snowredis segment create {name}"))
        return
    else:
        try:
            with translated(address(client)):
                yield Finding("segments", *check_segments(client, tags.segments))
        except SnowredisError as failure:
            yield Finding("segments", *not_checked(failure))
    everything = (*tags.segments, *tags.dated)
    if everything:
        yield Finding("rights of tags", *check_tag_rights(client, everything))


def check_segments(client: Any, tags: Sequence[Tag]) -> Result:
    """Check that *tags* of segments are open, and that a restart of this Redis loses none of their segments."""
    if not tags:
        return ok("no tags of segments here")
    closed, alarmed = [], []
    for tag in tags:
        reason, alarm = client.hmget(tag.keys[0], "reason", "alarm")
        if reason:
            closed.append(f"{tag.name} ({text_of(reason)})")
        if alarm:
            alarmed.append(tag.name)
    if closed:
        return error(
            f"closed tags, which hand out no numbers: {', '.join(closed)}",
            "find the highest number in use, then: snowredis segment open TAG --from N",
        )
    if alarmed:
        return error(
            f"numbers of these tags may have been handed out twice: {', '.join(alarmed)}",
            "see: snowredis segment show TAG; compare the numbers in use",
        )
    info = client.info("persistence")
    if not int(info.get("aof_enabled", 1)):
        return warning(
            f"{len(tags)} tags of segments, and no append-only file: a crash of Redis loses what was handed out since "
            "the last snapshot, and closes them",
            "set appendonly yes; with appendfsync always and assured=True, no restart closes a tag",
        )
    return ok(f"{len(tags)} tags of segments, all open; append-only file")


def _scan(client: Any, kind: Callable[[str], Tag]) -> Iterator[Tag]:
    """Yield the tags of one kind, MAX_TAGS at most."""
    # what is before and after the name in its key
    before, _, after = kind("*").keys[0].partition("*")
    for key in islice(client.scan_iter(match=f"{before}*{after}", count=1000), MAX_TAGS):
        yield kind(text_of(key).removeprefix(before).removesuffix(after))
