"""Change the layout of a living pool: prove that no id is repeated, then plan the change. For people."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from snowredis.core.collisions import layout_ids, prove
from snowredis.core.layout import Layout
from snowredis.core.values import utc_text
from snowredis.errors import ConfigError, PoolNotFound
from snowredis.monitor.snapshot import PoolInfo
from snowredis.snowflake.administration import Changing, Early, Late, PoolAdministration
from snowredis.snowflake.open import pool_config
from snowredis.snowflake.protocol import PoolConfig
from snowredis.snowflake.replies import Absent


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """A change of layout that was planned.

    Attributes:
        at_ms: from then on the old layout is refused, on the Redis clock.
        floor_ms: ids of the old layout have earlier times; new workers wait for it.
        sorted: whether every new id is greater than every old one.
    """

    at_ms: int
    floor_ms: int
    sorted: bool


def config_of(info: PoolInfo) -> PoolConfig:
    """Return the constants of the pool as it is stored."""
    registration = info.settings.get("registry", "").partition("/")[2]
    config = pool_config({"pool": info.name} | info.options)
    return replace(config, registration=registration)


def check_change(info: PoolInfo, layout: Layout, at_ms: int) -> bool:
    """Prove that ids of *layout* after *at_ms* equal none of all layouts that the pool had, or raise.

    Returns:
        whether all new ids are greater than all old ones.

    Raises:
        ConfigError: the change is refused, with the reason.
    """
    config = config_of(info)
    if layout == info.layout:
        raise ConfigError(f"pool {info.name!r} has this layout already. Nothing was changed.")
    place = (info.layout.datacenter_bits, info.layout.datacenter_shift)
    if config.registry and place != (layout.datacenter_bits, layout.datacenter_shift):
        raise ConfigError(
            f"pool {info.name!r} has the number {config.datacenter} of registry {config.registry!r}, and the new "
            "layout has its datacenter bits in another place, where other pools may have other bits. Nothing "
            "was changed. Use a layout with the same datacenter bits in the same place."
        )
    numbers = (config.datacenter, config.datacenter)
    # refuses a datacenter that does not fit
    floor_ms = at_ms + config.with_layout(layout).floor_ms
    in_order = True
    # the present layout is the last one, or the last but one if a change is planned, which this one replaces
    past = info.layouts[: -2 if info.changes_ms else -1]
    spans = [(period.layout, period.from_ms, period.until_ms or floor_ms) for period in past]
    for old, from_ms, until_ms in [*spans, (info.layout, spans[-1][2] if spans else 0, floor_ms)]:
        try:
            ids = layout_ids(old, from_ms=max(from_ms, old.epoch_ms), until_ms=until_ms - 1, datacenters=numbers)
        except ConfigError:
            # no id was made in that time
            continue
        proof = prove(ids, layout, start_ms=floor_ms, datacenters=numbers)
        if proof.common is not None:
            raise ConfigError(_refusal(info, old, layout, proof.common.size, proof.common.lowest))
        in_order = in_order and proof.sorted
    return in_order


def _refusal(info: PoolInfo, old: Layout, new: Layout, size: int, example: int) -> str:
    return (
        f"ids of the layout {old}, which pool {info.name!r} has or had, and of the new layout {new} can be equal: "
        f"{size:,} of them, for example {example}. Nothing was changed. Choose a layout whose ids are greater: the "
        "timestamp bits in the same place or further left, and an epoch that is not later; see `snowredis migrate "
        "proof`."
    )


def change_layout(
    client: Any, info: PoolInfo, layout: Layout, *, delay_ms: int, caller_ms: int, force: bool = False
) -> LayoutChange:
    """Plan that the pool has *layout* after *delay_ms*, if no id can be repeated.

    Args:
        client: of the server; a client of open_client().
        info: of the pool, read just now.
        force: also if processes that do not reach Redis may use outage lanes beyond the change.

    Raises:
        ConfigError: it is refused, with the reason; nothing was changed.
        PoolNotFound: it was deleted meanwhile; LayoutMismatch, StoreUnavailable.
    """
    at_ms = info.now_ms + delay_ms
    in_order = check_change(info, layout, at_ms)
    reply = PoolAdministration(client, config_of(info)).change_layout(layout, at_ms, caller_ms, force=force)
    if isinstance(reply, Absent):
        raise PoolNotFound(info.name)
    if isinstance(reply, Late):
        raise ConfigError(
            f"the moment has passed before the change was planned, or is over a year away. Nothing was changed; "
            f"allow more than {delay_ms} ms."
        )
    if isinstance(reply, Early):
        raise ConfigError(
            f"workers of pool {info.name!r} have outage lanes beyond that moment, in which they may make ids of the "
            "old layout as long as they do not reach Redis. Nothing was changed. Plan it for "
            f"{utc_text(reply.earliest_ms)} or later: in {math.ceil((reply.earliest_ms - info.now_ms) / 1000)} s. "
            "With --force it is planned in any case; then a process that does not reach Redis may repeat ids."
        )
    if not isinstance(reply, Changing):
        raise ConfigError(f"pool {info.name!r} kept its layout")
    return LayoutChange(at_ms, reply.new_floor_ms, in_order)


def undo_change(client: Any, info: PoolInfo, *, caller_ms: int) -> None:
    """Undo a planned change that has not happened yet. Raises LayoutMismatch, StoreUnavailable."""
    PoolAdministration(client, config_of(info)).change_layout(info.layout, info.now_ms + 1, caller_ms)
