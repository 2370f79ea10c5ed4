"""State of a tag for the service's page: its state as Redis has it, why it is closed, and what opens it.

Only reads, so it also works where no process has asked for a number yet.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snowredis.core.as_json import IdNumber
from snowredis.errors import SnowredisError
from snowredis.numbers.administration import TagInfo, constants_of, look, remaining
from snowredis.numbers.errors import NumbersDiffer
from snowredis.numbers.fetcher import LEAST_MS
from snowredis.numbers.opening import open_stores
from snowredis.numbers.protocol import ClosedReason, TagConfig
from snowredis.numbers.settings import SEGMENT_SETTINGS
from snowredis.settings import url_or_default

# so long before the end of the range there is time to make another tag
SOON_S = 7 * 86_400
# a rate of less time is that of the segments that were fetched by chance
STEADY_S = 60.0
# as of a pool: an alarm that people had a week to look at does not hide what is new
ALARM_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class TagState:
    """State of a tag on all its servers, for people.

    Attributes:
        state: "open", "alarm", "partly closed", "partly unknown", "closed", "used up", "other settings" or "unknown".
        level: "ok", "warning", "critical" or "unknown", as of a pool's status.
        text: what is the case, and what to do.
        commands: those that open it, with N where a person has to say a number.
        next_number: the lowest number that was not handed out; None if that is not known.
        remaining: how many numbers of the range are not handed out; None if that is not known.
        rate: numbers a second that were handed out since the first look; None if that is not known yet.
        used_up_in_s: when the range is used up at that rate, s; None if it is not known, or never.
    """

    state: str
    level: str
    text: str
    commands: Sequence[str] = ()
    next_number: IdNumber | None = None
    remaining: int | None = None
    rate: float | None = None
    used_up_in_s: float | None = None


class TagWatch:
    """Looks at one tag again and again. Thread-safe. Connects at the first look.

    Args:
        settings: those of the kind "segment", with its URL.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        given = dict(settings)
        self._url = url_or_default(given.pop("url", None))
        self._settings = given
        self._tag = str(given.get("tag", SEGMENT_SETTINGS["tag"].default))
        self._lock = threading.Lock()
        self._stores: Sequence[Any] = ()
        # time and numbers handed out, of the first look since they were counted from zero
        self._since: tuple[float, int] | None = None

    def read(self, rate: float | None = None) -> TagState:
        """Return the state. Blocks for a round trip to each server.

        Args:
            rate: numbers a second that are handed out, if a generator knows it.
        """
        with self._lock:
            try:
                if not self._stores:
                    self._stores = open_stores(self._url, self._settings)
                infos, errors = look(self._stores)
            except SnowredisError as error:
                return TagState("unknown", "unknown", str(error))
            measured = self._measure(infos) if not errors else None
            configs = [store.config for store in self._stores]
            steady = self._since is not None and time.monotonic() - self._since[0] >= STEADY_S
        used = measured if rate is None else rate
        replied = [info for info in infos if not info.error]
        return tag_state(self._tag, configs, replied, errors, rate=used, steady=steady)

    def _measure(self, infos: Sequence[TagInfo]) -> float | None:
        handed, now_s = sum(info.handed_out for info in infos), time.monotonic()
        if self._since is None or handed < self._since[1]:
            self._since = now_s, handed
        elapsed_s = now_s - self._since[0]
        return (handed - self._since[1]) / elapsed_s if elapsed_s * 1000 >= LEAST_MS else None

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for store in self._stores:
                store.close()
            self._stores = ()


def tag_state(
    tag: str,
    configs: Sequence[TagConfig],
    infos: Sequence[TagInfo],
    errors: Sequence[SnowredisError],
    *,
    rate: float | None,
    steady: bool,
) -> TagState:
    """Return the state of a tag whose servers showed *infos*, except for those that failed with *errors*. Pure.

    Args:
        configs: the constants of the tag in this process, for each server.
        rate: numbers a second that are handed out; None if that is not known.
        steady: that was measured for long enough to warn of the end of the range.
    """
    failed = " ".join(map(str, errors))
    if not infos:
        return TagState("unknown", "unknown", failed)
    for info in infos:
        expected = next((one for one in configs if info.config and one.share == info.config.share), None)
        if info.config is not None and (expected is None or expected.signature != info.config.signature):
            error = NumbersDiffer(tag, info.config.signature, (expected or configs[0]).signature)
            return TagState("other settings", "critical", str(error))
    open_ = [info for info in infos if info.exists and info.reason is None]
    # a closed tag may have handed out more than is known
    next_number = min((info.next_number for info in open_), default=None)
    left = remaining(infos) if len(open_) == len(configs) else None
    used_up_in_s = left / rate if left is not None and rate else None
    state, level, text = "open", "ok", "it hands out numbers."
    commands: list[str] = []
    closed = [info for info in infos if info not in open_]
    if closed:
        state, level, text, commands = _closed(tag, configs[0], closed, partly=bool(open_))
    elif left == 0:
        state, level = "used up", "critical"
        text = "every number of its range is handed out. Use another tag, or change its maximum with the command."
        commands = [f"snowredis numbers change {tag} --maximum N"]
    elif steady and used_up_in_s is not None and used_up_in_s < SOON_S:
        level = "warning"
        text = "its range is used up soon. Use another tag then, or change its maximum with the command."
        commands = [f"snowredis numbers change {tag} --maximum N"]
    if errors:
        state = state if closed else "partly unknown"
        level, text = (
            level if level == "critical" else "warning",
            f"{text} Not every server replied: {failed}",
        )
    recent = (info.alarm for info in infos if info.alarm and info.last_ms - info.alarm[2] <= ALARM_MS)
    if alarm := next(recent, None):
        state, level = "alarm" if state == "open" else state, "critical"
        text += f" Alarm: the numbers {alarm[0]} to {alarm[1]} may have been handed out twice."
    return TagState(state, level, text, commands, next_number, left, rate, used_up_in_s)


def _closed(tag: str, config: TagConfig, closed: Sequence[TagInfo], *, partly: bool) -> tuple[str, str, str, list[str]]:
    """Return state, level, text and commands of a tag that is closed on some servers or all of them."""
    info = closed[0]
    reason = info.reason or ClosedReason.NO_TAG
    highest = max(one.next_number for one in closed)
    text = f"{reason.text}. To open it, replace N by a number from which on none was ever handed out"
    text += f"; processes reported numbers up to {highest - 1}." if highest > config.start else "."
    # needed where the tag is not stored
    options = "" if info.exists else _options(config)
    commands = [f"snowredis numbers open {tag} --from N{options}"]
    if not info.exists and not partly:
        text += " If the tag is new, create it with the second command instead."
        commands.append(f"snowredis numbers create {tag}{options}")
    if partly:
        return "partly closed", "warning", f"on {len(closed)} of its servers: {text}", commands
    return "closed", "critical", text, commands


def _options(config: TagConfig) -> str:
    """Return the constants that are not the defaults, as options of a command."""
    usual = constants_of(TagConfig(tag=config.tag))
    others = {name: value for name, value in constants_of(config).items() if value != usual[name]}
    return "".join(f" --{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in others.items())
