"""A real Prometheus that scrapes the service of a fleet, and the alerts that fired.

The rules are those of docs/alerts.yml, for a ttl of 30 s; with a shorter ttl, the times in them are shorter by the same
factor, so that what was seen is in proportion. Rules are evaluated every second.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.prometheus import PROMETHEUS, START_LIMIT_S, Prometheus
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
# of a pool whose Redis hangs, a scrape takes a second
SCRAPE = "2s"
# that the rules are written for
DEFAULT_TTL_S = 30.0
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# "for: 20s", "[10m]", "[7d:1h]", "offset 1h"
_TIME = re.compile(r"(?:(?<=for: )|(?<=offset )|(?<=\[)|(?<=[smhd]:))(\d+)([smhd])\b")


class Alerts:
    """The alerts of one fleet.

    Args:
        directory: a new one, for the data of Prometheus.
        port: of the service on 127.0.0.1.
        ttl_s: of the pool.
    """

    def __init__(self, directory: Path, port: int, ttl_s: float = 6.0) -> None:
        rules = (ROOT / "docs" / "alerts.yml").read_text("utf-8")
        self._server = Prometheus(directory, port, scaled(rules, ttl_s / DEFAULT_TTL_S), SCRAPE)

    @staticmethod
    def available() -> bool:
        """Return whether there is a Prometheus on PATH."""
        return PROMETHEUS is not None

    def start(self) -> None:
        """Start Prometheus and wait until it has scraped twice, so that it sees a change."""
        self._server.start()
        scraped = "count_over_time(snowredis_pool_up[1m]) > 1"
        eventually(lambda: self._server.query(scraped), "a second scrape", START_LIMIT_S, ignored=(OSError,))

    def fired(self) -> dict[str, float]:
        """Return when each alert fired first, in s since 1970, the earliest first."""
        series = self._server.query('ALERTS{alertstate="firing"}[1h]')
        first = sorted((float(one["values"][0][0]), one["metric"]["alertname"]) for one in series)
        fired: dict[str, float] = {}
        for at_s, name in first:
            fired.setdefault(name, at_s)
        return fired

    def stop(self) -> None:
        """Kill Prometheus."""
        self._server.stop()


def scaled(rules: str, factor: float) -> str:
    """Return *rules* with all times multiplied by *factor*."""

    def shorter(match: re.Match[str]) -> str:
        return f"{max(1, round(int(match[1]) * _UNITS_MS[match[2]] * factor))}ms"

    return _TIME.sub(shorter, rules)
