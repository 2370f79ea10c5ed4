"""connect(), and the one generator of this process that snowredis.next_id() uses.

The only place that reads SNOWREDIS_* variables, and only when it has to.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from snowredis.core.lanes import ClockRules
from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from snowredis.errors import ConfigError, LayoutError, SnowredisError
from snowredis.lease.model import PoolConfig, Store
from snowredis.runtime.aio import Connecting, in_thread
from snowredis.runtime.clock import SYSTEM, Clock
from snowredis.runtime.exit import EXIT
from snowredis.runtime.generator import Generator, log

if TYPE_CHECKING:
    import redis

    from snowredis.lease.memory_store import MemoryStore
    from snowredis.lease.redis_store import RedisStore
    from snowredis.testing import MemoryPool

# what connect() takes for one server
Server: TypeAlias = "str | redis.Redis | redis.RedisCluster | MemoryPool"
DEFAULT_URL = "redis://localhost:6379/0"
# a fleet needs longer than a few weeks to move to another layout
END_WARNING_MS = 365 * 24 * 3600 * 1000


def connect(
    url: Server | Sequence[Server] = DEFAULT_URL,
    *,
    pool: str = "default",
    layout: Layout | str | None = None,
    datacenter: int = 0,
    ttl: float = 30.0,
    max_clock_lead: float | None = None,
    redis_skew: float | None = None,
    failover_slack: float | None = None,
    durability: Literal["detect", "assured", "none"] = "detect",
    guard_rollbacks: bool = False,
    min_replicas: int | Literal["all"] = 0,
    label: str = "",
    clock_policy: str = "backup",
    clock_tolerance_ms: int = 10,
    max_wait_ms: int = 5_000,
    overflow: str = "wait",
    max_ahead_ms: int = 1_000,
    sequence_start: str = "zero",
    sequence_start_bound: int | None = None,
    claim_timeout: float = 0.0,
    clock: Clock | None = None,
) -> Generator:
    """Make a generator of ids. Nothing is claimed before the first id, or claim().

    Args:
        url: redis://, rediss://, unix:// or embedded:// (a Redis of this machine, for development);
            sentinel://host:26379,host:26379/MASTER/0 or cluster://host:7000,host:7001; a redis-py client of any of
            these kinds; or a pool of snowredis.testing. Or a list of those: independent servers, of which each has
            a share of the worker ids, and any may be away; the same list in the same order in every process.
        pool: which set of worker ids; everybody who must not repeat each other's ids uses the same one.
        layout: how the 63 bits are cut: a Layout, the name of a preset, or its text form.
        datacenter: value of the layout's datacenter bits; the same for everybody in the pool.
        ttl: seconds after which a worker that was not heard of is taken for dead; also the length of a reservation.
        max_clock_lead: seconds by which this host's clock may run ahead of Redis'; default ttl / 12.
        redis_skew: seconds by which two Redis servers' clocks may differ; default ttl / 12.
        failover_slack: seconds for which a deposed master may go on answering; default 0, under Sentinel or
            Cluster 15. Set it for any other address that a failover moves to another server.
        durability: what is known of writes that Redis acknowledged. "detect": a restart or failover may lose some,
            and Redis shows which server it is, else it is refused. "assured": none is ever lost. "none": some may
            be, and nothing shows it, so every new worker waits for ttl + the three above.
        guard_rollbacks: also suspect a Redis in which no script ran for a ttl, as after going back to an older
            memory snapshot.
        min_replicas: how many replicas must have each claim and each renewal before it counts, or "all": every
            one that was ever seen connected, and one at least.
        label: what this process is, for people who look at the pool; up to 100 characters.
        clock_policy: "backup", "wait", "raise" or "ahead": what to do when the clock goes back.
        clock_tolerance_ms: how far back is waited out under "backup".
        max_wait_ms: the same under "wait".
        overflow: "wait" for the next tick when a tick's sequence is used up, or "ahead": borrow ticks.
        max_ahead_ms: how far ids may run ahead of the clock, for both "ahead".
        sequence_start: "zero", "random" or "continue": the first sequence of a tick.
        sequence_start_bound: that first sequence stays below it; default an eighth of the sequences.
        claim_timeout: seconds for which a full pool is asked again.
        clock: for tests: snowredis.testing.ManualClock.

    Raises:
        ConfigError, LayoutError: a setting, or a combination, that cannot work. Redis is not asked yet.
    """
    chosen = resolve_layout(layout)
    rules = ClockRules(
        policy=clock_policy,
        tolerance_ms=clock_tolerance_ms,
        max_wait_ms=max_wait_ms,
        max_ahead_ms=max_ahead_ms,
        overflow=overflow,
    )
    slack_ms = default_slack_ms(url) if failover_slack is None else _ms("failover_slack", failover_slack)
    config = PoolConfig(
        name=pool,
        layout=chosen,
        datacenter=datacenter,
        ttl_ms=_ms("ttl", ttl),
        max_clock_lead_ms=-1 if max_clock_lead is None else _ms("max_clock_lead", max_clock_lead),
        redis_skew_ms=-1 if redis_skew is None else _ms("redis_skew", redis_skew),
        failover_slack_ms=slack_ms,
        durability=durability,
        guard_rollbacks=guard_rollbacks,
    )
    if not isinstance(label, str):
        raise ConfigError(f"label must be a str, not {label!r}")
    if (
        isinstance(claim_timeout, bool)
        or not isinstance(claim_timeout, int | float)
        or not claim_timeout >= 0
    ):
        raise ConfigError(f"claim_timeout must be seconds, 0 or more, not {claim_timeout!r}")
    store = _store(url, config, min_replicas=min_replicas)
    first = url[0] if isinstance(url, list | tuple) else url
    used_clock = clock or getattr(first, "clock", None) or SYSTEM
    _check_end(chosen, used_clock.time_ns() // 1_000_000)
    return Generator(
        store,
        clock=used_clock,
        rules=rules,
        sequence_start=sequence_start,
        sequence_start_bound=sequence_start_bound,
        claim_timeout=claim_timeout,
        label=label,
    )


def aconnect(url: Server | Sequence[Server] = DEFAULT_URL, **options: Any) -> Connecting:
    """As connect(), for coroutines: claims a worker id, and holds up no event loop.

    ``async with snowredis.aconnect(...) as ids:``, or ``ids = await snowredis.aconnect(...)`` and, at the end,
    ``await ids.aclose()``. Of asyncio, uvloop and trio.
    """
    return Connecting(lambda: connect(url, **options))


def default_slack_ms(url: Any) -> int:
    """What failover_slack is, in ms, when nobody says: *url* is what connect() takes."""
    from snowredis.lease.clients import default_failover_slack_ms

    return max(map(default_failover_slack_ms, url if isinstance(url, list | tuple) else [url]), default=0)


def _store(url: Any, config: PoolConfig, **options: Any) -> Store:
    if isinstance(url, list | tuple):
        return _masters(url, config, **options)
    return _server(url, config, **options)


def _masters(urls: Sequence[Any], config: PoolConfig, **options: Any) -> Store:
    if len(urls) == 0:
        raise ConfigError("there is no server in the list of URLs. Name one at least.")
    if len(urls) == 1:
        return _server(urls[0], config, **options)
    from snowredis.lease.sharded_store import ShardedStore

    count = len(urls)
    servers: list[RedisStore | MemoryStore] = []
    for index, url in enumerate(urls):
        twin = servers[urls.index(url)] if url in urls[:index] else None
        if twin is None:
            made = _server(url, replace(config, share=(index, count)), **options)
            # two pools in memory are two, though both are called so
            twin = next((other for other in servers if other.where == made.where != "memory"), None)
            servers.append(made)
        if twin is not None:
            raise ConfigError(
                f"the list of URLs names {twin.where} twice, and independent servers have worker ids of their own "
                "each. Name each server once."
            )
    return ShardedStore(servers, config)


def _server(url: Any, config: PoolConfig, *, min_replicas: Any) -> RedisStore | MemoryStore:
    in_memory, is_embedded = (
        hasattr(url, "memory_store"),
        isinstance(url, str) and url.startswith("embedded:"),
    )
    if min_replicas and (in_memory or is_embedded):
        raise ConfigError(f"min_replicas={min_replicas!r} needs a Redis with replicas, and this one has none")
    if in_memory:
        store: MemoryStore = url.memory_store(config)
        return store
    from snowredis.lease.redis_store import RedisStore

    if not isinstance(url, str):
        return RedisStore(url, config, min_replicas=min_replicas)
    if not is_embedded:
        return RedisStore.from_url(url, config, min_replicas=min_replicas)
    from snowredis import embedded

    server = embedded.join(url, reach_ms=config.ttl_ms + config.max_clock_lead_ms + config.layout.tick_ms)
    made = RedisStore.from_url(server.url, config)
    if server.fresh:
        # nobody of an earlier server's life is left, so a pool that is absent is new
        made.create(time.time_ns() // 1_000_000)
    return made


def _ms(option: str, seconds: float) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e6:
        raise ConfigError(f"{option} must be seconds, 0 or more, not {seconds!r}")
    return round(seconds * 1000)


def _check_end(layout: Layout, now_ms: int) -> None:
    if now_ms >= layout.end_ms:
        raise LayoutError(
            f"the layout's {layout.timestamp_bits} timestamp bits are used up since {layout.end}; no id can be made. "
            "Choose a layout with more timestamp bits or a later epoch."
        )
    if layout.end_ms - now_ms < END_WARNING_MS:
        log.warning(
            "the layout's timestamp bits last only until %s: plan to move to another layout", layout.end
        )


# --- the generator of this process -----------------------------------------------------------------


def parse_min_replicas(text: str) -> int | str:
    """Of replicas."""
    return text if text == "all" else int(text)


# variable -> option of connect(), and how its text is read
_VARIABLES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "SNOWREDIS_POOL": ("pool", str),
    "SNOWREDIS_LAYOUT": ("layout", str),
    "SNOWREDIS_DATACENTER": ("datacenter", int),
    "SNOWREDIS_TTL": ("ttl", float),
    "SNOWREDIS_MAX_CLOCK_LEAD": ("max_clock_lead", float),
    "SNOWREDIS_REDIS_SKEW": ("redis_skew", float),
    "SNOWREDIS_FAILOVER_SLACK": ("failover_slack", float),
    "SNOWREDIS_DURABILITY": ("durability", str),
    "SNOWREDIS_GUARD_ROLLBACKS": ("guard_rollbacks", bool),
    "SNOWREDIS_MIN_REPLICAS": ("min_replicas", parse_min_replicas),
    "SNOWREDIS_LABEL": ("label", str),
    "SNOWREDIS_CLOCK_POLICY": ("clock_policy", str),
    "SNOWREDIS_CLOCK_TOLERANCE_MS": ("clock_tolerance_ms", int),
    "SNOWREDIS_MAX_WAIT_MS": ("max_wait_ms", int),
    "SNOWREDIS_OVERFLOW": ("overflow", str),
    "SNOWREDIS_MAX_AHEAD_MS": ("max_ahead_ms", int),
    "SNOWREDIS_SEQUENCE_START": ("sequence_start", str),
    "SNOWREDIS_SEQUENCE_START_BOUND": ("sequence_start_bound", int),
    "SNOWREDIS_CLAIM_TIMEOUT": ("claim_timeout", float),
}
# how those begin that are read elsewhere: the server to embed, the implementation, the scripts' Python, the service
_NOT_SETTINGS = (
    "SNOWREDIS_EMBEDDED",
    "SNOWREDIS_PURE",
    "SNOWREDIS_PYTHON",
    "SNOWREDIS_BUILD",
    "SNOWREDIS_SERVE_",
)
_BOOLS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def settings_from(environment: Mapping[str, str]) -> tuple[str | list[str], dict[str, Any]]:
    """The URL and the options of connect() that SNOWREDIS_* variables say.

    Several URLs, with blanks in between, are independent servers. Raises ConfigError for a variable that is
    unknown or has no such value.
    """
    options: dict[str, Any] = {}
    url: str | list[str] = DEFAULT_URL
    for name, text in environment.items():
        if not name.startswith("SNOWREDIS_") or name.startswith(_NOT_SETTINGS):
            continue
        if name == "SNOWREDIS_URL":
            url = split_urls(text)
        elif name in _VARIABLES:
            option, kind = _VARIABLES[name]
            try:
                options[option] = _BOOLS[text.lower()] if kind is bool else kind(text)
            except (ValueError, KeyError):
                raise ConfigError(f"{name}={text!r} is no {kind.__name__}") from None
        else:
            known = ", ".join(["SNOWREDIS_URL", *_VARIABLES])
            raise ConfigError(f"{name} is no setting; these are: {known}")
    return url, options


def split_urls(text: str) -> str | list[str]:
    """A URL, or the several of independent masters: one text with blanks in between, as in SNOWREDIS_URL."""
    urls = text.split()
    return urls if len(urls) > 1 and all("://" in url for url in urls) else text


# at most one entry; a dict because setdefault() is atomic, and needs no lock that a fork could leave locked
_default: dict[str, Generator] = {}
# what configure() was told
_configured: dict[str, Any] = {}


def configure(**settings: Any) -> None:
    """Say in code what snowredis.next_id() uses: arguments of connect(), ``url`` among them.

    They come before SNOWREDIS_* variables, which fill in what is not named here. Connects to nothing.

    Raises:
        ConfigError: connect() has no such argument, or this process' generator is in use with other settings.
    """
    import inspect

    known = inspect.signature(connect).parameters
    for name in settings:
        if name not in known:
            raise ConfigError(f"{name!r} is no setting; these are: {', '.join(known)}")
    if settings == _configured:
        return
    if "generator" in _default:
        raise ConfigError(
            "this process makes ids with other settings already. Call configure() before the first id, or "
            "snowredis.close() before configure()."
        )
    _configured.clear()
    _configured.update(settings)


def default() -> Generator:
    """The one generator of this process, made at the first use from configure() and SNOWREDIS_* variables."""
    generator = _default.get("generator")
    if generator is None:
        url, options = settings_from(os.environ)
        settings = {"url": url, **options, **_configured}
        # of two threads that come here together one's generator is kept; the other's has claimed nothing
        generator = _default.setdefault("generator", connect(**settings))
    return generator


def next_id() -> int:
    """Make one id with the generator of this process. See Generator.next_id()."""
    generator = _default.get("generator")
    if generator is None:
        generator = default()
    return generator.next_id()


def next_ids(count: int) -> list[int]:
    """Make *count* ids with the generator of this process. See Generator.next_ids()."""
    return default().next_ids(count)


async def anext_id() -> int:
    """Make one id with the generator of this process. See Generator.anext_id()."""
    return await (await _adefault()).anext_id()


async def anext_ids(count: int) -> list[int]:
    """Make *count* ids with the generator of this process. See Generator.anext_ids()."""
    return await (await _adefault()).anext_ids(count)


async def _adefault() -> Generator:
    generator = _default.get("generator")
    return generator if generator is not None else await in_thread(default)


def warm_up(limit_s: float) -> None:
    """Claim for every generator of this process, or for its own one if there is no other and it has settings.

    For a server that is about to take requests. Never raises: what fails now is tried again by the first id.

    Blocks:
        for *limit_s* at most; a claim that takes longer goes on in the background.
    """
    thread = threading.Thread(target=_warm_up, name="snowredis-claim", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        log.warning(
            "no worker id after %.0f s; the claim goes on, and ids are made as soon as there is one", limit_s
        )


def _warm_up() -> None:
    living = [member for member in EXIT.members if isinstance(member, Generator) and not member.closed]
    try:
        if not living and (_configured or any(name.startswith("SNOWREDIS_") for name in os.environ)):
            living = [default()]
        for generator in living:
            generator.claim()
    except SnowredisError as error:
        log.warning("no worker id yet, the first id will try again: %s", error)


def close() -> None:
    """Give the worker id of this process' generator back. The next next_id() makes a new generator."""
    generator = _default.pop("generator", None)
    if generator is not None:
        generator.close()
