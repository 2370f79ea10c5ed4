"""Administer tags, each on one server: create, open, delete, show; and take a shard number.

Each function connects, and closes again. The command line is built on this.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from snowredis.core.as_json import IdNumber, TimeMs, in_json
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import preset_name, resolve_layout
from snowredis.errors import ConfigError
from snowredis.numbers import protocol
from snowredis.numbers.formats import EVER, MAX_NUMBER, NumberFormat
from snowredis.numbers.masters import Master
from snowredis.numbers.protocol import ClosedReason, OpenRequest
from snowredis.numbers.settings import DATED_CONSTANTS, TAG_CONSTANTS
from snowredis.numbers.stores import FORMAT, RedisTag, open_tag_store
from snowredis.settings import Server, check_settings

# the tag of shard numbers, if no other is named
SHARDS = "shards"
_WHOLE = re.compile(r"[0-9]{1,16}")
_FIELDS = (
    *("signature", "reason", "format", "durability", "slack_ms", "start", "stride", "maximum"),
    *("closed_until", "closed_at", "losses"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TagInfo:
    """State of a tag on one server, as it is stored there. A restart that no process noticed yet does not show.

    Attributes:
        where: the server's address.
        settings: its constants by name, and its format.
        period: label of the current period, by the clock of Redis, such as "2026-11-22"; "" if there is one that never
            ends.
        next_number: the lowest number of it that is not handed out; beyond the maximum if all are.
        maximum: the highest.
        reason: why it hands out nothing; None if it is open.
        closed_ms: since when, ms since 1970.
        opens_ms: when the first period begins that is open by itself, ms since 1970; None if there is none, or if this
            one is open.
    """

    tag: str
    where: str
    settings: Mapping[str, str]
    period: str = ""
    next_number: IdNumber = 0
    maximum: IdNumber = 0
    reason: ClosedReason | None = None
    closed_ms: TimeMs = 0
    opens_ms: TimeMs | None = None

    @property
    @in_json
    def state(self) -> str:
        """Return "open", "closed", or "unknown" for another version."""
        return "unknown" if "durability" not in self.settings else "open" if self.reason is None else "closed"

    @property
    @in_json
    def why(self) -> str:
        """Return why it is closed, for people; "" if it is not."""
        return self.reason.text if self.reason else ""


def _datacenter_of(layout: Layout) -> str:
    """Return what the signature of a tag says of the datacenter bits that its numbers are for. Raises ConfigError."""
    if not layout.datacenter_bits:
        raise ConfigError(
            f"the layout {layout} has no datacenter bits, which hold the shard number. Use a layout that has some: "
            "`snowredis layout` lists the presets, game-shards and twitter are two of them"
        )
    return f"period=ever datacenter={layout.datacenter_bits}/{layout.datacenter_shift}"


def create_tag(url: Server, tag: str, *, layout: Layout | str | None = None, **settings: Any) -> int:
    """Create a tag that is new, or that Redis lost: no number from *start* on was ever handed out. A person says so.

    *settings* are its constants: start, stride, maximum, durability, failover_slack. With stride=2, the server hands
    out every second number, and another one, created with start=2, those in between. With period, zone, year_begins and
    format, its numbers are dated. With *layout*, they are shard numbers for its datacenter bits.

    Returns:
        its first number.

    Raises:
        ConfigError: it exists, or processes saw higher numbers of it.
        StoreUnavailable, ConfigError: the server does not reply, or has the tag with other settings.
    """
    used = check_settings(settings, {**TAG_CONSTANTS, **DATED_CONSTANTS}, " of tags")
    constants = {name: used.pop(name, TAG_CONSTANTS[name].default) for name in TAG_CONSTANTS}
    start, stride, slack_s = constants["start"], constants["stride"], constants["failover_slack"]
    stored, highest = dict[str, Any](), MAX_NUMBER
    if used:
        stored = NumberFormat(tag, **used, maximum=constants["maximum"]).stored
        if (start, stride, layout) != (1, 1, None):
            raise ConfigError(
                "dated numbers begin with 1 in each period: start, stride and layout are for others. Leave them out."
            )
    elif layout is not None:
        place = resolve_layout(layout)
        stored, highest = {"periods": _datacenter_of(place)}, place.datacenters - 1
    maximum = constants["maximum"] or highest
    if not start <= maximum <= highest:
        raise ConfigError(f"there is no number from {start} to {maximum}, of {highest} at most. Raise maximum.")
    stored |= {} if slack_s is None else {"slack_ms": round(slack_s * 1000)}
    with contextlib.closing(open_tag_store(url, tag, **stored)) as store:
        durability = constants["durability"] or store.durability
        create = OpenRequest("create", EVER, start, durability, stride, maximum)
        while isinstance(reply := store.send(create), protocol.SettlingTag):
            time.sleep(min(reply.wait_ms, 500) / 1000)
        if not isinstance(reply, protocol.Opened):
            raise ConfigError(
                f"the tag {tag!r} is not new: it exists, or processes saw higher numbers of it. Nothing was changed. "
                f"See: snowredis numbers show {tag}"
            )
    return int(start)


def open_tag(url: Server, tag: str, first: int, period: str | None = None) -> int:
    """Open a closed tag, or a period: no number from *first* on was ever handed out. A person says so.

    An open one is moved on to *first*.

    Args:
        period: label of the period of which that is known, such as the ``period`` of NumbersClosed; None: the current
            one. If it is over when Redis is asked, nothing is opened.

    Returns:
        the number that is handed out next; higher than *first* if processes saw higher ones.

    Raises:
        ConfigError: *first* is not a number up to the maximum, Redis does not know the tag, or the period is over.
        StoreUnavailable: the server does not reply.

    Blocks:
        until failover_slack after the tag was closed; of dated numbers 6 s longer.
    """
    info = show_tag(url, tag)
    absent = ConfigError(
        f"this Redis does not know the tag {tag!r}, nor its start, stride and maximum. Nothing was opened. Create it "
        f"above all numbers in use: snowredis numbers create {tag} --start N"
    )
    if info is None:
        raise absent
    if info.state == "unknown":
        raise ConfigError(f"the tag {tag!r} is of another version of snowredis, which has to open it: {info.settings}")
    if type(first) is not int or not 0 <= first <= info.maximum:
        raise ConfigError(
            f"{first!r} is not a number up to the maximum {info.maximum} of the tag {tag!r}. Nothing was opened. Check "
            "the number."
        )
    form, label = _form_of(tag, info.settings), period
    datacenter = f" datacenter={info.settings['datacenter']}" if "datacenter" in info.settings else ""
    stored: dict[str, Any] = {"periods": f"period=ever{datacenter}"} if form is None else form.stored
    with contextlib.closing(open_tag_store(url, tag, **stored)) as store:
        while True:
            current = EVER if form is None else form.at(store.now_ms())
            if label not in (None, current.label):
                raise ConfigError(
                    f"the current period of the tag {tag!r} is {current.label or 'one that never ends'}, not {label}. "
                    "Nothing was opened, since each period has numbers of its own."
                )
            # the person spoke of this period, which may be over after a wait
            label = current.label
            match reply := store.send(OpenRequest("open", current, first)):
                case protocol.Opened():
                    return int(reply.next)
                case protocol.AbsentTag():
                    raise absent
                case protocol.SettlingTag():
                    time.sleep(min(reply.wait_ms, 500) / 1000)


def delete_tag(url: Server, tag: str) -> bool:
    """Delete a tag of any version. Returns False if there was none. Processes keep what they have of segments."""
    with contextlib.closing(open_tag_store(url, tag)) as store:
        return bool(store.delete())


def show_tag(url: Server, tag: str) -> TagInfo | None:
    """Return the state of a tag; None if there is none. Runs no script and writes nothing.

    Raises StoreUnavailable and its subclasses.
    """
    with contextlib.closing(open_tag_store(url, tag)) as store:
        return read_tag(store)


def read_tag(store: RedisTag) -> TagInfo | None:
    """Return the state of the tag of *store*, as show_tag()."""
    fields = store.read(*_FIELDS)
    if "signature" not in fields:
        return None
    settings = dict(part.partition("=")[::2] for part in fields["signature"].split())
    if settings.pop("format", "") != str(FORMAT):
        return TagInfo(tag=store.tag, where=store.where, settings=settings)
    # a tag that Redis does not know has no stride, and its start is not known
    known = ("format", "durability", *(("start", "stride") if fields.get("stride") != "0" else ()))
    settings |= {name: fields[name] for name in known if fields.get(name)}

    def whole(name: str, stored: Mapping[str, str] = fields, default: str = "") -> int:
        text = stored.get(name, default)
        if not _WHOLE.fullmatch(text):
            raise store.broken(name, text)
        return int(text)

    settings["failover_slack"] = f"{whole('slack_ms') / 1000:g} s"
    form, current, maximum = _form_of(store.tag, settings), EVER, whole("maximum")
    if form is not None:
        current, maximum = form.at(store.now_ms()), min(maximum, form.maximum)
    stored = store.read(f"n:{current.around}", f"o:{current.around}")
    whole("stride")
    closed_until, reason = whole("closed_until"), None
    if current.first_ms < closed_until and stored.get(f"o:{current.around}") != fields.get("losses"):
        try:
            reason = ClosedReason(fields.get("reason", ""))
        except ValueError:
            raise store.broken("reason", fields.get("reason", "")) from None
    return TagInfo(
        tag=store.tag,
        where=store.where,
        settings=settings,
        period=current.label,
        next_number=max(whole("start"), whole(f"n:{current.around}", stored, "0")),
        maximum=maximum,
        reason=reason,
        closed_ms=whole("closed_at") if reason else 0,
        opens_ms=form.calendar.first_from(current, closed_until) if form and reason and current.label else None,
    )


def _form_of(tag: str, settings: Mapping[str, Any]) -> NumberFormat | None:
    """Return the periods and texts of dated numbers that a tag stores."""
    if "format" not in settings:
        return None
    year_begins = int(settings.get("year_begins", 1))
    return NumberFormat(tag, settings["period"], settings["zone"], year_begins, settings["format"])


def take_shard_number(url: Server, layout: Layout, tag: str = SHARDS) -> int:
    """Return a number that no other shard gets, for the datacenter bits of *layout*.

    Raises:
        NumbersClosed: Redis does not know the tag, or may have forgotten numbers.
        NumbersExhausted: all numbers were given.
        ConfigError: the tag is for datacenter bits of another layout, in another place.
        ConfigError: the layout has no datacenter bits.
    """
    options = f" --layout {preset_name(layout) or layout_spec(layout)}"
    with contextlib.closing(open_tag_store(url, tag, periods=_datacenter_of(layout))) as store:
        return int(Master(store, options=options).take(1).first)
