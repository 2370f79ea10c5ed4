"""OpenTelemetry: observable instruments for the generators of this process.

    from snowredis.integrations import opentelemetry
    opentelemetry.instrument()          # with the global meter provider, or meter_provider=...

They are read when the SDK exports; nothing runs in between, and making an id costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from snowredis import __version__
from snowredis.monitor.process_metrics import COUNTERS, GAUGES, Counters, TotalsTracker
from snowredis.runtime.exit import EXIT

_UNITS = {
    "ids": "{id}",
    "waits": "{wait}",
    "ceiling_hits": "{hit}",
    "ceiling_wait_seconds": "s",
    "clock_backs": "{step}",
    "claims": "{claim}",
    "renewals": "{renewal}",
    "renewals_failed": "{renewal}",
    "leases_lost": "{lease}",
}
# field of Counters -> name of the instrument, and its unit
_GAUGES = {
    "leases": ("leases", "{lease}"),
    "lease_left_s": ("lease.left", "s"),
    "heartbeat_s": ("heartbeat.duration", "s"),
    "clock_offset_s": ("clock.offset", "s"),
}
# values with their labels besides the pool
_Values: TypeAlias = Iterable[tuple[float, dict[str, str]]]


def instrument(meter_provider: MeterProvider | None = None) -> None:
    """Create the instruments ``snowredis.*`` for the generators of this process, also for later ones.

    Call it once, after the SDK is set up; in forked workers, where the SDK is set up in them.
    """
    meter: Any = get_meter("snowredis", __version__, meter_provider)
    totals = TotalsTracker(lambda: EXIT.members)

    def callbacks(
        values: Callable[[Counters], _Values],
    ) -> list[Callable[[CallbackOptions], Iterable[Observation]]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for pool, counters in totals.by_pool().items():
                for value, labels in values(counters):
                    yield Observation(value, {"pool": pool, **labels})

        return [observe]

    for name, (text, label) in COUNTERS.items():
        meter.create_observable_counter(
            f"snowredis.{name}",
            callbacks=callbacks(partial(_counter_values, name, label)),
            unit=_UNITS[name],
            description=text,
        )
    for field, (name, unit) in _GAUGES.items():
        meter.create_observable_gauge(
            f"snowredis.{name}",
            callbacks=callbacks(partial(_gauge_values, field)),
            unit=unit,
            description=GAUGES[field],
        )


def _counter_values(name: str, label: str, counters: Counters) -> _Values:
    """Yield the totals of one of COUNTERS."""
    for full_name, value in counters.totals.items():
        counter, _colon, label_value = full_name.partition(":")
        if counter == name:
            yield value, {label: label_value} if label else {}


def _gauge_values(field: str, counters: Counters) -> _Values:
    """Yield the value of one of GAUGES; nothing if it is unknown."""
    value = getattr(counters, field)
    if value is not None:
        yield value, {}
