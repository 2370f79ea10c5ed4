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
from snowredis.numbers.dated import DatedGenerator
from snowredis.numbers.formats import Calendar, NumberFormat
from snowredis.numbers.masters import Master
from snowredis.numbers.protocol import MAX_NUMBER, ClosedReason, NumbersClosed, OpenRequest
from snowredis.numbers.settings import NUMBER_SETTINGS, TAG_CONSTANTS
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

    @property
    @in_json
    def is_dated(self) -> bool:
        """Return whether its numbers are texts of periods."""
        return bool(self.settings.get("format"))


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
    used = check_settings(settings, NUMBER_SETTINGS, " of tags")
    constants = {name: used.pop(name, TAG_CONSTANTS[name].default) for name in TAG_CONSTANTS}
    start, slack_s = constants["start"], constants["failover_slack"]
    if used:
        if (start, constants["stride"]) != (1, 1):
            raise ConfigError(
                "dated numbers begin with 1 in each period: start and stride are for others. Leave them out."
            )
        with DatedGenerator(tag, url, **used, maximum=constants["maximum"]) as ids:
            created = ids.create(durability=constants["durability"], failover_slack=slack_s)
    else:
        place = None if layout is None else resolve_layout(layout)
        highest = MAX_NUMBER if place is None else place.datacenters - 1
        maximum = constants["maximum"] or highest
        if not start <= maximum <= highest:
            raise ConfigError(f"there is no number from {start} to {maximum}, of {highest} at most. Raise maximum.")
        more: dict[str, Any] = {} if slack_s is None else {"slack_ms": round(slack_s * 1000)}
        more |= {} if place is None else {"periods": _datacenter_of(place)}
        request = OpenRequest("create", from_number=start, stride=constants["stride"], maximum=maximum)
        with contextlib.closing(open_tag_store(url, tag, **more)) as store:
            durability = constants["durability"] or store.durability
            created = _said(store, request._replace(durability=durability)) is not None
    if not created:
        raise ConfigError(
            f"the tag {tag!r} is not new: it exists, or processes saw higher numbers of it. Nothing was changed. See: "
            f"snowredis numbers show {tag}"
        )
    return int(start)


def _said(store: Any, request: OpenRequest) -> int | None:
    """Send what a person says until the tag has settled. Returns the next number; None if there is nothing to do."""
    while isinstance(reply := store.send(request), protocol.SettlingTag):
        time.sleep(min(reply.wait_ms, 1000) / 1000)
    if isinstance(reply, protocol.AbsentTag):
        raise ConfigError(
            f"this Redis does not know the tag {store.tag!r}, nor its start, stride and maximum. Nothing was opened. "
            f"Create it above all numbers in use: snowredis numbers create {store.tag} --start N"
        )
    return int(reply.next) if isinstance(reply, protocol.Opened) else None


def open_tag(url: Server, tag: str, first: int, period: str | None = None) -> int:
    """Open a closed tag, or a period: no number from *first* on was ever handed out. A person says so.

    An open one is moved on to *first*.

    Args:
        period: label of the period of which that is known; None: the current one.

    Returns:
        the number that is handed out next; higher than *first* if processes saw higher ones.

    Raises:
        ConfigError: *first* is beyond the maximum, Redis does not know the tag, or the period is over.
        StoreUnavailable: the server does not reply.

    Blocks:
        until failover_slack after the tag was closed; of dated numbers 6 s longer.
    """
    info = show_tag(url, tag)
    if info is None:
        raise ConfigError(
            f"this Redis does not know the tag {tag!r}. Nothing was opened. Create it, above all numbers in use: "
            f"snowredis numbers create {tag}"
        )
    if info.state == "unknown":
        raise ConfigError(f"the tag {tag!r} is of another version of snowredis, which has to open it: {info.settings}")
    if first > info.maximum:
        raise ConfigError(
            f"{first} is beyond the maximum {info.maximum} of the tag {tag!r}, so no number would be left. Nothing was "
            "opened. Check the number."
        )
    if info.is_dated:
        with DatedGenerator(tag, url, **_of_dates(info.settings)) as ids:
            return ids.open(first, period)
    names = ("period", "datacenter")
    periods = " ".join(f"{name}={info.settings[name]}" for name in names if name in info.settings)
    with contextlib.closing(open_tag_store(url, tag, periods=periods)) as store:
        return int(_said(store, OpenRequest("open", from_number=first)) or 0)


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
    settings |= {name: fields[name] for name in ("format", "durability", "start", "stride") if fields.get(name)}

    def whole(name: str, stored: Mapping[str, str] = fields, default: str = "") -> int:
        text = stored.get(name, default)
        if not _WHOLE.fullmatch(text):
            raise store.broken(name, text)
        return int(text)

    settings["failover_slack"] = f"{whole('slack_ms') / 1000:g} s"
    known: Any = _of_dates(settings)
    calendar = Calendar(known.get("period", "ever"), known.get("zone", "UTC"), known.get("year_begins", 1))
    current, around, maximum = calendar.at(store.now_ms()), "", whole("maximum")
    if "format" in settings:
        form = NumberFormat(settings["format"], calendar.period, store.tag)
        around, maximum = form.around(current), min(maximum, form.maximum)
    stored = store.read(f"n:{around}", f"o:{around}")
    whole("stride")
    closed_until, reason = whole("closed_until"), None
    if current.first_ms < closed_until and stored.get(f"o:{around}") != fields.get("losses"):
        try:
            reason = ClosedReason(fields.get("reason", ""))
        except ValueError:
            raise store.broken("reason", fields.get("reason", "")) from None
    return TagInfo(
        tag=store.tag,
        where=store.where,
        settings=settings,
        period=current.label,
        next_number=max(whole("start"), whole(f"n:{around}", stored, "0")),
        maximum=maximum,
        reason=reason,
        closed_ms=whole("closed_at") if reason else 0,
        opens_ms=calendar.first_from(current, closed_until) if reason and current.label else None,
    )


def _of_dates(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of dated numbers that a tag stores."""
    known: dict[str, Any] = {name: settings[name] for name in ("period", "zone", "format") if name in settings}
    return known | ({"year_begins": int(settings["year_begins"])} if "year_begins" in settings else {})


def take_shard_number(url: Server, layout: Layout, tag: str = SHARDS) -> int:
    """Return a number that no other shard gets, for the datacenter bits of *layout*.

    Raises:
        NumbersClosed: Redis does not know the tag, or may have forgotten numbers.
        NumbersExhausted: all numbers were given.
        ConfigError: the tag is for datacenter bits of another layout, in another place.
        ConfigError: the layout has no datacenter bits.
    """
    with contextlib.closing(open_tag_store(url, tag, periods=_datacenter_of(layout))) as store:
        try:
            return int(Master(store).take(1).first)
        except NumbersClosed as error:
            options = f" --layout {preset_name(layout) or layout_spec(layout)}"
            raise NumbersClosed(tag, error.reason, error.next_number, options=options) from None
