"""The constants of a pool: PoolConfig, what follows from them, and the signature by which scripts compare them.

Pure data. All times are milliseconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from snowredis.core.layout import Layout, layout_spec
from snowredis.core.values import as_int
from snowredis.errors import ConfigError
from snowredis.servers.scripts import with_format
from snowredis.settings import check

# the format of what a pool stores: fields, records, index; see FORMATS in snowredis.signatures
FORMAT = 1


def is_deleted(over: str, end: str, now_ms: int) -> bool:
    """Return whether a pool with these fields has ended, and any settings may start at its name."""
    return over == "now" or (over == "then" and end.isdecimal() and int(end) <= now_ms)


# two heartbeats may fail before a lease ends; and each is repeated twice a second meanwhile
HEARTBEATS_PER_TTL = 3
# a longer ttl is a mistake: ms instead of s
MAX_TTL_MS = 24 * 3600 * 1000
DEFAULT_OUTAGE_RESERVE_MS = 24 * 3600 * 1000
# a longer outage_reserve is a mistake, too
MAX_OUTAGE_RESERVE_MS = 31 * MAX_TTL_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """Constants of a pool, the same in all its processes.

    Attributes:
        name: of the pool.

    The others are the settings of connect() with these names; -1 stands for their default, a twelfth of the ttl or that
    of outage_reserve.

    Raises:
        ConfigError: a value, or a combination, that cannot work.
    """

    name: str
    layout: Layout = field(default_factory=Layout)
    datacenter: int = 0
    ttl_ms: int = 30_000
    max_clock_lead_ms: int = -1
    failover_slack_ms: int = -1
    outage_reserve_ms: int = -1
    durability: str = "detect"

    def __post_init__(self) -> None:
        # connect() takes None for the default; here it is refused
        check("pool", self.name or "")
        limits = dict.fromkeys(("ttl_ms", "max_clock_lead_ms", "failover_slack_ms"), MAX_TTL_MS)
        for option, most in (limits | {"outage_reserve_ms": MAX_OUTAGE_RESERVE_MS}).items():
            try:
                value = as_int(getattr(self, option))
            except TypeError:
                raise ConfigError(
                    f"{option} must be a whole number of milliseconds, not {getattr(self, option)!r}"
                ) from None
            object.__setattr__(self, option, value)
            if value > most or (value < 0 and (value != -1 or option == "ttl_ms")):
                raise ConfigError(
                    f"{option}={value} is out of range: 0 to {most} ms "
                    f"({'a day' if most == MAX_TTL_MS else f'{most // MAX_TTL_MS} days'}) can be used"
                )
        object.__setattr__(self, "datacenter", check("datacenter", self.datacenter))
        if not isinstance(self.datacenter, int):  # a caller without types
            raise ConfigError(f"datacenter={self.datacenter!r} names no number; the pool in Redis knows it")
        if not 0 <= self.datacenter < self.layout.datacenters:
            raise ConfigError(
                f"datacenter={self.datacenter} does not fit {self.layout.datacenter_bits} datacenter bits: 0 to "
                f"{self.layout.datacenters - 1} can be used. Give another number, or a layout with datacenter bits."
            )
        for option in ("max_clock_lead_ms", "failover_slack_ms"):
            if getattr(self, option) == -1:
                object.__setattr__(self, option, self.ttl_ms // 12)
        self._check_outage_reserve()
        check("durability", self.durability)
        needed = self.max_clock_lead_ms + self.failover_slack_ms + self.heartbeat_ms
        if self.ttl_ms < 100 or self.ttl_ms <= needed:
            raise ConfigError(
                f"ttl {self.ttl_ms} ms is too short: it must be 100 ms at least, and more than max_clock_lead "
                f"{self.max_clock_lead_ms} + failover_slack {self.failover_slack_ms} + one heartbeat "
                f"{self.heartbeat_ms} = {needed} ms, or running workers would lose their leases in a failover. Raise "
                f"ttl to {max(100, 2 * needed)} ms, or lower the others."
            )

    def _check_outage_reserve(self) -> None:
        if self.outage_reserve_ms == -1:
            object.__setattr__(self, "outage_reserve_ms", default_outage_reserve_ms(self.layout, self.ttl_ms))
        if self.outage_reserve_ms and not self.layout.backup_bits:
            raise ConfigError(
                f"outage_reserve {self.outage_reserve_ms} ms needs a namespace of its own, and layout {self.layout} "
                "has no backup bits. Give the layout backup bits, or set outage_reserve to 0."
            )
        if 0 < self.outage_reserve_ms <= self.ttl_ms:
            raise ConfigError(
                f"outage_reserve {self.outage_reserve_ms} ms must be longer than the ttl, {self.ttl_ms} ms; or 0"
            )

    @property
    def ordinary_lanes(self) -> int:
        """Return the number of a worker id's lanes without its outage lane, which is the highest one."""
        return self.layout.namespaces - (self.outage_reserve_ms > 0)

    @property
    def heartbeat_ms(self) -> int:
        """Return the time between two renewals: half of the usual one where a failover would take the rest of a ttl."""
        usual_ms = self.ttl_ms // HEARTBEATS_PER_TTL
        return max(1, usual_ms if self.ttl_ms > self.horizon_ms(usual_ms) else usual_ms // 2)

    @property
    def floor_ms(self) -> int:
        """Return how long new workers wait after Redis may have lost something."""
        return self.horizon_ms(self.ttl_ms)

    def horizon_ms(self, length_ms: int) -> int:
        """Return after how long all has ended that lasts *length_ms* and that any server granted, as in pool.lua."""
        return length_ms + self.max_clock_lead_ms + self.failover_slack_ms

    @property
    def signature(self) -> str:
        """Return all constants as one line, which is stored in the pool and compared by every script."""
        return with_format(
            FORMAT,
            f"layout={layout_spec(self.layout)} datacenter={self.datacenter} ttl_ms={self.ttl_ms} "
            f"max_clock_lead_ms={self.max_clock_lead_ms} failover_slack_ms={self.failover_slack_ms} "
            f"outage_reserve_ms={self.outage_reserve_ms} "
            f"durability={self.durability}",
        )


def default_outage_reserve_ms(layout: Layout, ttl_ms: int) -> int:
    """Return the default of outage_reserve.

    With one backup bit, no namespace would be left for a clock that goes back; with a ttl of a day, all last a day.
    """
    return DEFAULT_OUTAGE_RESERVE_MS if layout.backup_bits >= 2 and ttl_ms < DEFAULT_OUTAGE_RESERVE_MS else 0


def pool_keys(pool: str) -> tuple[str, str, str]:
    """Return the keys of a pool: hash, index and events, with one hash tag: they are in one Cluster slot."""
    key = f"snowredis:{{{pool}}}"
    return key, f"{key}:leases", f"{key}:events"
