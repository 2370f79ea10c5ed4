"""Each rule that keeps numbers unique, and how to switch it off in the simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from snowredis.numbers.buffer import Buffer
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
    """

    what: str
    replaced: tuple[str, str] | None
    patch: Callable[[pytest.MonkeyPatch], None] | None
    classes: tuple[str, ...]
    seed: int
    complaint: str = r"was made by \w+ and \w+|handed out \d+, though"

    def edit(self, name: str, source: str) -> str:
        """Return the text of a script without the rule."""
        return source if self.replaced is None else source.replace(*self.replaced)


def _patched(attribute: str, value: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(SegmentGenerator, attribute, value)


def _nothing(*_: object, **__: object) -> None:
    """Stand in for a method that does nothing."""


def _suspend_only(self: SegmentGenerator) -> None:
    self._suspended = True


def _drop_the_part_only(self: SegmentGenerator) -> Buffer:
    self._block = (iter(()), b"")
    return self._buffer


RULES: Mapping[str, Rule] = {
    "count": Rule(
        "N1: the next number of a period grows with what is handed out",
        ("next_number = first + count * stride", "next_number = first"),
        None,
        ("pause",),
        0,
    ),
    "other-server": Rule(
        "N2: a tag on a Redis that may have lost its last writes is closed",
        ("elseif v[2] ~= id then", "elseif false then"),
        None,
        ("failover", "snapshot"),
        5,
    ),
    "no-tag": Rule(
        "N2: a tag that Redis does not know is closed",
        (
            "    lost = 'no-tag'\n",
            "    stride, is_open = 1, true\n"
            "    for _, name in ipairs({ 'closed_until', 'closed_at', 'losses' }) do put(name, '0') end\n"
            "    put('signature', signature) put('identity', id) put('database', database)\n",
        ),
        None,
        ("wipe",),
        0,
    ),
    "stride": Rule(
        "N2: a tag that Redis does not know is created, since other servers may have the numbers in between",
        ("if stride == 0 then return done('absent') end", ""),
        lambda patch: patch.setattr("tests.numbers.simulation.CREATES", False),
        ("wipe",),
        0,
        "made by|makes no numbers",
    ),
    "rolled-back": Rule(
        "N3: numbers that a process shows, and that Redis forgot, close the tag",
        ("elseif seen > next_number and is_open then", "elseif false then"),
        None,
        ("rollback",),
        15,
        "though it was shown",
    ),
    "deposed-master": Rule(
        "N4: a tag is opened only when no deposed master answers any more",
        ("closed_at + slack + settle - now", "0 * settle"),
        None,
        ("split",),
        0,
    ),
    "deposed-again": Rule(
        "N4: the slack of a deposed master counts from the newest failover, also if the tag was closed before",
        (
            "put('closed_at', fmt(now))\n  end\n  if not known",
            "if v[11] == '0' or v[15] == v[13] then put('closed_at', fmt(now)) end\n  end\n  if not known",
        ),
        None,
        ("split",),
        1,
    ),
    "clock-ahead": Rule(
        "N4: a tag that was closed while Redis' clock was ahead can be opened when the clock is right",
        ("if closed_at > now then", "if false then"),
        None,
        ("ahead",),
        11,
        "makes no numbers",
    ),
    "fork-drops": Rule(
        "a forked child has no segment of its parent", None, _patched("_after_fork", _nothing), ("fork",), 0
    ),
    "suspend-drops": Rule(
        "a clone of a suspended process has no segment", None, _patched("suspend", _suspend_only), ("suspended",), 0
    ),
    "new-buffer": Rule(
        "what was ready or under way before suspend() or a fork is void",
        None,
        _patched("_drop_all", _drop_the_part_only),
        ("fork", "suspended"),
        0,
    ),
}
