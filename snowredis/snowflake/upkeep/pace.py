"""When a generator asks Redis: now, at a time, or not; and which error it raises instead of asking.

Pure: readings of the monotonic clock (seconds) and errors go in. Nothing here waits, asks or logs. A program that gets
an error calls again at once, in all of its threads, and a fleet does so at the same time. So an error is raised again
for a while without asking, pauses before a full pool grow, and moments are random where processes would meet.
"""

from __future__ import annotations

import random
from enum import StrEnum
from typing import Any, NamedTuple

from snowredis.errors import PoolExhausted, SnowredisError, StoreUnavailable

# for how long an error is raised again; that of a pool with other settings, which a person has to change
AGAIN_S, SETTINGS_AGAIN_S = 0.5, 1.0
# how soon a lease is renewed first. A claim that is never renewed counts as one whose reply was lost, and for a lease
# that was taken over, Redis still names the process that has ended
FIRST_BEAT_S = 0.5
# a heartbeat comes after a random share of its time, so that not all workers send theirs together; one that waits for a
# full pool comes after a random time, so that a fleet does not load Redis
BEAT_SHARES, FULL_BEAT_S = (0.85, 1.0), (1.0, 3.0)
# after a renewal or claim of this time ago at most, another renewal would change nothing
JUST_RENEWED_S = 0.2
# pause of a call before it asks a full pool again; it doubles, so that a thousand who wait do not load Redis. The time
# until the next lease ends makes it FULL_PAUSE_S at most
FIRST_PAUSE_S, FULL_PAUSE_S, LAST_PAUSE_S = 0.02, 0.5, 2.0
# longest pause before a Redis that did not reply in time is asked again, and before a pool whose floor has not passed
TIMED_OUT_PAUSE_S, FLOOR_PAUSE_S = 1.0, 1.0
# a shorter wait for a floor is not worth a line
MIN_FLOOR_S = 1.0


class Asked(StrEnum):
    """Purpose for which Redis is asked.

    CLAIM is a worker id for a call; SETTINGS, whether the pool has these settings; RENEWAL, more time for the lease;
    REPLACEMENT, a worker id that fits a clock that went back; BEAT, more time or a worker id, for a heartbeat.
    """

    CLAIM = "claim"
    SETTINGS = "settings"
    RENEWAL = "renewal"
    REPLACEMENT = "replacement"
    BEAT = "beat"


class Failure(NamedTuple):
    """An error without its frames, which refer to the generator, and until when it is raised again."""

    kind: type[SnowredisError]
    args: tuple[Any, ...]
    until_s: float

    @property
    def error(self) -> SnowredisError:
        """A copy of the error."""
        return self.kind(*self.args)


class CallPause:
    """The pauses of one call that waits for a worker id.

    Attributes:
        began_s: when the call began.
        due_s: when it asks again.
        next_s: its next pause before a full pool.
    """

    __slots__ = ("began_s", "due_s", "next_s")

    def __init__(self, now_s: float) -> None:
        self.began_s = self.due_s = now_s
        self.next_s = FIRST_PAUSE_S


