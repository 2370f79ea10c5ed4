"""Every error that snowredis raises, in one tree.

SnowredisError
├── ConfigError (ValueError)        a setting that cannot work
│   └── PoolNotFound                no such pool in this Redis
├── LayoutError (ValueError)        bits that do not fit, a field or a time out of range
├── InvalidId (ValueError)          a number or text that is no id
├── LayoutMismatch                  the pool was made with another layout or other constants
├── PoolExhausted                   every worker id is leased
├── LeaseExpired                    the reserved time ran out and could not be extended
│   └── LeaseLost                   the lease went to somebody else and no other was to be had
├── ClockMovedBack                  the wall clock shows a time that was already used
├── ClockSkewed                     the wall clock is too far from the clock of Redis
├── StoreUnavailable                Redis does not answer
│   ├── StoreReadOnly               … it is a replica
│   ├── StoreRefused                … it refuses these credentials or rights
│   ├── ServerUnidentified          … a restart or failover of it would go unnoticed
│   └── PoolBroken                  … the pool holds what snowredis never wrote
├── GeneratorClosed                 next_id() after close()
└── GeneratorSuspended              next_id() between suspend() and resume()

Each keeps its values as attributes, says what happened, what was refused and what
to do, and survives pickling (its constructor takes exactly its ``args``).
"""

from __future__ import annotations

__all__ = [
    "ClockMovedBack",
    "ClockSkewed",
    "ConfigError",
    "GeneratorClosed",
    "GeneratorSuspended",
    "InvalidId",
    "LayoutError",
    "LayoutMismatch",
    "LeaseExpired",
    "LeaseLost",
    "PoolBroken",
    "PoolExhausted",
    "PoolNotFound",
    "ServerUnidentified",
    "SnowredisError",
    "StoreReadOnly",
    "StoreRefused",
    "StoreUnavailable",
]


class SnowredisError(Exception):
    """Base of all errors of this library."""


class ConfigError(SnowredisError, ValueError):
    """A setting, or a combination of settings, that cannot work."""


class PoolNotFound(ConfigError):
    """There is no pool of that name in this Redis."""

    def __init__(self, pool: str) -> None:
        super().__init__(pool)
        self.pool = pool

    def __str__(self) -> str:
        return (
            f"there is no pool {self.pool!r} in this Redis. Check the name and the database number, "
            f"or make it with: snowredis pool create {self.pool}"
        )


class LayoutError(SnowredisError, ValueError):
    """Bits that do not fit together, or a field or a time that does not fit its bits."""


class InvalidId(SnowredisError, ValueError):
    """A number or a text that cannot be an id."""


class LayoutMismatch(SnowredisError):
    """The pool was made with another layout or with other constants; nothing was claimed.

    Two layouts in one pool would cut the same 63 bits differently and so repeat ids.
    """

    def __init__(self, pool: str, stored: str, given: str) -> None:
        super().__init__(pool, stored, given)
        self.pool, self.stored, self.given = pool, stored, given

    def __str__(self) -> str:
        return (
            f"pool {self.pool!r} was made with ({self.stored}), this process was given "
            f"({self.given}); nothing was claimed. Pass the pool's own settings, or use another pool name."
        )


class PoolExhausted(SnowredisError):
    """Every worker id of the pool is leased."""

    def __init__(self, pool: str, capacity: int, next_expiry_ms: int) -> None:
        super().__init__(pool, capacity, next_expiry_ms)
        self.pool, self.capacity, self.next_expiry_ms = pool, capacity, next_expiry_ms

    def __str__(self) -> str:
        return (
            f"all {self.capacity} worker ids of pool {self.pool!r} are leased; the next lease ends in "
            f"{self.next_expiry_ms} ms. Stop idle processes, or give the layout more worker bits."
        )


class LeaseExpired(SnowredisError):
    """The reserved time ran out and could not be extended; no id was made."""

    def __init__(self, pool: str, worker: int, reason: str) -> None:
        super().__init__(pool, worker, reason)
        self.pool, self.worker, self.reason = pool, worker, reason

    def __str__(self) -> str:
        return (
            f"the reserved time of worker id {self.worker} of pool {self.pool!r} ran out and was not "
            f"extended: {self.reason}. No id was made; next_id() works again as soon as Redis answers."
        )


class LeaseLost(LeaseExpired):
    """The lease is somebody else's now and no other worker id was to be had; no id was made."""

    def __str__(self) -> str:
        return (
            f"worker id {self.worker} of pool {self.pool!r} is not this process's any more, and no other "
            f"could be claimed: {self.reason}. No id was made; the next call tries again."
        )


