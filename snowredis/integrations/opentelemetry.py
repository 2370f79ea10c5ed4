"""OpenTelemetry: observable instruments for the generators of this process.

    from snowredis.integrations import opentelemetry
    opentelemetry.instrument()          # with the global meter provider, or meter_provider=...

They are read when the SDK exports; nothing runs in between, and making an id costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from snowredis import __version__
from snowredis.monitor.process_metrics import COUNTERS, Counters, TotalsTracker
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
_GAUGES: dict[str, tuple[str, str, Callable[[Counters], float | None]]] = {
    "leases": ("{lease}", "worker ids leased", lambda counters: counters.leases),
    "lease.left": (
        "s",
        "time until the first reservation of this process ends",
        lambda counters: counters.lease_left_s,
    ),
    "heartbeat.duration": ("s", "round trip of the last heartbeat", lambda counters: counters.heartbeat_s),
    "clock.offset": (
        "s",
        "clock of this host minus the Redis clock",
        lambda counters: counters.clock_offset_s,
    ),
}


def instrument(meter_provider: MeterProvider | None = None) -> None:
    """Create the instruments ``snowredis.*`` for the generators of this process, also for later ones.

    Call it once, after the SDK is set up; in forked workers, where the SDK is set up in them.
    """
    meter: Any = get_meter("snowredis", __version__, meter_provider)
    totals = TotalsTracker(lambda: EXIT.members)

    def counter_callback(name: str, label: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for pool, counters in totals.by_pool().items():
                for full_name, value in counters.totals.items():
                    counter, _colon, label_value = full_name.partition(":")
                    if counter == name:
                        yield Observation(value, {"pool": pool, **({label: label_value} if label else {})})

        return observe

    def gauge_callback(
        read: Callable[[Counters], float | None],
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for pool, counters in totals.by_pool().items():
                value = read(counters)
                if value is not None:
                    yield Observation(value, {"pool": pool})

        return observe

    for name, (text, label) in COUNTERS.items():
        meter.create_observable_counter(
            f"snowredis.{name}",
            callbacks=[counter_callback(name, label)],
            unit=_UNITS[name],
            description=text,
        )
    for name, (unit, text, read) in _GAUGES.items():
        meter.create_observable_gauge(
            f"snowredis.{name}", callbacks=[gauge_callback(read)], unit=unit, description=text
        )
