"""OpenTelemetry: observable instruments for what this process' generators do.

    from snowredis.integrations import opentelemetry
    opentelemetry.instrument()          # the global meter provider, or meter_provider=...

Numbers are read when the SDK exports; nothing runs in between, and nothing on the path of an id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from snowredis import __version__
from snowredis.monitor.counters import COUNTERS, Counters, TotalsTracker
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
    "leases": ("{lease}", "worker ids held", lambda counted: counted.leases),
    "lease.left": (
        "s",
        "until the first reservation of this process ends",
        lambda counted: counted.lease_left_s,
    ),
    "heartbeat.duration": ("s", "round trip of the last heartbeat", lambda counted: counted.heartbeat_s),
    "clock.offset": ("s", "this host's clock less that of Redis", lambda counted: counted.clock_offset_s),
}


def instrument(meter_provider: MeterProvider | None = None) -> None:
    """Make the instruments ``snowredis.*`` for the generators of this process, those that are made later, too.

    Call it once, after the SDK was set up; in forked workers, where the SDK is set up.
    """
    meter: Any = get_meter("snowredis", __version__, meter_provider)
    totals = TotalsTracker(lambda: EXIT.members)

    def counter_callback(name: str, label: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for pool, counted in totals.look().items():
                for full, value in counted.totals.items():
                    what, _colon, detail = full.partition(":")
                    if what == name:
                        yield Observation(value, {"pool": pool, **({label: detail} if label else {})})

        return observe

    def gauge_callback(
        read: Callable[[Counters], float | None],
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for pool, counted in totals.look().items():
                value = read(counted)
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
