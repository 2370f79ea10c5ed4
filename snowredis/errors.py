"""The error tree: every exception that snowredis raises.

SnowredisError
├── ConfigError (ValueError)        a setting that cannot work
├── PoolNotFound                    no such pool in this Redis
├── LayoutError (ValueError)        bits that do not fit, a field or a time out of range
├── InvalidId (ValueError)          a number or text that is not a valid id
├── LayoutMismatch                  a pool with another layout, other constants, or in another format
├── PoolExhausted                   every worker id is leased
├── LeaseExpired                    the reserved time ran out and could not be extended
│   └── LeaseLost                   the lease was lost, and no other worker id could be claimed
├── ClockMovedBack                  the wall clock went back to a time that was already used, or stands still
├── ClockSkewed                     the wall clock is too far from the clock of Redis
├── StoreUnavailable                Redis does not answer, or refuses
└── GeneratorClosed                 next_id() after close(), or between suspend() and resume()

Each error keeps its values as attributes; its message says what happened, what was refused and what to do. All
errors can be pickled (the constructor takes exactly ``args``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

__all__ = [
    "ClockMovedBack", "ClockSkewed", "ConfigError", "GeneratorClosed", "InvalidId", "LayoutError", "LayoutMismatch",
    "LeaseExpired", "LeaseLost", "PoolExhausted", "PoolNotFound", "SnowredisError", "StoreUnavailable",
]  # fmt: skip

# environment variables begin with it
PREFIX = "SNOWREDIS_"


def shown(value: object) -> str:
    """Return the repr of *value* for an error message, shortened; for a huge int its size."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"<{value.bit_length()}-bit int>"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the one of *known* that *name* resembles, if any; *cutoff* is the least ratio of difflib."""
    from difflib import get_close_matches

    # the common prefix of all variables is no resemblance
    rests = {each.removeprefix(PREFIX): each for each in known}
    near = get_close_matches(name.removeprefix(PREFIX), rests, n=1, cutoff=cutoff)
    return rests[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return a sentence with the one of *known* that nearest() finds, and a space; empty if there is none."""
    near = nearest(name, known, cutoff=cutoff)
    return f"Did you mean {near!r}? " if near else ""


def count(number: int, one: str, several: str = "") -> str:
    """Return *number* with the word for it; *several*: the plural if it is not *one* with an s."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def as_cause(error: BaseException) -> BaseException:
    """Return *error* without its traceback and causes, for ``raise ... from``, so that a person sees one traceback.

    For an error whose text is in the message of the one that is raised. No frame stays alive through it.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


class SnowredisError(Exception):
    """Base class of all snowredis errors.

    Attributes:
        retry: whether the same call can succeed later without a change by a person, so that a job is worth another try.
        code: which case of the class it is, if a caller should know.
    """

    retry: ClassVar[bool] = False
    code: str = ""


class ConfigError(SnowredisError, ValueError):
    """A setting, or a combination of settings, that cannot work."""


# names of pools in a message
_MAX_NAMED = 12


class PoolNotFound(SnowredisError):
    """No pool of that name exists in this Redis.

    Attributes:
        where: the server, if it is known.
        others: the pools that are there; None if they are not known.
    """

    def __init__(self, pool: str, where: str = "", others: tuple[str, ...] | None = None) -> None:
        super().__init__(pool, where, others)
        self.pool, self.where, self.others = pool, where, others

    def __str__(self) -> str:
        there = ""
        if self.others is not None:
            more = f" and {len(self.others) - _MAX_NAMED} more" if len(self.others) > _MAX_NAMED else ""
            there = f" (pools there: {', '.join(self.others[:_MAX_NAMED]) or 'none'}{more})"
        return (
            f"there is no pool {self.pool!r} in {f'Redis at {self.where}' if self.where else 'this Redis'}{there}. "
            f"Check the name and the database number; or, if it is new, create it: snowredis pool create {self.pool}"
        )


class LayoutError(SnowredisError, ValueError):
    """Field widths that do not add up, or a value that does not fit its field."""


class InvalidId(SnowredisError, ValueError):
    """A number or text that is not a valid id."""


class LayoutMismatch(SnowredisError):
    """The pool was created with another layout or other constants, or in another format; nothing was claimed.

    Two layouts in one pool would divide the same 63 bits differently, and so repeat ids.

    Attributes:
        pool: its name.
        stored, given: all settings in Redis, and of this process, as they are stored in Redis.
        differences: name -> its values in Redis and in this process, as text for people.
    """

    def __init__(self, pool: str, stored: str, given: str) -> None:
        super().__init__(pool, stored, given)
        self.pool, self.stored, self.given = pool, stored, given

    @property
    def differences(self) -> dict[str, tuple[str, str]]:
        """The settings that differ."""
        from snowredis.signatures import differences

        return differences(self.stored, self.given)

    def __str__(self) -> str:
        from snowredis.signatures import layout_advice, mismatch

        advice = f"Nothing was claimed. {layout_advice(self.pool, self.stored, self.given)}"
        return mismatch(f"pool {self.pool!r}", "in the pool", self.stored, self.given, advice)


class PoolExhausted(SnowredisError):
    """Every worker id of the pool is leased."""

    retry = True

    def __init__(self, pool: str, capacity: int, next_expiry_ms: int) -> None:
        super().__init__(pool, capacity, next_expiry_ms)
        self.pool, self.capacity, self.next_expiry_ms = pool, capacity, next_expiry_ms

    def __str__(self) -> str:
        return (
            f"all {self.capacity} worker ids of pool {self.pool!r} are leased; the next lease ends in "
            f"{self.next_expiry_ms} ms. Stop idle processes, or give the layout more worker bits."
        )


class LeaseExpired(SnowredisError):
    """The reservation ended and could not be extended; no id was made."""

    retry = True

    def __init__(self, pool: str, worker: int, reason: str) -> None:
        super().__init__(pool, worker, reason)
        self.pool, self.worker, self.reason = pool, worker, reason

    def __str__(self) -> str:
        if self.worker < 0:
            return (
                f"no worker id of pool {self.pool!r} is leased, and none could be claimed: "
                f"{self.reason.rstrip('.')}. No id was made; the next call tries again."
            )
        return (
            f"the reservation of worker id {self.worker} of pool {self.pool!r} ended and could not be "
            f"extended: {self.reason.rstrip('.')}. No id was made; next_id() works again as soon as Redis does."
        )


class LeaseLost(LeaseExpired):
    """The lease was lost and no other worker id could be claimed; no id was made."""

    def __str__(self) -> str:
        return (
            f"this process lost its lease of worker id {self.worker} of pool {self.pool!r}, and no other worker id "
            f"could be claimed: {self.reason.rstrip('.')}. No id was made; the next call tries again."
        )


class ClockMovedBack(SnowredisError):
    """The wall clock went back to a time that was already used, or stands still; no id was made.

    Attributes:
        behind_ms: how far it is behind the newest id; with *stopped*, for how long it has stood still.
        policy: the clock_policy.
        stopped: True if the next tick never begins, as of a clock that a test has frozen.
    """

    retry = True

    def __init__(self, behind_ms: int, policy: str, stopped: bool = False) -> None:
        super().__init__(behind_ms, policy, stopped)
        self.behind_ms, self.policy, self.stopped = behind_ms, policy, stopped

    def __str__(self) -> str:
        if self.stopped:
            return (
                f"the clock of this host has stood still for {self.behind_ms} ms, and all ids of this time are used "
                f"up; clock_policy={self.policy!r} waits for later ones. No id was made. If a test has frozen the "
                "time, use a snowredis.testing.ManualClock, or let the time tick."
            )
        return (
            f"the clock of this host went back: it is {self.behind_ms} ms behind the newest id, more than "
            f"max_wait_ms allows with clock_policy={self.policy!r}. No id was made. Slew the clock instead of stepping "
            f"it, raise max_wait_ms, or wait {self.behind_ms} ms."
        )


class ClockSkewed(SnowredisError):
    """The wall clock of this host is too far from the clock of Redis; no id was made."""

    retry = True

    def __init__(self, offset_ms: int, limit_ms: int) -> None:
        super().__init__(offset_ms, limit_ms)
        self.offset_ms, self.limit_ms = offset_ms, limit_ms

    def __str__(self) -> str:
        way = "ahead of" if self.offset_ms > 0 else "behind"
        return (
            f"the clock of this host is {abs(self.offset_ms)} ms {way} the clock of Redis, and "
            f"this pool allows at most {self.limit_ms} ms. No id was made. "
            f"Correct the clock (NTP) of the host that is wrong."
        )


# codes of a Redis that refuses this user, this password, or a command that snowredis needs
REFUSED = ("no-password", "wrong-password", "no-permission")


class StoreUnavailable(SnowredisError):
    """Redis cannot be reached, refuses what was asked, or its reply cannot be used.

    Attributes:
        where, reason, advice: the server, what happened, and what to do.
        code: what a person has to change before the same call succeeds: one of REFUSED; why Redis does not show its
            identity ("info-refused", "no-run-id", "no-replication-id"); "clock", if it may have lost data and its clock
            is far behind; "broken", if a key holds what snowredis never writes. "": it may succeed later.
        is_unsent: True if no connection was made, so that Redis has certainly not seen the request.
        timed_out: True if Redis did not reply in time; it may reply to another call, if many processes ask at once.
        replied: True if Redis replied, with an error.
        is_read_only: True if it accepts no writes: a replica, or a master with too few of them.
    """

    is_unsent = timed_out = replied = is_read_only = False

    def __init__(self, where: str, reason: str, advice: str = "", code: str = "") -> None:
        super().__init__(where, reason, advice, code)
        self.where, self.reason, self.code = where, reason.rstrip("."), code
        self.advice = (advice or "Check that the server is running and that the URL is correct").rstrip(".")

    @property
    def retry(self) -> bool:  # type: ignore[override]
        """True if the same call can succeed later."""
        return not self.code

    def __str__(self) -> str:
        return f"Redis at {self.where} cannot be used: {self.reason}. {self.advice}."


class GeneratorClosed(SnowredisError):
    """The generator is closed or suspended; its worker id was released.

    Attributes:
        pool: the pool; for another kind of ids what its generators have instead, "" if they have nothing.
        kind: the kind of ids.
        suspended: True between suspend() and resume(), after which the same call succeeds.
    """

    def __init__(self, pool: str, kind: str = "snowflake", suspended: bool = False) -> None:
        super().__init__(pool, kind, suspended)
        self.pool, self.kind, self.suspended = pool, kind, suspended

    @property
    def retry(self) -> bool:  # type: ignore[override]
        """True if it is suspended."""
        return self.suspended

    def __str__(self) -> str:
        what = "generator" if self.kind == "snowflake" else f"{self.kind} generator"
        named = f" of {'pool ' if self.kind == 'snowflake' else ''}{self.pool!r}" if self.pool else ""
        if self.suspended:
            return f"the {what}{named} is suspended; no id was made. Call resume() first."
        new = "connect" if self.kind == "snowflake" else "generator"
        return f"the {what}{named} is closed. Create a new one with snowredis.{new}()."
