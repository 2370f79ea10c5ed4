"""State of a whole tag, from the replies of its servers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from snowredis.segment.client import TagView
from snowredis.segment.counts import SegmentCounts, SegmentStatus
from snowredis.segment.model import TagStore

# a rate is known after this time
LEAST_MS = 1_000


def status_of(
    views: Sequence[tuple[TagStore, TagView | None, TagView | None]],
    counts: SegmentCounts,
    *,
    made: int,
    left: int,
    step: int,
) -> SegmentStatus:
    """Return the status of a generator from what its servers' first and newest replies showed."""
    rates, nexts, remaining = [], [], []
    cyclic = views[0][0].config.cyclic
    for store, since, view in views:
        if since is None or view is None:
            continue
        if view.redis_ms - since.redis_ms >= LEAST_MS:
            rates.append((view.next - since.next) / (view.redis_ms - since.redis_ms) * 1000)
        nexts.append(store.config.number_at(view.next))
        remaining.append(store.config.size - view.next)
    rate = sum(rates) if rates else None
    known = sum(remaining) if len(remaining) == len(views) and not cyclic else None
    return SegmentStatus(
        tag=views[0][0].config.tag,
        made=made,
        left=left,
        step=step,
        tag_rate=rate,
        next_number=min(nexts, default=None),
        remaining=known,
        used_up_in_s=known / rate if known is not None and rate else None,
        counts=counts,
    )
