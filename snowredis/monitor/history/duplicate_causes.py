"""Causes of one id in two places: what a pool's history shows, and what it cannot show. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from snowredis.core.layout import Parts
from snowredis.lease.codes import FloorReason, LossReason
from snowredis.monitor.history.ownership import History, Loss, duration_text, time_text
from snowredis.monitor.history.verdict import reaches
from snowredis.monitor.snapshot import PoolInfo


@dataclass(frozen=True, slots=True)
class DuplicateCause:
    """One way in which an id can have come into two places.

    Attributes:
        shown: whether the history shows it; else it is only possible.
        text: what happened and where to look; may hold untrusted text.
    """

    shown: bool
    text: str


def duplicate_causes(
    history: History, info: PoolInfo, parts: Parts | None, certainty: str, alike: Sequence[str] = ()
) -> list[DuplicateCause]:
    """Return what can have put one id into two places, what the history shows first.

    Args:
        parts: of the id; None if it is no id of this pool.
        certainty: of who made it; see Whois.
        alike: other pools of this Redis that make the same ids.
    """
    if parts is None:
        text = "it is no id of this pool: both were made elsewhere, or one was changed on its way"
        return [DuplicateCause(False, text)]
    causes = [*_causes_in_history(history, parts.worker // info.share[1], parts.timestamp_ms)]
    causes.sort(key=lambda cause: not cause.shown)
    shown = any(cause.shown for cause in causes)
    return causes + [
        DuplicateCause(False, text)
        for text in _possible(history, info, parts, alike, look_here=certainty == "certain" and not shown)
    ]


def _causes_in_history(history: History, worker: int, tick_ms: int) -> Iterator[DuplicateCause]:
    for refusal in history.refusals.get(worker, []):
        copy = refusal.event
        if copy.reason == LossReason.COPIED and reaches(refusal, history.past, tick_ms):
            yield DuplicateCause(
                True,
                f"a process was cloned with its lease (a VM resumed twice from one snapshot?): a copy of "
                f"{copy.host}:{copy.pid} was refused at {time_text(copy.at_ms)}, and until then both made "
                "the same ids. Call suspend() before a snapshot and resume() after it",
            )
    lead_ms = history.past.lead_ms
    for loss in history.losses:
        if loss.known_ms - lead_ms <= tick_ms < max(loss.event.from_ms, loss.event.at_ms):
            yield _cause_of_loss(loss)


def _cause_of_loss(loss: Loss) -> DuplicateCause:
    floor, time = loss.event, time_text(loss.event.at_ms)
    if loss.rolled_back:
        text = f"the memory of Redis was rolled back: noticed at {time}, with an alarm"
        return DuplicateCause(True, f"{text}. guard_rollbacks=True limits that to one ttl")
    if floor.reason == FloorReason.NO_POOL and not floor.from_ms:
        text = f"the pool was created at {time} as a new one, and ids had been made in it just before"
        return DuplicateCause(True, f"{text}: they can be repeated by that")
    text = f"Redis was restarted, wiped or failed over about {time} ({floor.text})"
    return DuplicateCause(
        False, f"{text}. The floor covers that, unless two masters replied for longer than failover_slack"
    )


def _possible(
    history: History, info: PoolInfo, parts: Parts, alike: Sequence[str], *, look_here: bool
) -> Iterator[str]:
    older_ms = info.created_ms - parts.timestamp_ms
    if older_ms > history.past.lead_ms:
        age = duration_text(older_ms)
        yield f"it is {age} older than this pool: one is of an earlier pool of this name, one of another pool"
    if alike:
        yield (
            f"two pools fill one table: {', '.join(alike[:5])} in this Redis "
            f"{'has' if len(alike) == 1 else 'have'} the same layout and datacenter, and make the same ids"
        )
    yield (
        "it was made once and written twice: a copied row, a restored backup, an import, a message that was delivered "
        "again, an id that was taken before a fork or kept in a global variable"
        + (". The history shows nothing else, so look here first" if look_here else "")
    )
    yield "another Redis (staging, another site) has a pool with the same layout and datacenter"
