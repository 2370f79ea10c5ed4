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
from snowredis.monitor.metrics import PROCESS, Metric, Samples, SegmentTotals, TotalsTracker, by_metric, new_durations
from snowredis.process.exit import EXIT
from snowredis.process.fork import GUARD
from snowredis.snowflake.lease.context import BOUNDS_S, Durations

_Callback = Callable[[CallbackOptions], Iterable[Observation]]


def instrument(meter_provider: MeterProvider | None = None) -> None:
    """Create the instruments ``snowredis.*`` for the generators of this process, also for later ones.

    Call it once, after the SDK is set up; in forked workers, where the SDK is set up in them.
    """
    meter: Any = get_meter("snowredis", __version__, meter_provider)
    totals = TotalsTracker(lambda: EXIT.members)
    histograms = {metric: _histogram(meter, metric) for metric in PROCESS if metric.kind == "histogram"}
    before: Samples = {}

    def record_durations() -> None:
        for (metric, labels), now in totals.samples().items():
            if metric.kind == "histogram":
                for duration in new_durations(before.get((metric, labels), Durations()), now):
                    histograms[metric].record(duration, {"pool": labels[0]})
                before[metric, labels] = now

    segments = SegmentTotals(lambda: GUARD.members)

    def callback(metric: Metric, of: TotalsTracker) -> _Callback:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            if metric is PROCESS[0]:
                # histograms have no callback of their own: they are recorded when the first counter is read
                record_durations()
            for labels, value in by_metric(of.samples()).get(metric, {}).items():
                yield Observation(value, dict(zip(metric.labels, labels, strict=True)))

        return observe

    for of in (totals, segments):
        for metric in of.metrics:
            if metric.kind != "histogram":
                counter = metric.kind == "counter"
                create = meter.create_observable_counter if counter else meter.create_observable_gauge
                create(metric.otel, callbacks=[callback(metric, of)], unit=metric.unit, description=metric.text)


def _histogram(meter: Any, metric: Metric) -> Any:
    return meter.create_histogram(
        metric.otel, unit=metric.unit, description=metric.text, explicit_bucket_boundaries_advisory=list(BOUNDS_S)
    )
