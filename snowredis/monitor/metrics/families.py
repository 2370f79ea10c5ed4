"""Metrics with their values at one moment, and the text format of Prometheus. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from snowredis.core.durations import BOUNDS_S, Durations
from snowredis.monitor.metrics.catalog import Metric

# the ends of the buckets as Prometheus writes them; the last bucket has none
BUCKETS = (*map(repr, BOUNDS_S), "+Inf")


@dataclass(slots=True)
class Family:
    """A metric and its samples: values by the values of its labels."""

    metric: Metric
    samples: dict[tuple[str, ...], float | Durations] = field(default_factory=dict)

    def labeled(self) -> Iterator[tuple[dict[str, str], float | Durations]]:
        """Yield each sample with its labels by name."""
        for values, value in self.samples.items():
            yield dict(zip(self.metric.labels, values, strict=True)), value


def collected(samples: Iterable[tuple[Metric, tuple[str, ...], float | Durations]]) -> list[Family]:
    """Return one family for each metric, however many pools have samples of it: two of one name are not valid."""
    families: dict[str, Family] = {}
    for metric, labels, value in samples:
        families.setdefault(metric.name, Family(metric)).samples[labels] = value
    return list(families.values())


def cumulative(durations: Durations) -> list[tuple[str, int]]:
    """Return the buckets of a histogram as Prometheus counts them: each with those below it."""
    return list(zip(BUCKETS, itertools.accumulate(durations.counts), strict=True))


def as_text(families: Iterable[Family]) -> str:
    """Return *families* in the text format of Prometheus, version 0.0.4."""
    lines = []
    for family in families:
        name = family.metric.name
        lines += [f"# HELP {name} {family.metric.text}", f"# TYPE {name} {family.metric.kind}"]
        for labels, value in family.labeled():
            if isinstance(value, Durations):
                buckets = cumulative(value)
                lines += [_line(f"{name}_bucket", labels | {"le": end}, count) for end, count in buckets]
                lines.append(_line(f"{name}_count", labels, buckets[-1][1]))
                lines.append(_line(f"{name}_sum", labels, sum(value.sums_s)))
            else:
                lines.append(_line(name, labels, value))
    return "".join(f"{line}\n" for line in lines)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inner}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
