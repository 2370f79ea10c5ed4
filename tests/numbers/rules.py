"""Each rule that keeps numbers unique, and how to switch it off in the simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest

from snowredis.numbers.fetcher import REPORT_S, Fetcher
from snowredis.numbers.segments import SegmentGenerator


class Rule(NamedTuple):
    """One rule.

    Attributes:
        what: what it says.
        replaced: text of the scripts, and what stands there without the rule.
        patch: switches it off in the library.
        classes: faults of the schedules that need it.
        seed: of a schedule that fails without it, and passes with it.
        complaint: what the checker says then.
        reported: as SegmentSimulation's.
    """

    what: str
    replaced: tuple[str, str] | None
    patch: Callable[[pytest.MonkeyPatch], None] | None
    classes: tuple[str, ...]
    seed: int
    complaint: str = r"was made by \w+ and \w+"
    reported: bool = False

    def edit(self, name: str, source: str) -> str:
        """Return the text of a script without the rule."""
        if self.replaced is None:
            return source
        before, after = self.replaced
        return source.replace(before, after)


def _nothing(*_: object, **__: object) -> None:
    """Stand in for a method that does nothing."""


RULES: Mapping[str, Rule] = {
    "other-server": Rule(
        "a tag on a Redis that may have lost its last writes is closed",
        ("if not assured and v[3] ~= tag.identity then", "if false then"),
        None,
        ("failover", "snapshot"),
        0,
    ),
    "no-tag": Rule(
        "a tag that Redis does not know is closed",
        ("    close(tag, 'no-tag')\n", "    close(tag, 'no-tag')\n    open(tag, 0, 'new')\n"),
        None,
        ("wipe",),
        1,
    ),
    "lost-segments": Rule(
        "a segment that Redis forgot closes the tag, and raises an alarm if others may have it",
        ("local lost = received > 0 and", "local lost = false and"),
        None,
        ("rollback",),
        78,
    ),
    "serial-requests": Rule(
        "a request that is late, or of a copy of the process, is not answered with another segment",
        ("if r and (r.received > received + 1", "if false and (r.received > received + 1"),
        None,
        ("clone",),
        1,
    ),
    "deposed-master": Rule(
        "a tag is opened only when no deposed master answers any more",
        ("local wait = how == 'create' and 0 or slack", "local wait = 0"),
        None,
        ("split",),
        2,
    ),
    "deposed-again": Rule(
        "the slack of a deposed master counts from the newest failover, also if the tag was closed before",
        ("    tag.closed_at = now\n", ""),
        None,
        ("split",),
        15,
    ),
    "clock-ahead": Rule(
        "a tag that was closed while Redis' clock was ahead can be opened when the clock is right",
        ("tag.closed_at = math.min(tag.closed_at, now)", ""),
        None,
        ("ahead",),
        3,
        "makes no numbers",
    ),
    "gaps": Rule(
        "what was handed out by a lost history only is no cause for an alarm",
        ("tag.gaps = table.concat(gaps, ',')", "tag.gaps = ''"),
        None,
        ("failover", "moved"),
        11,
        r"an alarm without a cause.*; [1-9]\d* numbers were lost",
    ),
    "seen-numbers": Rule(
        "what any process saw handed out is not handed out again",
        ("if top > tag.next then", "if false then"),
        None,
        ("wipe",),
        0,
        reported=True,
    ),
    "alarm-drops": Rule(
        "a process drops numbers that others may have",
        None,
        lambda patch: patch.setattr(SegmentGenerator, "_drop", _drop_if(lambda number: number == 0)),
        ("rollback",),
        78,
        "which had dropped it",
    ),
    "copy-drops": Rule(
        "a copy of a process drops what both have, as soon as it is told so",
        None,
        lambda patch: patch.setattr(SegmentGenerator, "_drop", _drop_if(lambda number: number > 0)),
        ("clone",),
        1,
    ),
    "reports": Rule(
        "each server is told which segments a process has, also one that hands out none while others do",
        None,
        lambda patch: patch.setattr(Fetcher, "report", lambda _: REPORT_S),
        ("rollback", "down"),
        75,
    ),
    "fork-drops": Rule(
        "a forked child has no segment of its parent",
        None,
        lambda patch: patch.setattr(SegmentGenerator, "_after_fork", _nothing),
        ("fork",),
        0,
    ),
    "fork-names": Rule(
        "a forked child sends requests under a name of its own",
        None,
        lambda patch: patch.setattr(Fetcher, "begin", _only_first(Fetcher.begin)),
        ("fork", "loss"),
        5,
    ),
    "suspend-drops": Rule(
        "a clone of a suspended process has no segment",
        None,
        lambda patch: patch.setattr(SegmentGenerator, "suspend", _suspend_only),
        ("suspended",),
        0,
    ),
}


def _drop_if(wanted: Callable[[int], bool]) -> Callable[[SegmentGenerator, int, int], None]:
    """Return a SegmentGenerator._drop that drops only from *wanted* numbers on: 0 means that this is a copy."""
    drop = SegmentGenerator._drop

    def drop_some(self: SegmentGenerator, server: int, from_number: int) -> None:
        if wanted(from_number):
            drop(self, server, from_number)

    return drop_some


def _only_first(begin: Callable[[Fetcher], None]) -> Callable[[Fetcher], None]:
    def begin_once(fetcher: Fetcher) -> None:
        if not fetcher._clients:
            begin(fetcher)

    return begin_once


def _suspend_only(self: SegmentGenerator) -> None:
    self._suspended = True
