"""Administer tags, each on one server: create, open, change, delete, show. Each function connects, and closes again.

A tag may have segments, dated numbers, or both: they have keys of their own. The command line is built on this.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from snowredis.core.as_json import IdNumber, Shown, TimeMs, in_json
from snowredis.errors import ConfigError, shown
from snowredis.numbers import tag_store
from snowredis.numbers.dated import DatedGenerator
from snowredis.numbers.formats import MAX_NUMBER as MAX_DATED
from snowredis.numbers.formats import Calendar
from snowredis.numbers.settings import SEGMENT_SETTINGS, TagConfig, parse_signature, with_defaults
from snowredis.numbers.stores import DatedStore, open_stores, refuse_several
from snowredis.numbers.tag_store import ClosedReason, NumbersBroken, NumbersExhausted, OpenRequest
from snowredis.settings import Server

_DATED_SIGNATURE = re.compile(
    r"format=\d+ period=(hour|day|month|year) zone=([\w/+-]+) durability=(detect|assured)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class NumbersAlarm:
    """Numbers that may have been handed out twice.

    Attributes:
        first, last: the numbers.
        at_ms: when that was noticed, ms since 1970.
    """

    first: IdNumber
    last: IdNumber
    at_ms: TimeMs


@dataclass(frozen=True, slots=True)
class TagInfo:
    """State of the segments of a tag on one server, as it is stored there.

    Attributes:
        where: the server's address.
        config: its constants; None if the tag is stored in another format.
        signature: its constants as they are stored.
        position: the lowest position that was not handed out.
        next_number: its number; beyond the maximum if all are handed out.
        reason: why the tag is closed; None if it is open.
        closed_ms: since when, ms since 1970.
        last_ms: time of the last request, ms since 1970.
        segments, handed_out: how many segments, and numbers, were handed out.
        alarms: how many alarms there were.
        alarm: the newest; or None.
        clients: how many generators are known.
    """

    where: str
    config: TagConfig | None
    signature: Annotated[str, Shown("hidden")]
    position: IdNumber
    next_number: IdNumber = 0
    reason: ClosedReason | None = None
    closed_ms: TimeMs = 0
    last_ms: TimeMs = 0
    segments: int = 0
    handed_out: IdNumber = 0
    alarms: int = 0
    alarm: NumbersAlarm | None = None
    clients: int = 0

    @property
    def state(self) -> str:
        """Return "open", "closed", or "unknown" for another format."""
        return "unknown" if self.config is None else "open" if self.reason is None else "closed"

    @property
    @in_json
    def remaining(self) -> Annotated[int | None, Shown("id")]:
        """Number of numbers that are not handed out; None if it is not known."""
        return None if self.config is None else max(0, self.config.size - self.position)


@dataclass(frozen=True, slots=True)
class DatedInfo:
    """State of the dated numbers of a tag, as it is stored.

    Attributes:
        where: the server's address.
        period: "hour", "day", "month" or "year".
        zone: name of the time zone of the period.
        durability: "detect" or "assured".
        format: of the texts, as the process has it that made the first number of the newest period; "" without one.
        label: the current period, by the clock of Redis, such as "2026-11-22".
        last_number: the last number of it that was handed out; 0: none.
        reason: why it hands out no numbers; None if it does.
        opens_ms: when the first period begins that is open by itself, ms since 1970; None if the current one is open.
    """

    where: str
    period: str
    zone: str
    durability: str
    format: str
    label: str
    last_number: IdNumber
    reason: ClosedReason | None = None
    opens_ms: TimeMs | None = None

    @property
    def state(self) -> str:
        """Return "open" or "closed"."""
        return "open" if self.reason is None else "closed"


# --- segments ------------------------------------------------------------------------------------------


def _open_store(url: Server, **settings: Any) -> Any:
    """Return the store of a tag, with its share in *settings*. Raises ConfigError."""
    refuse_several(url)
    return open_stores(url, with_defaults(settings))[0]


def create_tag(url: Server, tag: str, **settings: Any) -> int:
    """Create a tag of segments that is new: no number of it was ever handed out. A person says so.

    *settings* are its constants: start, maximum, share, durability, failover_slack. With share="1/2", the server hands
    out every second number, and another one, created with share="2/2", the others.

    Returns:
        its first number.

    Raises:
        ConfigError: it exists, or processes have reported numbers of it.
        StoreUnavailable, NumbersDiffer: the server does not reply, or has the tag with other constants.
    """
    with contextlib.closing(_open_store(url, tag=tag, **settings)) as store:
        reply = store.open(OpenRequest("create"))
    if isinstance(reply, tag_store.NotNew):
        raise ConfigError(
            f"the tag {tag!r} is not new: it exists, or processes have reported numbers of it. Nothing was changed. "
            f"If it is closed, open it with: snowredis numbers open {tag} --from N"
        )
    first: int = store.config.number_at(0)
    return first


def open_tag(url: Server, tag: str, first: int | None, **settings: Any) -> int:
    """Open a closed tag of segments: no number from *first* on was ever handed out. A person says so.

    With *first* None: none beyond those that processes have reported. The tag opens there or later. An open tag is
    moved on to *first*. *settings* are needed only where the tag is not stored: else its constants are used.

    Returns:
        the first number that is handed out next.

    Raises:
        ConfigError: *first* is beyond the maximum, or the tag is stored in another format.
        StoreUnavailable: the server does not reply.

    Blocks:
        for failover_slack, if the tag was closed only now.
    """
    with contextlib.closing(_open_store(url, tag=tag, **settings)) as store:
        signature = store.stored_signature()
        if signature is not None:
            store.use(parse_signature(tag, signature))
        config: TagConfig = store.config
        if first is not None and first > config.maximum:
            raise ConfigError(
                f"{first} is beyond the maximum {config.maximum} of the tag {tag!r}, so no number would be left. "
                f"Nothing was opened. Check the number, or create another tag with: --start {first}"
            )
        request = OpenRequest("word", 0 if first is None else config.position_from(first))
        while isinstance(reply := store.open(request), tag_store.SettlingTag):
            time.sleep(min(reply.wait_ms, 1000) / 1000)
    return config.number_at(reply.next)


def change_tag(
    url: Server,
    tag: str,
    *,
    maximum: int | None = None,
    durability: Literal["detect", "assured"] | None = None,
    failover_slack: float | None = None,
) -> int:
    """Give an open tag of segments other constants, in one step. Its numbers go on where they are.

    Processes use up what they have, and need the new settings for more: restart them. What is not named stays as it is
    stored. Start and share are fixed: for others, create another tag, with a start above the numbers of this one.

    Returns:
        the first number that is handed out next.

    Raises, with nothing changed:
        ConfigError: a constant that cannot work; there is no such tag.
        NumbersClosed: the tag is closed: open it first.
        NumbersExhausted: no number would be left.
        NumbersDiffer: another person changed it meanwhile.
        StoreUnavailable: the server does not reply.
    """
    named = {"maximum": maximum, "durability": durability, "failover_slack": failover_slack}
    given = {name: SEGMENT_SETTINGS[name].check(value) for name, value in named.items() if value is not None}
    with contextlib.closing(_open_store(url, tag=tag)) as store:
        signature = store.stored_signature()
        if signature is None:
            raise ConfigError(f"there is no tag {tag!r} at {store.where}. Nothing was changed.")
        store.use(parse_signature(tag, signature))
        if "failover_slack" in given:
            given["failover_slack_ms"] = round(given.pop("failover_slack") * 1000)
        config = replace(store.config, **given)
        reply = store.change(config)
        if isinstance(reply, tag_store.Closed):
            raise store.closed(reply)
        if isinstance(reply, tag_store.Exhausted):
            raise NumbersExhausted(tag, config.maximum)
    following: int = config.number_at(reply.next)
    return following


def delete_tag(url: Server, tag: str) -> bool:
    """Delete the segments of a tag, of any format, and its dated numbers. Returns False if there were none.

    Processes keep what they have of segments, and report it if the tag is used again.
    """
    with contextlib.closing(_open_store(url, tag=tag)) as store, contextlib.closing(DatedStore(url, tag, "")) as dated:
        deleted = [store.delete(), dated.delete()]
    return any(deleted)


def show_tag(url: Server, tag: str) -> TagInfo | None:
    """Return the state of the segments of a tag; None if there are none. Runs no script and writes nothing.

    Raises StoreUnavailable and its subclasses.
    """
    with contextlib.closing(_open_store(url, tag=tag)) as store:
        fields = store.read()
        return tag_info(store.where, tag, fields) if "signature" in fields else None


def tag_info(where: str, tag: str, fields: Mapping[str, str]) -> TagInfo:
    """Return the state of a tag whose hash has *fields* on the server *where*. Raises NumbersBroken."""
    signature, position = fields["signature"], _whole(fields, "next")
    try:
        config = parse_signature(tag, signature)
    except ConfigError:
        return TagInfo(where, None, signature, position)
    reason = _reason(where, tag, fields) if fields.get("reason") else None
    alarm = [int(text) for text in fields.get("alarm", "").split(" ") if _WHOLE.fullmatch(text)]
    return TagInfo(
        where,
        config,
        signature,
        position,
        next_number=config.number_at(position),
        reason=reason,
        closed_ms=_whole(fields, "closed_at") if reason is not None else 0,
        last_ms=_whole(fields, "last"),
        segments=_whole(fields, "segments"),
        handed_out=_whole(fields, "handed_out"),
        alarms=_whole(fields, "alarms"),
        alarm=NumbersAlarm(config.number_at(alarm[0]), config.number_at(max(0, alarm[1] - 1)), alarm[2])
        if len(alarm) == 3
        else None,
        clients=sum(name.startswith("c:") for name in fields),
    )


def _reason(where: str, tag: str, fields: Mapping[str, str]) -> ClosedReason:
    """Return why a tag is closed. Raises NumbersBroken."""
    code = fields.get("reason", "")
    try:
        return ClosedReason(code)
    except ValueError:
        raise NumbersBroken(where, tag, "reason", code) from None


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
        reason, opens_ms = _reason(where, tag, fields), calendar.first_from(current, closed_until)
    return DatedInfo(
        where=where,
        period=period,
        zone=found[2],
        durability=found[3],
        format=fields.get("format", ""),
        label=current.label,
        last_number=_whole(fields, f"n:{current.label}", 1) - 1,
        reason=reason,
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
        raise ConfigError(
            f"this Redis knows no dated numbers of {tag}. Nothing was opened. Let a process ask for a number, which "
            f"makes them known, then repeat this. If they are new: snowredis numbers create {tag} --period day"
        )
    constants: dict[str, Any] = {"period": info.period, "zone": info.zone, "durability": info.durability}
    constants |= {"format": info.format} if info.format else {"maximum": MAX_DATED}
    with DatedGenerator(tag, url, **constants, **settings) as ids:
        return ids.open(next_number, period)
