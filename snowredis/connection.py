"""connect() and aconnect(): create a generator of ids from settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from snowredis.core.lanes import LONG_WAIT_MS, ClockRules
from snowredis.core.layout import Layout
from snowredis.errors import LayoutError
from snowredis.process import LOADING
from snowredis.process.clock import SYSTEM, Clock
from snowredis.process.log import log
from snowredis.process.threads import locked
from snowredis.settings import SETTINGS, Server, Settings, check_settings, settings_of_process
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.protocol.open import layout_of, open_store

if TYPE_CHECKING:
    from snowredis.process.coroutines import Connecting

# a fleet may need months to move to another layout
END_WARNING_MS = 365 * 24 * 3600 * 1000


def connect(url: Server | None = None, **settings: Unpack[Settings]) -> SnowflakeGenerator:
    """Return a generator of ids. It claims its worker id at its first id, or at claim().

    A duration is in seconds, unless its name ends in ``_ms``. What is not given is read from SNOWREDIS_* variables.

    Args:
        url: the Redis: `redis://`, `rediss://`, `unix://`, `embedded://` (a Redis of this machine, for
            development), `sentinel://h1:26379,h2:26379/MASTER/0`, `cluster://h1:7000,h2:7001`, a redis-py
            client of any of these, or a pool of snowredis.testing
        pool: the set of worker ids: processes that must not repeat each other's ids use the same; letters,
            digits, _ . -
        layout: how the 63 bits are divided: a Layout, the name of a preset, or text such as `41/0/2/10/10`
        datacenter: value of the layout's datacenter bits; `auto`: the number that `snowredis pool create
            NAME --datacenter auto` gave to this pool
        ttl: how long a lease and a reservation last without a heartbeat; a heartbeat is sent every ttl / 3, with
            a long failover_slack every ttl / 6
        label: name of this process, shown to people who look at the pool; at most 100 characters
        durability: whether Redis may lose writes that it acknowledged: `detect`: yes, in a restart or failover,
            which can be detected; `assured`: never; `none`: yes, undetected, so every new worker waits
        claim_timeout: how long to wait for a worker id while the pool is full or Redis does not reply in time,
            before `PoolExhausted` or `StoreUnavailable` is raised; calls of one generator share this time, so
            that only the first of them waits for all of it

    Rarely needed:
        fields: values of the parts of the datacenter bits that the layout names, instead of `datacenter`
        max_clock_lead: how far a host's clock may be ahead of the Redis clock before its reservations get
            shorter
        failover_slack: how far the clocks of two Redis servers may differ, plus how long a deposed master may
            go on answering; set it for any other address that moves in a failover: a DNS name, a Kubernetes
            Service, ElastiCache
        outage_reserve: for how long the highest namespace is reserved: processes go on in it while Redis is
            unavailable; 0: not at all, as with `embedded://`
        min_replicas: how many replicas must have each claim and renewal before it counts, or `all`: every
            replica that was ever seen connected, at least one
        clock_policy: what to do when the clock goes back by more than max_wait_ms: `backup`: use another
            namespace, else another worker id; `wait`: raise `ClockMovedBack`
        max_wait_ms: the longest step back of the clock that is waited for
        max_ahead_ms: how far ids may run ahead of the clock: after it went back, and when a tick's sequence is
            exhausted; 0: wait for the next tick
        sequence_start: first sequence of a tick: `spread`: any, so that `id % shards` is spread evenly for
            quiet services, too (0 if a tick lasts over 10 ms); or `zero`
        clock: for tests: a snowredis.testing.ManualClock

    Raises:
        ConfigError, LayoutError: no url or no pool is named, or a setting, or a combination, cannot work. Nothing
            connects yet.
        StoreUnavailable: the server of embedded:// does not start.
    """
    return _open(check_settings({"url": url, **settings}))


def aconnect(url: Server | None = None, **settings: Unpack[Settings]) -> Connecting[SnowflakeGenerator]:
    """Async version of connect() that claims the worker id at once. Does not block the event loop.

    Its arguments are those of connect(). ``async with snowredis.aconnect(...) as ids:``, or ``ids = await
    snowredis.aconnect(...)`` and, at the end, ``await ids.aclose()``. Under asyncio, uvloop and trio. Raises
    ConfigError at the call for a setting that is unknown or not valid.
    """
    # loaded only for coroutines
    from snowredis.process.coroutines import Connecting

    given = check_settings({"url": url, **settings})
    return Connecting(lambda: _open(given))


def _open(given: Mapping[str, Any]) -> SnowflakeGenerator:
    given = settings_of_process(given)
    used = {name: setting.default for name, setting in SETTINGS.items()} | given
    url = used.pop("url")
    # a pool of snowredis.testing has a clock
    clock: Clock = used.pop("clock") or getattr(url, "clock", None) or SYSTEM
    check_end(layout_of(used["layout"]), clock.time_ns() // 1_000_000)
    policy, max_wait_ms = used["clock_policy"], used["max_wait_ms"]
    if max_wait_ms is None:
        max_wait_ms = LONG_WAIT_MS if policy == "wait" else ClockRules().max_wait_ms
    rules = ClockRules(policy=policy, max_wait_ms=max_wait_ms, max_ahead_ms=used["max_ahead_ms"])
    return SnowflakeGenerator(
        locked(LOADING, open_store, url, used),
        clock=clock,
        rules=rules,
        # ids of a test are the same in every run
        sequence_start=used["sequence_start"] if clock is SYSTEM else given.get("sequence_start", "zero"),
        claim_timeout=used["claim_timeout"],
        label=used["label"],
    )


def check_end(layout: Layout, now_ms: int) -> None:
    """Raise LayoutError if *layout* has ended at *now_ms*; log a warning if it ends within END_WARNING_MS."""
    if now_ms >= layout.end_ms:
        raise LayoutError(
            f"the layout's {layout.timestamp_bits} timestamp bits have been used up since {layout.end}; no id can be "
            "made. Choose a layout with more timestamp bits or a later epoch."
        )
    if layout.end_ms - now_ms < END_WARNING_MS:
        log.warning("the layout's timestamp bits last only until %s: plan to move to another layout", layout.end)
