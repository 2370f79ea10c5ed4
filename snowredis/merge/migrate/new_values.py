"""Decide what new values the old ids get: their own, or all moved by one number to below the new ids. Pure."""

from __future__ import annotations

from typing import Literal

from snowredis.core.collisions import IdSet, Proof, counter_ids, layout_ids, prove
from snowredis.core.layout import Layout, utc_text
from snowredis.errors import MigrationError

__all__ = ["CLOCK_ERROR_MS", "Ids", "check_switch", "choose_offset", "old_ids"]

Ids = Literal["auto", "keep", "shift"]

# how far the clocks of hosts may be off, at the moment of the switch
CLOCK_ERROR_MS = 10_000
# how long old ids of a layout may still be made after `start`
_OLD_LAYOUT_MS = 90 * 86_400_000
# how many ids a counter may still count, where its column does not end before
_MORE_IDS = 10**9


def old_ids(first: int, last: int, end: int, layout: Layout | None, now_ms: int) -> IdSet:
    """Return all ids that are in the column, with those that it may still get until the switch and the finish.

    Args:
        first, last: the column's own minimum and maximum.
        end: the greatest number that the column can hold.
        layout: of the old ids; None: they were counted.

    Raises:
        MigrationError: ids that the layout cannot have made.
    """
    if layout is None:
        return counter_ids(min(end, max(2 * last, last + _MORE_IDS)), first)
    until_ms = now_ms + _OLD_LAYOUT_MS
    made_ms = layout.decode(last).timestamp_ms
    if made_ms > now_ms + CLOCK_ERROR_MS:
        raise MigrationError(
            f"by the layout {layout}, the greatest id {last} was made at {utc_text(made_ms)}, in the future. Nothing "
            "was changed; check the layout of the old ids."
        )
    return layout_ids(layout, from_ms=layout.decode(first).timestamp_ms, until_ms=until_ms)


def choose_offset(old: IdSet, layout: Layout, start_ms: int, ids: Ids) -> tuple[int, Proof]:
    """Return what to add to each old id, and the proof that old and new ids are then never equal.

    Raises:
        MigrationError: ids cannot be kept, since they could equal new ones; or there are more old ids than numbers
            below the new ones.
    """
    proof = prove(old, layout, start_ms=start_ms, clock_error_ms=CLOCK_ERROR_MS)
    if proof.distinct and ids != "shift":
        return 0, proof
    if ids == "keep":
        raise MigrationError(
            "old ids cannot be kept: new ids could equal them (snowredis migrate proof shows which). Nothing was "
            "changed; use --ids shift, or another layout."
        )
    offset = proof.new.lowest - 1 - old.highest
    if old.lowest + offset < 0:
        raise MigrationError(
            f"the old ids, {old.lowest} to {old.highest}, cannot be moved below the new ones, which begin at "
            f"{proof.new.lowest}. Nothing was changed; use a layout with an earlier epoch or more timestamp bits: "
            "snowredis migrate proof shows which."
        )
    moved = counter_ids(old.highest + offset, old.lowest + offset)
    return offset, prove(moved, layout, start_ms=start_ms, clock_error_ms=CLOCK_ERROR_MS)


def check_switch(last: int, last_old: int, offset: int) -> None:
    """Refuse to switch when the column has ids that the plan did not expect.

    Raises:
        MigrationError: the greatest id is above *last_old*.
    """
    if last > last_old:
        raise MigrationError(
            f"the greatest id is {last}, and the plan was made for old ids up to {last_old}, so that new ones cannot "
            f"equal them{' after both are moved' if offset else ''}. Nothing was switched; roll back, and start again."
        )
