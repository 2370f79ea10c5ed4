"""Errors of numbers, of segments and of dated ones.

SnowredisError
├── NumbersClosed          no numbers are handed out until the tag is opened
├── NumbersExhausted       every number of the range, or of the period, is handed out
├── SettingsMismatch
│   └── NumbersDiffer      the tag was created with other settings
└── StoreUnavailable
    └── NumbersBroken      a field of the tag holds a value that snowredis never writes
"""

from __future__ import annotations

from snowredis.errors import SettingsMismatch, SnowredisError, StoreUnavailable

# reason -> the same for people
CLOSED_REASONS = {
    "no-tag": "this Redis does not know the tag: it is new, or Redis lost it",
    "other-server": "Redis was restarted, failed over or replaced, and may have lost its last writes",
    "replicated": "a replica was connected or Redis was promoted, so that Redis has another replication id; a loss "
    "cannot be excluded",
    "rolled-back": "Redis forgot numbers that it had handed out",
    "other-database": "it was copied from another database of Redis, where the original may hand out the same numbers",
}


class NumbersClosed(SnowredisError):
    """The tag hands out no numbers, since Redis may have forgotten some; no number was made.

    Attributes:
        tag: the tag.
        reason: a key of CLOSED_REASONS.
        next_number: the lowest number that may be unused, as far as this Redis and the processes know.
        period: label of the period, of dated numbers; "" for segments.
        wait_ms: until the first period that is open for certain; 0 for segments, which a person opens.
        options: of the command that creates this tag, if it is new.
    """

    def __init__(
        self, tag: str, reason: str, next_number: int, period: str = "", wait_ms: int = 0, options: str = ""
    ) -> None:
        super().__init__(tag, reason, next_number, period, wait_ms, options)
        self.tag, self.reason, self.next_number = tag, reason, next_number
        self.period, self.wait_ms, self.options = period, wait_ms, options

    @property
    def retry(self) -> bool:  # type: ignore[override]  # of dated numbers, the next period opens by itself
        """True for dated numbers."""
        return bool(self.period)

    def __str__(self) -> str:
        why = CLOSED_REASONS.get(self.reason, ascii(self.reason))
        what = f"the tag {self.tag!r} is closed" + (f" in the period {self.period}" if self.period else "")
        create = f"snowredis numbers create {self.tag}{self.options}"
        new = f"if it is new, create it: {create}; otherwise " if self.reason == "no-tag" else ""
        # what a Redis that lost the tag does not know
        constants = self.options if self.reason == "no-tag" and not self.period else ""
        text = (
            f"{what}: {why}. No number was made. Next: {new}find the highest number in use, such as that in the "
            f"table, and open the tag beyond it, from {self.next_number} or later: snowredis numbers open {self.tag} "
            f"--from N{constants}"
        )
        if self.period:
            text += f", or pass bound=. The next period that is open by itself begins in {self.wait_ms / 1000:.0f} s"
        return f"{text}."


class NumbersExhausted(SnowredisError):
    """Every number of the range, or of the period, is handed out, or too few are left; no number was made.

    Attributes:
        tag: the tag.
        maximum: the highest number.
        period: label of the period, of dated numbers; "" for segments.
        left: how many numbers are left, fewer than were asked for.
    """

    def __init__(self, tag: str, maximum: int, period: str = "", left: int = 0) -> None:
        super().__init__(tag, maximum, period, left)
        self.tag, self.maximum, self.period, self.left = tag, maximum, period, left

    def __str__(self) -> str:
        of = f" of the period {self.period}" if self.period else ""
        have = f"has only {self.left} numbers left" if self.left else "has no number left"
        advice = "a format with more digits" if self.period else "change it: snowredis numbers change"
        return (
            f"the tag {self.tag!r} {have}{of}, up to its maximum {self.maximum}. No number was made. Use another tag, "
            f"or a higher maximum: {advice}."
        )


class NumbersDiffer(SettingsMismatch):
    """The tag was created with other settings, or by a version with another format; no number was made.

    Attributes:
        tag: its name.
    """

    _what, _where, _refused = "the tag", "in the tag", "No number was made."
    _advice = "Use the settings of the tag, or another tag."

    def __init__(self, tag: str, stored: str, given: str) -> None:
        super().__init__(tag, stored, given)
        self.tag = tag


class NumbersBroken(StoreUnavailable):
    """A field of the tag holds a value that snowredis never writes, for example after a manual edit."""

    retry = False

    def __init__(self, where: str, tag: str, field: str, value: str) -> None:
        super().__init__(where, f"field {field!a} holds {value[:60]!a}")
        self.args = (where, tag, field, value)
        self.tag, self.field, self.value = tag, field, value

    def __str__(self) -> str:
        return (
            f"the tag {self.tag!r} in Redis at {self.where} is broken: {self.reason}, which snowredis never writes. "
            f"Nothing was changed. Find the highest number in use, delete the tag with: snowredis numbers delete "
            f"{self.tag}, and open it beyond that number: snowredis numbers open {self.tag} --from N"
        )