class ClockMovedBack(SnowredisError):
    """The wall clock shows a time that was already used; no id was made."""

    def __init__(self, behind_ms: int, policy: str) -> None:
        super().__init__(behind_ms, policy)
        self.behind_ms, self.policy = behind_ms, policy

    def __str__(self) -> str:
        return (
            f"the clock of this host went back: it is {self.behind_ms} ms behind ids that were already "
            f"made, more than clock_policy={self.policy!r} makes up for. No id was made. Slew the clock "
            f"instead of stepping it, raise the tolerance, or wait {self.behind_ms} ms."
        )


class ClockSkewed(SnowredisError):
    """The wall clock of this host is too far from the clock of Redis; no id was made."""

    def __init__(self, offset_ms: int, limit_ms: int) -> None:
        super().__init__(offset_ms, limit_ms)
        self.offset_ms, self.limit_ms = offset_ms, limit_ms

    def __str__(self) -> str:
        way = "ahead of" if self.offset_ms > 0 else "behind"
        return (
            f"the clock of this host is {abs(self.offset_ms)} ms {way} the clock of Redis, and "
            f"{self.limit_ms} ms is the most that this pool's reservations allow. No id was made. "
            f"Set the clock (NTP) on the host that is wrong."
        )


class StoreUnavailable(SnowredisError):
    """Redis does not answer, or not in a way that can be used."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where, self.reason = where, reason.rstrip(".")

    def __str__(self) -> str:
        return f"Redis at {self.where} cannot be used: {self.reason}. Check that it runs and that the URL is right."


class StoreReadOnly(StoreUnavailable):
    """This Redis is a replica, or refuses writes."""

    def __str__(self) -> str:
        return (
            f"Redis at {self.where} takes no writes: {self.reason}. Connect to the master, not to a replica."
        )


class StoreRefused(StoreUnavailable):
    """Redis refuses this user, this password or one of the commands that are needed."""

    def __str__(self) -> str:
        return (
            f"Redis at {self.where} refused access: {self.reason}. Check user and password in the URL, "
            f"and that the user may run EVALSHA, EVAL, SCRIPT LOAD and INFO on the keys snowredis:*."
        )


class ServerUnidentified(StoreUnavailable):
    """This Redis does not show which server it is, so its pools cannot be kept with durability="detect".

    ``code`` is "info-refused", "no-run-id" or "no-replication-id".
    """

    def __init__(self, where: str, code: str) -> None:
        reasons = {
            "info-refused": "it refuses INFO inside scripts",
            "no-run-id": "its INFO shows no run_id",
            "no-replication-id": "its INFO shows no master_replid",
        }
        super().__init__(where, reasons.get(code, code))
        self.args = (where, code)
        self.code = code

    def __str__(self) -> str:
        return (
            f"Redis at {self.where} cannot be told from another server: {self.reason}. A restart or failover that "
            "loses data would go unnoticed and repeat ids, so nothing was claimed. Let the user of the URL run "
            'INFO, if that is what is missing; else set durability="assured" if this Redis never loses an '
            'acknowledged write, or durability="none" if it may: every new worker then waits.'
        )


class PoolBroken(StoreUnavailable):
    """A field of the pool holds what snowredis never wrote, as after an edit by hand."""

    def __init__(self, where: str, pool: str, field: str, value: str) -> None:
        super().__init__(where, f"field {field!a} of the hash snowredis:{{{pool}}} holds {value[:60]!a}")
        self.args = (where, pool, field, value)
        self.pool, self.field, self.value = pool, field, value

    def __str__(self) -> str:
        return (
            f"pool {self.pool!r} in Redis at {self.where} is broken: {self.reason}, which snowredis never writes. "
            f"Nothing was changed. Remove it with: snowredis pool delete {self.pool}; then new workers wait until "
            "every reservation that it may have granted has ended."
        )


class GeneratorClosed(SnowredisError):
    """The generator was closed; its worker id was given back."""

    def __init__(self, pool: str) -> None:
        super().__init__(pool)
        self.pool = pool

    def __str__(self) -> str:
        return f"the generator of pool {self.pool!r} is closed. Make a new one with snowredis.connect()."


class GeneratorSuspended(SnowredisError):
    """The generator was suspended and not resumed yet; it holds no worker id."""

    def __init__(self, pool: str) -> None:
        super().__init__(pool)
        self.pool = pool

    def __str__(self) -> str:
        return f"the generator of pool {self.pool!r} is suspended; no id was made. Call resume() first."
