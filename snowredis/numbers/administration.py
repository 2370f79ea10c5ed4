"""Administer tags: create, open, change, delete and look at them. Each function connects, and closes again.

A tag may have segments, dated numbers, or both: they have keys of their own. The command line is built on this.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from snowredis.core.as_json import IdNumber, Shown, TimeMs
from snowredis.core.values import as_int
from snowredis.errors import ConfigError, StoreUnavailable, shown
from snowredis.numbers.dated import DatedGenerator
from snowredis.numbers.errors import NumbersBroken
from snowredis.numbers.formats import MAX_NUMBER as MAX_DATED
from snowredis.numbers.formats import Calendar
from snowredis.numbers.opening import open_stores
from snowredis.numbers.protocol import (
    MAX_NUMBER,
    ClosedReason,
    NotNew,
    Opened,
    OpenRequest,
    Settling,
    TagConfig,
    parse_signature,
)
from snowredis.numbers.stores import DatedStore
from snowredis.settings import Servers

log = logging.getLogger("snowredis")

# a tag that was closed only now opens after failover_slack
LONGEST_SETTLE_S = 180.0
_DATED_SIGNATURE = re.compile(
    r"format=\d+ period=(hour|day|month|year) zone=([\w/+-]+) durability=(detect|assured)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class TagInfo:
    """State of the segments of a tag on one server, as it is stored there.

    Attributes:
        where: the server's address.
        exists: False if the server does not know the tag, or did not reply; most others are empty then.
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
        error: why the state is not known; "" if it is.
    """

    where: str
    exists: bool
    config: TagConfig | None = None
    position: IdNumber = 0
    next_number: IdNumber = 0
    reason: ClosedReason | None = None
    closed_ms: TimeMs = 0
    last_ms: TimeMs = 0
    segments: int = 0
    handed_out: IdNumber = 0
    alarms: int = 0
    alarm: Annotated[tuple[int, int, int] | None, Shown("hidden")] = None
    clients: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class DatedInfo:
    """State of the dated numbers of a tag, as it is stored.

    Attributes:
        url: what the server was named by.
        where: the server's address.
        period: "hour", "day", "month" or "year".
        zone: name of the time zone of the period.
        durability: "detect" or "assured".
        format: of the texts, as the process has it that made the first number of the newest period; "" without one.
        label: the current period, by the clock of Redis, such as "2026-11-22".
        last_number: the last number of it that was handed out; 0: none.
        closed_reason: why it hands out no numbers; None if it does.
        opens_ms: when the first period begins that is open by itself, ms since 1970; None if the current one is open.
    """

    url: Annotated[Any, Shown("hidden")]
    where: str
    period: str
    zone: str
    durability: str
    format: str
    label: str
    last_number: IdNumber
    closed_reason: str | None = None
    opens_ms: TimeMs | None = None


@contextlib.contextmanager
def _stores(url: Servers, tag: str, settings: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    stores = open_stores(url, {"tag": tag, **settings})
    try:
        yield stores
    finally:
        for store in stores:
            store.close()


# --- segments ------------------------------------------------------------------------------------------


def create_tag(url: Servers, tag: str, **settings: Any) -> None:
    """Create a tag of segments that is new, on all servers: no number of it was ever handed out. A person says so.

    *settings* are its constants: start, maximum, durability, failover_slack.

    Raises:
        ConfigError: it exists, or processes have reported numbers of it.
        StoreUnavailable, NumbersDiffer: a server does not reply, or has the tag with other constants.
    """
    with _stores(url, tag, settings) as stores:
        replies = [_open(store, OpenRequest("create", 0)) for store in stores]
    if all(isinstance(reply, NotNew) for reply in replies):
        raise ConfigError(
            f"the tag {tag!r} is not new: it exists, or processes have reported numbers of it. Nothing was changed. "
            f"If it is closed, open it with: snowredis numbers open {tag} --from N"
        )


def open_tag(url: Servers, tag: str, first: int | None, **settings: Any) -> int:
    """Open a closed tag of segments, on all servers: no number from *first* on was ever handed out. A person says so.

    With *first* None: none beyond those that processes have reported. The tag opens there or later. An open tag is
    moved on to *first*. *settings* are needed only where the tag is not stored: else its constants are used. A server
    that does not reply is left as it is, with a warning in the log: its numbers are its own.

    Returns:
        the first number that is handed out next.

    Raises:
        ConfigError: *first* is beyond the maximum.
        StoreUnavailable: no server replies. NumbersDiffer: the list of servers is another one.

    Blocks:
        for failover_slack, if the tag was closed only now.
    """
    if first is not None:
        first = _number(first)
    opened, errors = [], []
    with _stores(url, tag, settings) as stores:
        for store in stores:
            try:
                _use_stored(store)
                _check_range(store.config, first)
                opened.append(_opened_from(store, first, "word"))
            except StoreUnavailable as error:
                errors.append(error)
    if not opened:
        raise errors[0]
    for failed in errors:
        log.warning(
            "the tag %s was not opened at %s, which did not reply: %s. Repeat this when it does",
            *(tag, failed.where, failed.reason),
        )
    return min(opened)


def _number(first: Any) -> int:
    try:
        number = as_int(first)
    except TypeError:
        number = -1
    if not 0 <= number <= MAX_NUMBER:
        raise ConfigError(f"a tag can be opened from 0 to {MAX_NUMBER}, not from {shown(first)}")
    return number


def _check_range(config: TagConfig, first: int | None) -> None:
    if first is not None and first > config.maximum:
        raise ConfigError(
            f"{first} is beyond the maximum {config.maximum} of the tag {config.tag!r}, so no number would be left. "
            "Nothing was opened. Check the number, or give the tag a higher maximum: snowredis numbers change"
        )


def _use_stored(store: Any) -> None:
    """Use the constants of the tag, if it is stored with the same share; else the script says what differs."""
    signature = store.read().get("signature")
    if signature is not None:
        stored = parse_signature(store.config.tag, signature)
        if stored.share == store.config.share:
            store.use(stored)


def _opened_from(store: Any, first: int | None, how: str, run: str = "") -> int:
    position = 0 if first is None else store.config.position_from(first)
    reply = _open(store, OpenRequest(how, position, 0, run))
    if isinstance(reply, NotNew):
        raise ConfigError(
            f"the tag {store.config.tag!r} at {store.where} was closed or opened by another person meanwhile. Nothing "
            "was opened by this command. See: snowredis numbers show; then repeat it if need be."
        )
    if not isinstance(reply, Opened):
        raise ConfigError(
            f"the tag {store.config.tag!r} at {store.where} cannot be opened for another "
            f"{getattr(reply, 'wait_ms', 0) / 1000:.0f} s. It is closed. Repeat this then."
        )
    number: int = store.config.number_at(reply.next)
    return number


def _open(store: Any, request: OpenRequest) -> Any:
    """Open, and wait as long as a deposed master may answer."""
    end_s = time.monotonic() + LONGEST_SETTLE_S
    while True:
        reply = store.open(request)
        if not isinstance(reply, Settling) or time.monotonic() > end_s:
            return reply
        time.sleep(min(reply.wait_ms, 1000) / 1000)


def change_tag(old: Servers, new: Servers, tag: str, *, first: int | None = None, **settings: Any) -> int:
    """Give a tag of segments other constants or other servers, such as one more of several independent ones.

    Closes the tag on all servers, finds the highest number that any of them has handed out, and opens it beyond that
    with the new constants. Processes keep what they have; for more they need the new settings: restart them. If it is
    interrupted, the tag is closed: repeat it. Of two changes at the same time, one is refused.

    Args:
        old: all servers that hand out numbers of the tag. With those that do not reply, *first* is needed.
        new: the list of servers from now on.
        first: no number from there on was ever handed out. Needed if a server of *old* does not reply, does not know
            the tag, or may have forgotten numbers.
        settings: the constants that change; the others stay as they are stored.

    Returns:
        the first number that is handed out next.

    Raises:
        ConfigError: *first* is needed, or another change came in between.
        StoreUnavailable: a server does not reply.

    Blocks as open_tag().
    """
    run = os.urandom(16).hex()
    highest = 0 if first is None else _number(first)
    base: dict[str, Any] = {}
    stopped: set[str] = set()
    with _stores(old, tag, {}) as before:
        for store in before:
            try:
                following, config = _stop(store, run, known=first is not None)
            except (StoreUnavailable, ConfigError):
                if first is None:
                    raise
                continue
            stopped.add(store.where)
            highest = max(highest, following)
            if config is not None:
                base = base or constants_of(config)
    with _stores(new, tag, base | settings) as stores:
        for store in stores:
            if store.where not in stopped:
                # not in the list, or a mistyped list of the old ones
                highest = max(highest, _stop(store, run, known=first is not None, may_be_new=True)[0])
        _check_range(stores[0].config, highest)
        return min(_opened_from(store, highest, "change", run) for store in stores)


def constants_of(config: TagConfig) -> dict[str, Any]:
    """Return the settings that *config* was made from."""
    settings: dict[str, Any] = {name: getattr(config, name) for name in ("start", "maximum", "durability")}
    return settings | {"failover_slack": config.failover_slack_ms / 1000}


def _stop(store: Any, run: str, *, known: bool, may_be_new: bool = False) -> tuple[int, TagConfig | None]:
    """Close the tag on one server for the change *run*.

    Args:
        known: a person said from where on no number was handed out.
        may_be_new: the server is none of those that hand out numbers now.

    Returns:
        the first number beyond all that it has handed out, and the stored constants; None if it did not know the tag.
    """
    given = store.config
    signature = store.read().get("signature")
    if signature is not None:
        # else a tag that is assured would be closed for a restart
        store.use(parse_signature(given.tag, signature))
    try:
        return _stop_with_stored(store, run, known=known, may_be_new=may_be_new)
    finally:
        store.use(given)


def _stop_with_stored(store: Any, run: str, *, known: bool, may_be_new: bool) -> tuple[int, TagConfig | None]:
    reply = store.stop(run, force=known)
    reason = reply.reason
    is_new = reason is ClosedReason.NO_TAG and reply.next == 0
    if not known and reason not in (None, ClosedReason.MOVED):
        if not may_be_new or not (is_new or reply.moved):
            why = "does not know" if reason is ClosedReason.NO_TAG else "may have forgotten numbers of"
            raise ConfigError(
                f"Redis at {store.where} {why} the tag {store.config.tag!r}, so which numbers it handed out is not "
                "known. Nothing was opened. Say from where on no number was handed out: --from N"
            )
        store.stop(run, force=True)
    info = tag_info(store)
    if info.config is None or reason is ClosedReason.NO_TAG:
        return (0 if is_new or info.config is None else info.next_number + info.config.share[1]), None
    return info.next_number + info.config.share[1], info.config


def delete_tag(url: Servers, tag: str) -> bool:
    """Delete the segments of a tag on all servers. Returns False if none had it.

    Processes keep what they have, and report it if the tag is used again.
    """
    with _stores(url, tag, {}) as stores:
        deleted = [store.delete() for store in stores]
    return any(deleted)


def show_tag(url: Servers, tag: str) -> Sequence[TagInfo]:
    """Return the state of the segments of a tag on each server. Runs no script and writes nothing.

    A server that does not reply has its error in the state. Raises StoreUnavailable if none replies.
    """
    with _stores(url, tag, {}) as stores:
        infos, errors = look(stores)
    if len(errors) == len(infos):
        raise errors[0]
    return infos


def look(stores: Sequence[Any]) -> tuple[list[TagInfo], list[StoreUnavailable]]:
    """Return the state of a tag on the server of each store, and the errors of those that do not reply."""
    infos: list[TagInfo] = []
    errors: list[StoreUnavailable] = []
    for store in stores:
        try:
            infos.append(tag_info(store))
        except StoreUnavailable as error:
            errors.append(error)
            infos.append(TagInfo(store.where, exists=False, error=str(error)))
    return infos, errors


def remaining(infos: Sequence[TagInfo]) -> int | None:
    """Return how many numbers are not handed out; None if a server does not know it."""
    left = 0
    for info in infos:
        if info.config is None:
            return None
        left += max(0, info.config.size - info.position)
    return left


def tag_info(store: Any) -> TagInfo:
    """Return the state of a tag on the server of *store*. Raises StoreUnavailable, ConfigError."""
    fields = store.read()
    if "signature" not in fields:
        return TagInfo(store.where, exists=False)
    config = parse_signature(store.config.tag, fields["signature"])

    alarm = [int(text) for text in fields.get("alarm", "").split(" ") if _WHOLE.fullmatch(text)]
    try:
        reason = ClosedReason(fields["reason"]) if fields.get("reason") else None
    except ValueError:
        raise NumbersBroken(store.where, store.config.tag, "reason", fields["reason"]) from None
    return TagInfo(
        where=store.where,
        exists=True,
        config=config,
        position=_whole(fields, "next"),
        next_number=config.number_at(_whole(fields, "next")),
        reason=reason,
        closed_ms=_whole(fields, "closed_at"),
        last_ms=_whole(fields, "last"),
        segments=_whole(fields, "segments"),
        handed_out=_whole(fields, "handed_out"),
        alarms=_whole(fields, "alarms"),
        alarm=(config.number_at(alarm[0]), config.number_at(max(0, alarm[1] - 1)), alarm[2])
        if len(alarm) == 3
        else None,
        clients=sum(name.startswith("c:") for name in fields),
    )


_WHOLE = re.compile(r"[0-9]{1,16}")


def _whole(fields: Mapping[str, str], name: str, default: int = 0) -> int:
    """Return a field that holds a whole number, or *default*."""
    text = fields.get(name, "")
    return int(text) if _WHOLE.fullmatch(text) else default


# --- dated numbers -------------------------------------------------------------------------------------


def show_dated(url: Any, tag: str) -> DatedInfo | None:
    """Return the state of the dated numbers of *tag*; None if there are none. Runs no script and writes nothing.

    A restart of Redis that no process has noticed yet does not show.

    Raises StoreUnavailable and its subclasses, ConfigError.
    """
    with contextlib.closing(DatedStore(url, tag, "")) as store:
        where, fields = store.where, store.read()
        if "signature" not in fields:
            return None
        now_ms = store.now_ms()
    found = _DATED_SIGNATURE.fullmatch(fields["signature"])
    if found is None:
        raise ConfigError(
            f"the dated numbers of {tag!r} have a signature that this version of snowredis does not write: "
            f"{shown(fields['signature'])}. Use the version that created them, or another tag."
        )
    period: Any = found[1]
    calendar = Calendar(period, found[2])
    current = calendar.at(now_ms)

    closed_until = _whole(fields, "closed_until")
    reason, opens_ms = None, None
    opened = fields.get(f"o:{current.label}") == fields.get("closed_until")
    if current.first_ms < closed_until and not opened:
        reason, opens_ms = fields.get("reason") or "unknown", calendar.first_from(current, closed_until)
    return DatedInfo(
        url=url,
        where=where,
        period=period,
        zone=found[2],
        durability=found[3],
        format=fields.get("format", ""),
        label=current.label,
        last_number=_whole(fields, f"n:{current.label}", 1) - 1,
        closed_reason=reason,
        opens_ms=opens_ms,
    )


def open_dated(url: Any, tag: str, next_number: int, period: str | None = None, **settings: Any) -> int:
    """Let a period of dated numbers that are stored go on from *next_number*, with the constants of the tag.

    Args:
        period: label of the period of which that is known; None: the current one.
        settings: redis_skew and failover_slack, if they are not the defaults.

    Returns:
        the next number.

    Raises and blocks as DatedGenerator.open(); ConfigError if there are none.
    """
    info = show_dated(url, tag)
    if info is None:
        raise ConfigError(f"there are no dated numbers of the tag {tag!r}. Nothing was opened.")
    constants: dict[str, Any] = {"period": info.period, "zone": info.zone, "durability": info.durability}
    if info.format:
        constants["format"] = info.format
    else:
        constants["maximum"] = MAX_DATED
    with DatedGenerator(tag, url, **constants, **settings) as ids:
        return ids.open(next_number, period)


def delete_dated(url: Any, tag: str) -> bool:
    """Delete the dated numbers of a tag. Returns False if there were none."""
    with contextlib.closing(DatedStore(url, tag, "")) as store:
        return store.delete()
