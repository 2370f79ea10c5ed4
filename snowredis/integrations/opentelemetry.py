"""OpenTelemetry: instruments for the generators of this process.

    from snowredis.integrations import opentelemetry
    opentelemetry.instrument()          # with the global meter provider, or meter_provider=...

They are read when the SDK exports; nothing runs in between, and making an id costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from snowredis import __version__
from snowredis.monitor.metrics import PROCESS, SEGMENTS, Metric, ProcessTotals, by_metric
from snowredis.process.fork import GUARD

_Callback = Callable[[CallbackOptions], Iterable[Observation]]


def instrument(meter_provider: MeterProvider | None = None) -> None:
    """Create the instruments ``snowredis.*`` for the generators of this process, also for later ones.

    Call it once, after the SDK is set up; in forked workers, where the SDK is set up in them.
    """
    meter: Any = get_meter("snowredis", __version__, meter_provider)
    totals = ProcessTotals(lambda: GUARD.members)

    def callback(metric: Metric) -> _Callback:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            for labels, value in by_metric(totals.samples()).get(metric, {}).items():
                yield Observation(value, dict(zip(metric.labels, labels, strict=True)))

        return observe

    for metric in (*PROCESS, *SEGMENTS):
        create = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
        create(metric.otel, callbacks=[callback(metric)], unit=metric.unit, description=metric.text)
