"""Why one id can be in two places: causes that a pool's history shows, and others that are possible. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from snowredis.core.layout import Parts
from snowredis.lease.codes import FloorReason, LossReason
from snowredis.monitor.history.ownership import History, Loss, duration_text, time_text
from snowredis.monitor.history.verdict import may_have_reserved
from snowredis.monitor.snapshot import PoolInfo


@dataclass(frozen=True, slots=True)
class DuplicateCause:
    """One reason why an id can be in two places.

    Attributes:
        shown: true if the history shows it, false if it is only possible.
        text: what happened and where to look; may contain untrusted text.
    """

    shown: bool
    text: str


def duplicate_causes(
    history: History, info: PoolInfo, parts: Parts | None, certainty: str, alike: Sequence[str] = ()
) -> list[DuplicateCause]:
    """Return why one id can be in two places, causes that the history shows first.

    Args:
        parts: of the id; None if it is not an id of this pool.
        certainty: how certain it is which process made the id; see Whois.
        alike: other pools of this Redis that make the same ids.
    """
    if parts is None:
        text = "it is not an id of this pool: both were made elsewhere, or one was changed later"
        return [DuplicateCause(False, text)]
    causes = [*_causes_in_history(history, parts.worker // info.share[1], parts.timestamp_ms)]
    causes.sort(key=lambda cause: not cause.shown)
    is_explained = certainty != "certain" or any(cause.shown for cause in causes)
    texts = _possible_causes(history, info, parts, alike, is_explained)
    return causes + [DuplicateCause(False, text) for text in texts]


def _causes_in_history(history: History, worker: int, tick_ms: int) -> Iterator[DuplicateCause]:
    past = history.past
    for refusal in history.refusals.get(worker, []):
        event = refusal.event
        if event.reason == LossReason.COPIED and may_have_reserved(refusal, past, tick_ms):
            yield DuplicateCause(
                True,
                f"a process was cloned with its lease (a VM resumed twice from one snapshot?): a copy of "
                f"{event.host}:{event.pid} was refused at {time_text(event.at_ms)}, and until then both made "
                "the same ids. Call suspend() before a snapshot and resume() after it",
            )
    for loss in history.losses:
        if loss.affects(tick_ms, past.lead_ms):
            yield _cause_of_loss(loss)


def _cause_of_loss(loss: Loss) -> DuplicateCause:
    floor, time = loss.event, time_text(loss.event.at_ms)
    if loss.rolled_back:
        text = f"the memory of Redis was rolled back, which was detected at {time} and raised an alarm"
        return DuplicateCause(
            True, f"{text}. guard_rollbacks=True limits the repeated ids to those of one ttl"
        )
    if floor.reason == FloorReason.NO_POOL and not floor.from_ms:
        text = f"the pool was created as a new one at {time}, although ids had just been made in it"
        return DuplicateCause(True, f"{text}: those can have been repeated")
    text = f"Redis was restarted, wiped or failed over about {time} ({floor.text})"
    return DuplicateCause(
        False, f"{text}. The floor covers that, unless two masters replied for longer than failover_slack"
    )


def _possible_causes(
    history: History, info: PoolInfo, parts: Parts, alike: Sequence[str], is_explained: bool
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
    look_here = "" if is_explained else ". The history shows no other cause, so look here first"
    yield (
        "it was made once and written twice: a copied row, a restored backup, an import, a message that was delivered "
        f"again, an id that was taken before a fork or kept in a global variable{look_here}"
    )
    yield "another Redis (staging, another site) has a pool with the same layout and datacenter"
