"""connect() and aconnect(): create a generator of ids from settings."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Mapping
from collections.abc import Generator as Steps
from types import TracebackType
from typing import Any, TypeVar, Unpack

from snowredis.core.lanes import ClockRules
from snowredis.core.layout import Layout
from snowredis.errors import LayoutError
from snowredis.process.clock import SYSTEM, Clock
from snowredis.settings import (
    COMMON,
    SETTINGS,
    AllSettings,
    Server,
    Setting,
    Settings,
    check_settings,
    pool_or_default,
    url_or_default,
)
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.open import has_registry, layout_of, open_store_from_settings
from snowredis.snowflake.protocol import Store

F = TypeVar("F", bound=Callable[..., Any])


class Connecting:
    """Result of aconnect(): ``async with`` it, or ``await`` it and call aclose() at the end."""

    def __init__(self, connect: Callable[[], SnowflakeGenerator]) -> None:
        self._connect = connect
        self._ids: SnowflakeGenerator | None = None

    def __await__(self) -> Steps[Any, None, SnowflakeGenerator]:
        return self._open().__await__()

    async def __aenter__(self) -> SnowflakeGenerator:
        self._ids = await self._open()
        return self._ids

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ids is not None:
            await self._ids.aclose()

    async def _open(self) -> SnowflakeGenerator:
        from snowredis.process.coroutines import in_background, in_thread

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


def _with_settings(function: F) -> F:
    """Show the settings in the signature of *function*, and in its manual instead of the line "Most used"."""
    url, *others = (_parameter(setting) for setting in SETTINGS.values())
    documented: Any = function
    documented.__signature__ = inspect.Signature(
        [url, *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in others)],
        return_annotation=function.__annotations__["return"],
    )
    lines = {name: f"    {name}: {setting.help}\n" for name, setting in SETTINGS.items()}
    common = "".join(lines.pop(name) for name in COMMON)
    manual = f"Args:\n{common}\nRarely needed:\n{''.join(lines.values())}"
    # python -OO has no docstrings
    own = inspect.cleandoc(function.__doc__ or "")
    documented.__doc__ = re.sub(r"Most used: .*\n", lambda _: manual, own)
    return function


def _parameter(setting: Setting) -> inspect.Parameter:
    hint = AllSettings.__annotations__[setting.name]
    kind = getattr(hint, "__origin__", hint)
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=setting.default,
        annotation=getattr(kind, "__forward_arg__", kind),
    )


@_with_settings
def connect(url: Server | None = None, **settings: Unpack[Settings]) -> SnowflakeGenerator:
    """Return a generator of ids. It claims its worker id at its first id, or at claim().

    A duration is in seconds, unless its name ends in ``_ms``.

    Most used: url, pool, layout, datacenter, ttl, label, durability, claim_timeout. help() describes all settings.

    Raises:
        ConfigError, LayoutError: a setting, or a combination, that cannot work. Nothing connects yet.
        StoreUnavailable: the server of embedded:// does not start.
    """
    return _open(check_settings({"url": url, **settings}))


@_with_settings
def aconnect(url: Server | None = None, **settings: Unpack[Settings]) -> Connecting:
    """Async version of connect() that claims the worker id at once. Does not block the event loop.

    ``async with snowredis.aconnect(...) as ids:``, or ``ids = await snowredis.aconnect(...)`` and, at the end,
    ``await ids.aclose()``. Under asyncio, uvloop and trio. Raises ConfigError at the call for a setting that is
    unknown or not valid.
    """
    given = check_settings({"url": url, **settings})
    return Connecting(lambda: _open(given))


def _open(given: Mapping[str, Any]) -> SnowflakeGenerator:
    used = {name: setting.default for name, setting in SETTINGS.items()} | dict(given)
    url, used["pool"] = url_or_default(used.pop("url")), pool_or_default(used["pool"])
    clock = used.pop("clock") or _clock_of(url) or SYSTEM
    check_end(layout_of(used["layout"]), clock.time_ns() // 1_000_000)
    rules = ClockRules(
        policy=used["clock_policy"],
        tolerance_ms=used["clock_tolerance_ms"],
        max_wait_ms=used["max_wait_ms"],
        max_ahead_ms=used["max_ahead_ms"],
        overflow=used["overflow"],
    )
    return SnowflakeGenerator(
        _open_store(url, used),
        clock=clock,
        rules=rules,
        # ids of a test are the same in every run
        sequence_start=used["sequence_start"] if clock is SYSTEM else given.get("sequence_start", "zero"),
        sequence_start_bound=used["sequence_start_bound"],
        claim_timeout=used["claim_timeout"],
        label=used["label"],
    )


def _open_store(url: Server, settings: Mapping[str, Any]) -> Store:
    if not has_registry(settings):
        return open_store_from_settings(url, settings)
    # loaded for pools of a registry only
    from snowredis.snowflake.registration import open_registered

    # 0 is the default: a pool whose registry is named has its number
    return open_registered(url, {**settings, "datacenter": settings["datacenter"] or "auto"})


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
        log.warning("the layout's timestamp bits last only until %s: plan to move to another layout", layout.end)
