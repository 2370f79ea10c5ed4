"""How one id can stand in two tables: what a pool's history shows, and what it cannot show. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snowredis.lease.codes import FloorReason, LossReason
from snowredis.lease.model import parse_share
from snowredis.monitor.history import History
from snowredis.monitor.holders import span, time_text
from snowredis.monitor.snapshot import PoolInfo
from snowredis.monitor.whois import Whois


@dataclass(frozen=True, slots=True)
class Cause:
    """One way in which it can have happened.

    Attributes:
        shown: whether the history shows it; else it is only possible.
        text: what happened and where to look; may hold untrusted text.
    """

    shown: bool
    text: str


def causes_of_twins(whois: Whois, history: History, info: PoolInfo, alike: Sequence[str] = ()) -> list[Cause]:
    """What can have put one id into two places, what the history shows first.

    Args:
        alike: other pools of this Redis with the same layout and datacenter.
    """
    parts, past = whois.parts, history.past
    if parts is None:
        return [
            Cause(False, "it is no id of this pool: both were made elsewhere, or one was changed on its way")
        ]
    causes, tick_ms = [], parts.timestamp_ms
    server_count = parse_share(info.settings.get("share", ""))[1]
    for _, lost in history.chains.lost.get(parts.worker // server_count, []):
        before_ms = lost.until_ms - past.ttl_ms - past.lead_ms
        if lost.reason == LossReason.COPIED and before_ms <= tick_ms < lost.until_ms:
            causes.append(
                Cause(
                    True,
                    f"a process was cloned with its lease (a VM resumed twice from one snapshot?): a copy of "
                    f"{lost.host}:{lost.pid} was refused at {time_text(lost.at_ms)}, and until then both made the same "
                    "ids. Whoever takes snapshots calls suspend() before and resume() after",
                )
            )
    for loss in history.chains.losses:
        floor = loss.event
        if not loss.before_ms - past.lead_ms <= tick_ms < max(floor.from_ms, floor.at_ms):
            continue
        if floor.reason == FloorReason.ROLLED_BACK:
            causes.append(
                Cause(
                    True,
                    f"the memory of Redis was rolled back under it: noticed at {time_text(floor.at_ms)}, "
                    "with an alarm. "
                    "guard_rollbacks=True bounds it to one ttl",
                )
            )
        elif floor.reason == FloorReason.NO_POOL and not floor.from_ms:
            causes.append(
                Cause(
                    True,
                    f"a person said at {time_text(floor.at_ms)} that this pool is new, and ids had been "
                    "made in it just "
                    "before: they can be repeated by that",
                )
            )
        else:
            causes.append(
                Cause(
                    False,
                    f"Redis was restarted, wiped or failed over about {time_text(floor.at_ms)} ({floor.text}). The "
                    "floor covers that, unless two masters answered for longer than failover_slack",
                )
            )
    if tick_ms < info.created_ms - past.lead_ms:
        causes.append(
            Cause(
                False,
                f"it is {span(info.created_ms - tick_ms)} older than this pool: one of an earlier life of "
                "the pool, one "
                "of another",
            )
        )
    if alike:
        causes.append(
            Cause(
                False,
                f"two pools fill one table: {', '.join(alike[:5])} in this Redis "
                f"{'has' if len(alike) == 1 else 'have'} the same layout and datacenter, and make the same ids",
            )
        )
    named = whois.certainty == "certain" and not any(cause.shown for cause in causes)
    causes += [
        Cause(
            False,
            "it was made once and written twice: a copied row, a restored backup, an import, a message "
            "that was delivered "
            "again, an id that was taken before a fork or kept in a global variable"
            + (". The history shows nothing else, so look here first" if named else ""),
        ),
        Cause(False, "another Redis (staging, another site) has a pool with the same layout and datacenter"),
    ]
    return sorted(causes, key=lambda cause: not cause.shown)
