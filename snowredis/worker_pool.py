"""WorkerPool: a pool that people look at, create, and delete; and change_layout(), which gives it another layout.

How it is seen stands in monitor/pool_monitor.py, and what an end does to it in snowflake/administration.py.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

from snowredis.core.layout import Layout
from snowredis.core.values import utc_text
from snowredis.errors import ConfigError, LayoutMismatch, PoolBroken, PoolNotFound, SnowredisError, StoreUnavailable
from snowredis.merge.collisions import layout_ids, prove
from snowredis.monitor.lease import count
from snowredis.monitor.pool import PoolInfo
from snowredis.monitor.pool_monitor import PoolMonitor
from snowredis.process.clock import now_ms
from snowredis.servers.runner import translated
from snowredis.snowflake.administration import Early, Ends, PoolAdministration
from snowredis.snowflake.open import pool_config
from snowredis.snowflake.protocol import PoolConfig, pool_keys
from snowredis.snowflake.replies import Absent, Created

# a longer time until a change of the layout is a mistake
MAX_DELAY_MS = 366 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Deletion:
    """Result of WorkerPool.delete().

    Attributes:
        alive: how many workers had a lease.
        end_ms: the end of the pool, on the Redis clock. A pool of this name that is created later starts there.
        wait_ms: how long it is until then.
        over: whether a pool of this name can be created at once, with any settings; else from *end_ms* on.
        dropped: whether the settings of the pool could not be read, so that its keys were removed, as if Redis had
            lost them: new workers wait for the floor.
    """

    alive: int
    end_ms: int
    wait_ms: int
    over: bool
    dropped: bool = False


class WorkerPool(PoolMonitor):
    """A pool in a Redis, or in memory: what is seen of it, and what changes it.

    Args:
        url: as connect() takes it: a URL, a redis-py client, or a pool of snowredis.testing, of which whois() knows
            nothing.
        name: the pool's name.

    Every method blocks for a few round trips and raises StoreUnavailable and its subclasses.
    """

    def create(self, config: PoolConfig) -> bool:
        """Create the pool without a floor, so that its first worker does not wait, and outage lanes are open at once.

        For a person who knows that the pool is new: if a process of a pool of this name could make ids within the
        last outage_reserve, they can be repeated.

        Returns:
            False if it already exists with the same settings; nothing is changed then.

        Raises:
            LayoutMismatch: it exists with other settings.
        """
        store = PoolAdministration(self._server, config) if self._server else self._memory.memory_store(config)
        reply = store.create(now_ms())
        return isinstance(reply, Created)

    def delete(self, *, force: bool = False) -> Deletion:
        """Give the pool the earliest end. A pool of this name that is created later starts there, with any settings.

        The end is behind everything that was granted: at once if all workers ended in an orderly way, else when their
        reservations have ended. Living generators make ids until then.

        Raises:
            PoolNotFound; ConfigError: workers are alive, or the settings of the pool cannot be read, and *force* is
                not set. In the second case, *force* removes the keys of the pool.
            StoreUnavailable: also if a replica does not have the end. Repeat it then.
        """
        try:
            info = self.info()
        except (PoolNotFound, LayoutMismatch, StoreUnavailable) as error:
            with translated(self.where):
                # damaged, or only parts remain
                key, *_ = pool_keys(self.name)
                if not self.client.exists(key) or (self.client.hexists(key, "over") and not force):
                    raise
            return self._drop(str(error), force=force)
        if info.used and not force:
            raise ConfigError(
                f"pool {self.name!r} has {count(info.used, 'living worker')}; nothing was deleted. Stop them first, or "
                "delete it nevertheless with force=True (--force)."
            )
        try:
            reply = PoolAdministration(self.server, config_of(info)).end(now_ms())
        except (ConfigError, LayoutMismatch, PoolBroken) as error:
            return self._drop(str(error), force=force)
        if not isinstance(reply, Ends):
            raise PoolNotFound(self.name)
        if reply.next_signature:
            raise ConfigError(
                f"pool {self.name!r} already ends at {utc_text(reply.end_ms)}, and a pool with another layout starts "
                "there. An end cannot be changed; nothing was deleted."
            )
        return Deletion(info.used, reply.end_ms, max(0, reply.end_ms - reply.redis_ms), reply.over)

    def _drop(self, reason: str, *, force: bool) -> Deletion:
        """Remove the keys of a pool that cannot be given an end, as if Redis had lost it."""
        if not force:
            raise ConfigError(
                f"{reason.rstrip('.')}. So it cannot be said when its reservations end, and nothing was deleted. With "
                "force=True (--force) its keys are removed, as if Redis had lost them: new workers wait, and outage "
                "lanes are closed for a day."
            )
        alive = 0
        with contextlib.suppress(SnowredisError):
            alive = len(self.workers())
        with translated(self.where):
            self.client.delete(*pool_keys(self.name))
        return Deletion(alive, 0, 0, over=True, dropped=True)


# --- change of the layout --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """A change of layout that was planned.

    Attributes:
        at_ms: the end of the old layout, on the Redis clock: its ids have earlier times, those of the new one this or
            later ones.
        sorted: whether every new id is greater than every old one.
    """

    at_ms: int
    sorted: bool


def config_of(info: PoolInfo) -> PoolConfig:
    """Return the constants of the pool as it is stored."""
    return pool_config({"pool": info.name} | info.options)


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
    if config.datacenter and place != (layout.datacenter_bits, layout.datacenter_shift):
        raise ConfigError(
            f"pool {info.name!r} has the datacenter {config.datacenter}, and the new "
            "layout has its datacenter bits in another place, where other pools may have other bits. Nothing "
            "was changed. Use a layout with the same datacenter bits in the same place."
        )
    numbers = (config.datacenter, config.datacenter)
    # refuses a datacenter that does not fit
    config.with_layout(layout)
    floor_ms, in_order = at_ms, True
    # the present layout is the last one, or the last but one if a change is planned, which this one replaces
    past = info.layouts[: -2 if info.changes_ms else -1]
    # a pool of this name that was deleted may have had another datacenter
    spans = [(period.layout, period.from_ms, period.until_ms or floor_ms, None) for period in past]
    for old, from_ms, until_ms, known in [*spans, (info.layout, spans[-1][2] if spans else 0, floor_ms, numbers)]:
        try:
            ids = layout_ids(old, from_ms=max(from_ms, old.epoch_ms), until_ms=until_ms - 1, datacenters=known)
        except ConfigError:
            # no id was made in that time
            continue
        proof = prove(ids, layout, start_ms=floor_ms, datacenters=numbers)
        if proof.common is not None:
            raise ConfigError(
                f"ids of the layout {old}, which pool {info.name!r} has or had, and of the new layout {layout} can be "
                f"equal: {proof.common.size:,} of them, for example {proof.common.lowest}. Nothing was changed. Choose "
                "a layout whose ids are greater: the timestamp bits in the same place or further left, and an epoch "
                "that is not later; see `snowredis migrate proof`."
            )
        in_order = in_order and proof.sorted
    return in_order


def change_layout(pool: WorkerPool, layout: Layout, *, delay_ms: int = 0) -> LayoutChange:
    """Give *pool* an end after *delay_ms*, from which on it has *layout*, if no id can be repeated.

    It cannot be undone. Processes make ids of the old layout until the end, and none after it.

    Args:
        delay_ms: 0: as soon as possible, which is behind all outage lanes.

    Raises:
        ConfigError: it is refused, with the reason; nothing was changed.
        PoolNotFound, LayoutMismatch.
        StoreUnavailable: also if a replica does not have the end. Repeat it then.
    """
    info = pool.info()
    if delay_ms > MAX_DELAY_MS:
        raise ConfigError(f"{delay_ms} ms are over a year. Nothing was changed.")
    store = PoolAdministration(pool.server, config_of(info))
    at_ms = info.now_ms + delay_ms
    check_change(info, layout, at_ms)
    reply = store.end(now_ms(), layout=layout, at_ms=at_ms)
    if isinstance(reply, Early) and not delay_ms:
        # leases may be extended meanwhile
        at_ms = reply.earliest_ms + 2 * info.ttl_ms
        check_change(info, layout, at_ms)
        reply = store.end(now_ms(), layout=layout, at_ms=at_ms)
    if isinstance(reply, Absent):
        raise PoolNotFound(info.name)
    if isinstance(reply, Early):
        raise ConfigError(
            f"workers of pool {info.name!r} have reservations beyond that moment, in which they may make ids of the "
            "old layout as long as they do not reach Redis. Nothing was changed. Plan it for "
            f"{utc_text(reply.earliest_ms)} or later: in {math.ceil((reply.earliest_ms - info.now_ms) / 1000)} s."
        )
    if reply.next_signature != store.config.with_layout(layout).signature:
        raise ConfigError(
            f"pool {info.name!r} already ends at {utc_text(reply.end_ms)}, and "
            f"{'a pool with other settings starts there' if reply.next_signature else 'any pool may start there'}. "
            "An end cannot be changed."
        )
    return LayoutChange(reply.end_ms, check_change(info, layout, reply.end_ms))
