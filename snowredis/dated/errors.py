"""Errors of dated numbers."""

from __future__ import annotations

from snowredis.errors import SnowredisError

# reason -> the same for people
CLOSED_REASONS = {
    "no-tag": "this Redis does not know the tag: it is new, or Redis lost it",
    "other-server": "Redis was restarted or replaced, and may have lost the last numbers",
    "rolled-back": "Redis went back to an older state",
}


class PeriodClosed(SnowredisError):
    """Redis may have forgotten numbers of this period, or the tag is new; no number was made.

    Attributes:
        tag: the tag.
        period: label of the period.
        reason: "no-tag", "other-server" or "rolled-back".
        wait_ms: until the first period that is open for certain.
        next_number: the lowest number that may be unused, as far as this Redis and its callers know.
    """

    retry = True

    def __init__(self, tag: str, period: str, reason: str, wait_ms: int, next_number: int) -> None:
        super().__init__(tag, period, reason, wait_ms, next_number)
        self.tag, self.period, self.reason = tag, period, reason
        self.wait_ms, self.next_number = wait_ms, next_number

    def __str__(self) -> str:
        what = CLOSED_REASONS.get(self.reason, ascii(self.reason))
        new = "If the tag is new, call create() once. " if self.reason == "no-tag" else ""
        return (
            f"the numbers of {self.period} of the tag {self.tag!r} are closed: {what}. No number was made. {new}Find "
            f"the highest number of this period in use, such as that in the table, and call open(next_number), at "
            f"least {self.next_number}; or pass bound=. The next period, in {self.wait_ms / 1000:.0f} s, opens by "
            "itself."
        )


class PeriodExhausted(SnowredisError):
    """All numbers of this period were handed out; no number was made."""

    def __init__(self, tag: str, period: str, maximum: int) -> None:
        super().__init__(tag, period, maximum)
        self.tag, self.period, self.maximum = tag, period, maximum

    def __str__(self) -> str:
        return (
            f"all numbers of {self.period} of the tag {self.tag!r} were handed out, up to {self.maximum}. No number "
            "was made. Set a higher maximum, or a format with more digits."
        )


class TagDiffers(SnowredisError):
    """The tag was made with another period or zone; no number was made."""

    def __init__(self, tag: str, stored: str, given: str) -> None:
        super().__init__(tag, stored, given)
        self.tag, self.stored, self.given = tag, stored, given

    def __str__(self) -> str:
        return (
            f"the tag {self.tag!r} has {ascii(self.stored)[1:-1][:100]} in Redis, and {self.given} here. No number was "
            "made. Use the same settings in all processes, or another tag."
        )
