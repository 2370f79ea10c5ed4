"""Each rule of a process that keeps numbers unique, and how to switch it off. Those of Redis are in test_scripts.py."""

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
        patch: switches it off in the library.
        classes: faults of the schedules that need it.
        seed: of a schedule that fails without it, and passes with it.
    """

    what: str
    patch: Callable[[pytest.MonkeyPatch], None]
    classes: tuple[str, ...]
    seed: int


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
    "fork-drops": Rule("a forked child has no segment of its parent", _patched("_after_fork", _nothing), ("fork",), 0),
    "suspend-drops": Rule(
        "a clone of a suspended process has no segment", _patched("suspend", _suspend_only), ("suspended",), 0
    ),
    "new-buffer": Rule(
        "what was ready or under way before suspend() or a fork is void",
        _patched("_drop_all", _drop_the_part_only),
        ("fork", "suspended"),
        0,
    ),
}