class Pace:
    """Requests that one generator made in vain, and when it asks Redis again.

    Args:
        heartbeat_s: the time between two renewals.
        timeout_s: how long calls may wait for a worker id, of a full pool or a slow Redis. Together: otherwise each
            thread, and each request that follows, would wait for all of it, one after another.
    """

    def __init__(self, heartbeat_s: float, timeout_s: float, rng: random.Random) -> None:
        self._heartbeat_s, self.timeout_s, self._random = heartbeat_s, timeout_s, rng
        self.reset()

    def reset(self) -> None:
        """Forget everything, in a forked child."""
        self._failures: dict[Asked, Failure] = {}
        # the wait that counts for the timeout: when it began, and when it failed last
        self._began_s, self._failed_s = 0.0, -1e9
        # the end of the floor that was logged
        self._floor_logged_s = -1e9

    # --- failures ----------------------------------------------------------------------------------

    def failed(self, asked: Asked, error: Exception, now_s: float) -> bool:
        """Note that Redis was asked in vain; return whether the attempt before succeeded."""
        is_news = asked not in self._failures
        again_s = SETTINGS_AGAIN_S if asked is Asked.SETTINGS else AGAIN_S
        kind, args = (type(error), error.args) if isinstance(error, SnowredisError) else (SnowredisError, (str(error),))
        self._failures[asked] = Failure(kind, args, now_s + again_s)
        return is_news

    def succeeded(self, asked: Asked) -> bool:
        """Note that Redis gave what it was asked for; return whether the attempt before failed."""
        return self._failures.pop(asked, None) is not None

    def failure(self, asked: Asked) -> SnowredisError | None:
        """Return the error of the last attempt, however long ago; None if that succeeded."""
        failure = self._failures.get(asked)
        return failure and failure.error

    def refusal(self, asked: Asked, now_s: float) -> SnowredisError | None:
        """Return what to raise instead of asking; None: ask."""
        failure = self._failures.get(asked)
        return failure.error if failure and now_s < failure.until_s else None

    # --- the heartbeat -----------------------------------------------------------------------------

    def beat_in_s(self, settling_ms: float = 0, *, is_first: bool = False) -> float:
        """Return the seconds until the next beat: at the latest when a floor passes, in *settling_ms*."""
        usual_s = self._heartbeat_s * self._random.uniform(*BEAT_SHARES)
        failure = self._failures.get(Asked.BEAT)
        if failure is not None:
            return min(usual_s, self._random.uniform(*FULL_BEAT_S) if failure.kind is PoolExhausted else AGAIN_S)
        return min(usual_s, FIRST_BEAT_S if is_first else settling_ms / 1000 or usual_s)

    def just_renewed(self, ago_s: float) -> bool:
        """Return whether the last renewal or claim is so recent that another renewal would change nothing."""
        return ago_s < min(JUST_RENEWED_S, self._heartbeat_s / 2)

    # --- calls that wait for a worker id -----------------------------------------------------------

    def _is_first(self, now_s: float) -> bool:
        """Return whether a failure begins a wait: after a longer silence, there may have been worker ids meanwhile."""
        return now_s - self._failed_s > self.timeout_s

    def gives_up(self, call: CallPause, now_s: float) -> bool:
        """Return whether *call* gives up if the pool is full now."""
        return now_s >= (call.began_s if self._is_first(now_s) else self._began_s) + self.timeout_s

    def begins_wait(self, call: CallPause, error: SnowredisError, now_s: float) -> bool:
        """Note that *call* failed; return whether a wait begins that is worth a line."""
        if not _may_pass(error):
            return False
        is_first = self._is_first(now_s)
        if is_first:
            self._began_s = call.began_s
        self._failed_s = now_s
        return is_first and self.timeout_s > 0

    def waits(self, call: CallPause, error: SnowredisError, now_s: float, *, gave_up: bool) -> bool:
        """Return whether *call*, which failed just now, asks again: at its ``due_s``."""
        left_s = self._began_s + self.timeout_s - now_s if _may_pass(error) else 0.0
        if left_s <= 0 and (gave_up or not isinstance(error, PoolExhausted)):
            return False
        call.due_s = now_s + min(self._pause_s(call, error), left_s)
        return True

    def _pause_s(self, call: CallPause, error: SnowredisError) -> float:
        if not isinstance(error, PoolExhausted):
            # processes that timed out together do not ask together again
            return self._random.uniform(0, TIMED_OUT_PAUSE_S)
        pause_s = max(call.next_s, min(FULL_PAUSE_S, error.next_expiry_ms / 1000))
        call.next_s = min(LAST_PAUSE_S, 2 * call.next_s)
        return pause_s

    def replied(self, call: CallPause, settling_ms: float, now_s: float) -> None:
        """Note that *call* failed not: it has a worker id, or asks again before a floor passes, in *settling_ms*."""
        self._failed_s = -1e9
        # the floor may be raised once more meanwhile, so it looks now and then
        call.due_s = now_s + min(settling_ms / 1000, FLOOR_PAUSE_S, self._heartbeat_s)

    def says_floor(self, left_s: float, now_s: float) -> bool:
        """Return whether a floor that passes in *left_s* is worth a line: once for each wait."""
        if left_s <= MIN_FLOOR_S or now_s <= self._floor_logged_s:
            return False
        self._floor_logged_s = now_s + left_s + 1
        return True


def _may_pass(error: SnowredisError) -> bool:
    """Return whether what *error* says may pass by itself within a call: the pool is full, or Redis was slow."""
    return error.timed_out if isinstance(error, StoreUnavailable) else isinstance(error, PoolExhausted)


def is_for_long(error: SnowredisError | None) -> bool:
    """Return whether what *error* says does not pass by itself within the start of a process."""
    return error is not None and not isinstance(error, PoolExhausted | StoreUnavailable)
