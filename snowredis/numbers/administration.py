"""Administer tags: create, open, change, delete and look at them. Each function connects, and closes again.

The command line is built on this.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from snowredis.errors import ConfigError, StoreUnavailable, shown
from snowredis.numbers.model import MAX_NUMBER, OpenRequest, TagConfig, TagStore, parse_signature
from snowredis.numbers.opening import open_stores
from snowredis.numbers.replies import ClosedReason, NotNew, Opened, Settling
from snowredis.numbers.scripts import TagBroken
from snowredis.settings import as_int
from snowredis.snowflake.open import Servers

# a tag that was closed only now opens after failover_slack
LONGEST_SETTLE_S = 60.0


@dataclass(frozen=True, slots=True)
class TagInfo:
    """State of a tag on one server, as it is stored there.

    Attributes:
        where: the server's address.
        exists: False if the server does not know the tag; the others are empty then.
        config: range and share; None if the tag does not exist.
        position: the lowest position that was not handed out.
        next_number: its number; beyond the maximum if all are handed out.
        reason: why the tag is closed; None if it is open.
        closed_ms: since when, ms since 1970.
        last_ms: time of the last request, ms since 1970.
        segments, handed_out: how many segments, and numbers, were handed out.
        alarms: how many alarms there were.
        alarm: the newest: first and last number that may have been handed out twice, and when; or None.
        clients: how many generators are known.
    """

    where: str
    exists: bool
    config: TagConfig | None = None
    position: int = 0
    next_number: int = 0
    reason: ClosedReason | None = None
    closed_ms: int = 0
    last_ms: int = 0
    segments: int = 0
    handed_out: int = 0
    alarms: int = 0
    alarm: tuple[int, int, int] | None = None
    clients: int = 0


@contextlib.contextmanager
def _stores(url: Servers, tag: str, settings: dict[str, Any]) -> Iterator[Sequence[Any]]:
    stores = open_stores(url, {"tag": tag, **settings})
    try:
        yield stores
    finally:
        for store in stores:
            store.close()


def create_tag(url: Servers, tag: str, **settings: Any) -> None:
    """Create a tag that is new, on all servers: no number of it was ever handed out. A person says so.

    *settings* are its constants: start, maximum, cyclic, max_rate, assured, redis_skew, failover_slack.

    Raises:
        ConfigError: it exists, or processes have reported numbers of it.
        StoreUnavailable, TagMismatch: a server does not reply, or has the tag with other constants.
    """
    with _stores(url, tag, settings) as stores:
        replies = [_open(store, "create", 0) for store in stores]
    if all(isinstance(reply, NotNew) for reply in replies):
        raise ConfigError(
            f"the tag {tag!r} is not new: it exists, or processes have reported numbers of it. Nothing was changed. "
            f"If it is closed, open it with: snowredis segment open {tag} --from N"
        )


def open_tag(url: Servers, tag: str, first: int | None, **settings: Any) -> int:
    """Open a closed tag, on all servers: no number from *first* on was ever handed out. A person says so.

    With *first* None: none beyond those that processes have reported. The tag opens there or later. An open tag is
    moved on to *first*. *settings* are needed only where the tag is not stored: else its constants are used.

    Returns:
        the first number that is handed out next.

    Blocks:
        for failover_slack, if the tag was closed only now. Raises as create_tag().
    """
    if first is not None:
        first = as_int(first)
        if not 0 <= first <= MAX_NUMBER:
            raise ConfigError(f"a tag can be opened from 0 to {MAX_NUMBER}, not from {shown(first)}")
    with _stores(url, tag, settings) as stores:
        for store in stores:
            signature = store.read().get("signature")
            stored = store.config if signature is None else parse_signature(tag, signature)
            if stored.share == store.config.share:
                # else the list of servers is another one: the script says so
                store.config = stored
        return min(_opened_from(store, first, "word", 0) for store in stores)


def _opened_from(store: TagStore, first: int | None, how: str, replace: int) -> int:
    position = 0 if first is None else store.config.position_from(first)
    reply = _open(store, how, position, replace)
    if not isinstance(reply, Opened):
        raise StoreUnavailable(store.where, "the tag cannot be opened yet")
    return store.config.number_at(reply.next)


def _open(store: TagStore, how: str, position: int, replace: int = 0) -> Any:
    """Open, and wait as long as a deposed master may answer."""
    end_s = time.monotonic() + LONGEST_SETTLE_S
    while True:
        reply = store.open(OpenRequest(how, position, 0, replace))
        if not isinstance(reply, Settling) or time.monotonic() > end_s:
            return reply
        time.sleep(min(reply.wait_ms, 1000) / 1000)


def change_tag(old: Servers, new: Servers, tag: str, *, first: int | None = None, **settings: Any) -> int:
    """Give a tag other constants or other servers, such as one more of several independent ones.

    Closes the tag on all servers, finds the highest number that any of them has handed out, and opens it beyond that
    with the new constants. Processes keep what they have; for more they need the new settings: restart them. If it is
    interrupted, the tag is closed: repeat it.

    Args:
        old: all servers that hand out numbers of the tag; with those that do not reply, *first* is needed.
        new: the list of servers from now on.
        first: no number from there on was ever handed out: needed if a server of *old* does not reply or does not
            know the tag.
        settings: the new constants.

    Returns:
        the first number that is handed out next.
    """
    highest = 0 if first is None else first
    with _stores(old, tag, {}) as before:
        for store in before:
            try:
                highest = max(highest, _stop(store))
            except (StoreUnavailable, ConfigError):
                if first is None:
                    raise
    with _stores(new, tag, settings) as stores:
        for store in stores:
            # on a server that was not in the list, or a mistyped list of the old ones
            highest = max(highest, _stop(store, may_be_new=True))
        return min(_opened_from(store, highest, "word", 1) for store in stores)


def _stop(store: Any, *, may_be_new: bool = False) -> int:
    """Close the tag on one server; return the first number beyond all that it has handed out."""
    store.stop()
    info = tag_info(store)
    if info.config is None or (info.reason is ClosedReason.NO_TAG and not may_be_new):
        raise ConfigError(
            f"Redis at {store.where} does not know the tag {store.config.tag!r}, so which numbers it handed out is not "
            "known. Nothing was opened. Say from where on no number was handed out."
        )
    return (
        0
        if info.reason is ClosedReason.NO_TAG and not info.handed_out
        else info.next_number + info.config.share[1]
    )


def delete_tag(url: Servers, tag: str) -> bool:
    """Delete a tag on all servers. Returns False if none had it.

    Processes keep what they have, and report it if the tag is used again.
    """
    with _stores(url, tag, {}) as stores:
        deleted = [store.delete() for store in stores]
    return any(deleted)


def show_tag(url: Servers, tag: str) -> Sequence[TagInfo]:
    """Return the state of a tag on each server. Runs no script and writes nothing."""
    with _stores(url, tag, {}) as stores:
        return [tag_info(store) for store in stores]


def remaining(infos: Sequence[TagInfo]) -> int | None:
    """Return how many numbers are not handed out; None for a cyclic tag, or if a server does not know it."""
    left = 0
    for info in infos:
        if info.config is None or info.config.cyclic:
            return None
        left += max(0, info.config.size - info.position)
    return left


def tag_info(store: Any) -> TagInfo:
    """Return the state of a tag on the server of *store*. Raises StoreUnavailable, ConfigError."""
    fields = store.read()
    if "signature" not in fields:
        return TagInfo(store.where, exists=False)
    config = parse_signature(store.config.tag, fields["signature"])

    def number(name: str) -> int:
        text = fields.get(name, "0")
        return int(text) if text.isdecimal() and len(text) <= 16 else 0

    alarm = [int(text) for text in fields.get("alarm", "").split(" ") if text.isdecimal() and len(text) <= 16]
    try:
        reason = ClosedReason(fields["reason"]) if fields.get("reason") else None
    except ValueError:
        raise TagBroken(store.where, store.config.tag, "reason", fields["reason"]) from None
    return TagInfo(
        where=store.where,
        exists=True,
        config=config,
        position=number("next"),
        next_number=config.number_at(number("next")),
        reason=reason,
        closed_ms=number("closed_at"),
        last_ms=number("last"),
        segments=number("segments"),
        handed_out=number("handed_out"),
        alarms=number("alarms"),
        alarm=(config.number_at(alarm[0]), config.number_at(max(0, alarm[1] - 1)), alarm[2])
        if len(alarm) == 3
        else None,
        clients=sum(name.startswith("c:") for name in fields),
    )
