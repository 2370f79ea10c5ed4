"""connect() and aconnect(): create a generator of ids from settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from collections.abc import Generator as Steps
from types import TracebackType
from typing import Any, TypedDict, Unpack

from snowredis.core.lanes import ClockRules
from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from snowredis.errors import LayoutError
from snowredis.process.clock import SYSTEM, Clock
from snowredis.process.coroutines import in_background, in_thread
from snowredis.settings import (
    DEFAULT_URL,
    ClockPolicy,
    Datacenter,
    Durability,
    MinReplicas,
    Overflow,
    SequenceStart,
    check,
)
from snowredis.snowflake.generator import Generator
from snowredis.snowflake.open import Servers, has_registry, open_store_from_settings
from snowredis.snowflake.protocol import Store


class Connecting:
    """Result of aconnect(): ``async with`` it, or ``await`` it and call aclose() at the end."""

    def __init__(self, connect: Callable[[], Generator]) -> None:
        self._connect = connect
        self._ids: Generator | None = None

    def __await__(self) -> Steps[Any, None, Generator]:
        return self._open().__await__()

    async def __aenter__(self) -> Generator:
        self._ids = await self._open()
        return self._ids

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ids is not None:
            await self._ids.aclose()

    async def _open(self) -> Generator:
        ids = await in_thread(self._connect)
        try:
            await ids.aclaim()
        except BaseException:
            # cancelled, or refused: the caller has no generator to close
            in_background(ids.close)
            raise
        return ids


log = logging.getLogger("snowredis")

# a fleet may need months to move to another layout
END_WARNING_MS = 365 * 24 * 3600 * 1000


class Settings(TypedDict, total=False):
    """The keyword arguments of connect()."""

    pool: str
    layout: Layout | str | None
    datacenter: Datacenter
    registry: str | None
    registry_url: Servers | None
    ttl: float
    max_clock_lead: float | None
    redis_skew: float | None
    failover_slack: float | None
    outage_reserve: float | None
    durability: Durability
    guard_rollbacks: bool
    min_replicas: MinReplicas
    label: str
    clock_policy: ClockPolicy
    clock_tolerance_ms: int
    max_wait_ms: int
    overflow: Overflow
    max_ahead_ms: int
    sequence_start: SequenceStart
    sequence_start_bound: int | None
    claim_timeout: float
    clock: Clock | None


class AllSettings(Settings, total=False):
    """All arguments of connect() by name."""

    url: Servers


def connect(
    url: Servers = DEFAULT_URL,
    *,
    pool: str = "default",
    layout: Layout | str | None = None,
    datacenter: Datacenter = 0,
    registry: str | None = None,
    registry_url: Servers | None = None,
    ttl: float = 30.0,
    max_clock_lead: float | None = None,
    redis_skew: float | None = None,
    failover_slack: float | None = None,
    outage_reserve: float | None = None,
    durability: Durability = "detect",
    guard_rollbacks: bool = False,
    min_replicas: MinReplicas = 0,
    label: str = "",
    clock_policy: ClockPolicy = "backup",
    clock_tolerance_ms: int = 10,
    max_wait_ms: int = 5_000,
    overflow: Overflow = "wait",
    max_ahead_ms: int = 1_000,
    sequence_start: SequenceStart = "zero",
    sequence_start_bound: int | None = None,
    claim_timeout: float = 10.0,
    clock: Clock | None = None,
) -> Generator:
    """Return a generator of ids. It claims its worker id at its first id, or at claim().

    A duration is in seconds, unless its name ends in ``_ms``.

    Args:
        url: the Redis: `redis://`, `rediss://`, `unix://`, `embedded://` (a Redis of this machine, for
            development), `sentinel://h1:26379,h2:26379/MASTER/0`, `cluster://h1:7000,h2:7001`, a redis-py client
            of any of these, or a pool of snowredis.testing; or a list of those, the same in every process:
            independent servers
        pool: the set of worker ids: processes that must not repeat each other's ids use the same; letters,
            digits, _ . -
        layout: how the 63 bits are divided: a Layout, the name of a preset, or text such as `41/0/2/10/10`
        datacenter: value of the layout's datacenter bits; `auto`: the shard number that the registry has given to this
            pool
        ttl: silence after which a worker counts as dead, and the length of a reservation; a heartbeat is sent
            every ttl / 6
        label: name of this process, shown to people who look at the pool; at most 100 characters
        durability: whether Redis may lose writes that it acknowledged: `detect`: yes, in a restart or failover,
            which can be detected; `assured`: never; `none`: yes, undetected, so every new worker waits
        claim_timeout: how long to wait for a worker id while the pool is full, before `PoolExhausted` is raised;
            calls of one generator share this time, so that only the first of them waits for all of it

    Rarely needed:
        registry: name of the registry of shard numbers, in which no two pools have the same number; a pool that has no
            number there is refused
        registry_url: the Redis of the registry, if it is another one
        max_clock_lead: how far a host's clock may be ahead of the Redis clock before its reservations get shorter
        redis_skew: how far the clocks of two Redis servers may differ
        failover_slack: how long a deposed master may go on answering; set it for any other address that moves in
            a failover: a DNS name, a Kubernetes Service, ElastiCache
        outage_reserve: for how long the highest namespace is reserved: processes go on in it while Redis is
            unavailable; 0: not at all
        guard_rollbacks: also suspect a loss if no script ran for a ttl, as when a machine was rolled back to a
            memory snapshot
        min_replicas: how many replicas must have each claim and renewal before it counts, or `all`: every replica
            that was ever seen connected, at least one
        clock_policy: what to do when the clock goes back: `backup`: wait, else use another namespace, else
            another worker id; `wait`; `raise`; or `ahead`: go on ahead of the clock
        clock_tolerance_ms: the longest step back of the clock that `backup` waits for
        max_wait_ms: the longest step back of the clock that `wait` waits for
        overflow: what to do when a tick's sequence is exhausted: `wait` for the next tick, or `ahead`: borrow
            ticks ahead of the clock
        max_ahead_ms: how far ids may run ahead of the clock, under clock_policy `ahead` and overflow `ahead`
        sequence_start: first sequence of a tick: `zero`, `random` or `continue`; the last two spread the ids of
            quiet services over shards (`id % shards`)
        sequence_start_bound: limit of that first sequence, which stays below it
        clock: for tests: a snowredis.testing.ManualClock

    Raises:
        ConfigError, LayoutError: a setting, or a combination, that cannot work. Nothing connects yet.
        StoreUnavailable: the server of embedded:// does not start.
    """
    arguments = dict(locals())
    given = {name: check(name, value) for name, value in arguments.items()}
    used_clock = clock or _clock_of(url) or SYSTEM
    check_end(resolve_layout(layout), used_clock.time_ns() // 1_000_000)
    rules = ClockRules(
        policy=clock_policy,
        tolerance_ms=given["clock_tolerance_ms"],
        max_wait_ms=given["max_wait_ms"],
        max_ahead_ms=given["max_ahead_ms"],
        overflow=overflow,
    )
    return Generator(
        _open_store(url, given),
        clock=used_clock,
        rules=rules,
        sequence_start=sequence_start,
        sequence_start_bound=given["sequence_start_bound"],
        claim_timeout=given["claim_timeout"],
        label=label,
    )


def aconnect(url: Servers = DEFAULT_URL, **settings: Unpack[Settings]) -> Connecting:
    """Async version of connect() that claims the worker id at once. Does not block the event loop.

    ``async with snowredis.aconnect(...) as ids:``, or ``ids = await snowredis.aconnect(...)`` and, at the end,
    ``await ids.aclose()``. Under asyncio, uvloop and trio.
    """
    return Connecting(lambda: connect(url, **settings))


def _open_store(url: Servers, settings: Mapping[str, Any]) -> Store:
    if not has_registry(settings):
        return open_store_from_settings(url, settings)
    # loaded for pools of a registry only
    from snowredis.snowflake.registered_store import RegisteredStore
    from snowredis.snowflake.registration import open_registered

    # 0 is the default: a pool whose registry is named has its number
    return RegisteredStore(open_registered(url, {**settings, "datacenter": settings["datacenter"] or "auto"}))


def _clock_of(url: Any) -> Clock | None:
    """Return the clock of a pool of snowredis.testing, the first one if *url* is a list."""
    first = next(iter(url), None) if isinstance(url, list | tuple) else url
    clock: Clock | None = getattr(first, "clock", None)
    return clock


def check_end(layout: Layout, now_ms: int) -> None:
    """Raise LayoutError if *layout* has ended at *now_ms*; log a warning if it ends within END_WARNING_MS."""
    if now_ms >= layout.end_ms:
        raise LayoutError(
            f"the layout's {layout.timestamp_bits} timestamp bits have been used up since {layout.end}; no id can be "
            "made. Choose a layout with more timestamp bits or a later epoch."
        )
    if layout.end_ms - now_ms < END_WARNING_MS:
        log.warning(
            "the layout's timestamp bits last only until %s: plan to move to another layout", layout.end
        )
