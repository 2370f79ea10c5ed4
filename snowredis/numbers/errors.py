"""Errors that only segments have.

SnowredisError
├── TagClosed          no numbers are handed out until the tag is opened
├── TagExhausted       every number of the range is handed out
├── TagLimited         max_rate allows no number at present
└── TagMismatch        the tag was made with other constants

Errors of dated numbers.
"""

from __future__ import annotations

from typing import ClassVar

from snowredis.errors import SnowredisError
from snowredis.numbers.replies import ClosedReason


class TagClosed(SnowredisError):
    """The tag hands out no numbers until it is opened, since Redis may have forgotten some; no number was made."""

    def __init__(self, tag: str, reason: str, next_number: int) -> None:
        super().__init__(tag, reason, next_number)
        self.tag, self.reason, self.next_number = tag, reason, next_number

    def __str__(self) -> str:
        text = ClosedReason(self.reason).text
        if self.reason == ClosedReason.NO_TAG:
            advice = (
                f"If it is new: snowredis segment create {self.tag}. Otherwise find the highest number in use, such "
                f"as max(id) of the table, and say from where on no number was handed out: snowredis segment open "
                f"{self.tag} --from N"
            )
        else:
            advice = (
                f"The numbers that processes reported end before {self.next_number}. Say from where on no number was "
                f"handed out: snowredis segment open {self.tag} --from N"
            )
        return f"the tag {self.tag!r} is closed: {text}. No number was made. {advice}; or pass bound=."


class TagExhausted(SnowredisError):
    """Every number of the tag's range is handed out; no number was made."""

    def __init__(self, tag: str, maximum: int) -> None:
        super().__init__(tag, maximum)
        self.tag, self.maximum = tag, maximum

    def __str__(self) -> str:
        return (
            f"all numbers of tag {self.tag!r} up to its maximum {self.maximum} are handed out. No number was made. "
            "Use another tag, or one with a higher maximum or cyclic=True."
        )


class TagLimited(SnowredisError):
    """max_rate allows no number at present; no number was made."""

    retry: ClassVar[bool] = True

    def __init__(self, tag: str, max_rate: int, wait_ms: int) -> None:
        super().__init__(tag, max_rate, wait_ms)
        self.tag, self.max_rate, self.wait_ms = tag, max_rate, wait_ms

    def __str__(self) -> str:
        return (
            f"the processes of tag {self.tag!r} ask for more than max_rate={self.max_rate} numbers a second. No number "
            f"was made; the next one is available in {self.wait_ms} ms. Raise max_rate, or lower max_step."
        )


class TagMismatch(SnowredisError):
    """The tag was made with other constants; nothing was handed out."""

    def __init__(self, tag: str, stored: str, given: str) -> None:
        super().__init__(tag, stored, given)
        self.tag, self.stored, self.given = tag, stored, given

    def __str__(self) -> str:
        stored, given = (
            dict(part.partition("=")[::2] for part in text.split()) for text in (self.stored, self.given)
        )
        different = [
            f"{ascii(name)[1:-1]} is {ascii(stored.get(name, 'not set'))[1:-1][:40]} in the tag, {given.get(name)} here"
            for name in given
            if stored.get(name) != given[name]
        ]
        return (
            f"the tag {self.tag!r} was made with other settings: {'; '.join(different) or 'unknown ones'}. Nothing was "
            "handed out. Use the settings of the tag, or change it with: snowredis segment change"
        )


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
