"""Check the tags of segments on one Redis: whether they are open, and what a restart would cost them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from snowredis.lease.scripts import text_of
from snowredis.monitor.health.finding import Result, error, ok, warning

# tags after these are not checked
MAX_TAGS = 100


def check_segments(client: Any, _pool: str) -> Result:
    """Check that every tag is open, and that a restart of this Redis loses none of their segments."""
    tags = list(_tags(client))
    if not tags:
        return ok("no tags of segments here")
    closed, alarmed = [], []
    for tag in tags:
        reason, alarm = client.hmget(f"snowredis:segment:{{{tag}}}", "reason", "alarm")
        if reason:
            closed.append(f"{tag} ({text_of(reason)})")
        if alarm:
            alarmed.append(tag)
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


def _tags(client: Any) -> Iterator[str]:
    """Return the names of the tags, MAX_TAGS at most."""
    keys = client.scan_iter(match="snowredis:segment:{*}", count=1000)
    for key in islice(keys, MAX_TAGS):
        yield text_of(key).removeprefix("snowredis:segment:{").removesuffix("}")
