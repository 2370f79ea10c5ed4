"""The settings of dated numbers, each declared once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from snowredis.dated.periods import PeriodName
from snowredis.errors import ConfigError
from snowredis.settings import ANYTHING, POOL_NAME, SECONDS, SETTINGS, TEXT, Kind, Setting, as_int, one_of

# longer blocks are a mistake
MAX_BLOCK = 1_000_000
MAX_NUMBER = 10**14


def _at_most(most: int) -> Kind:
    def convert(value: Any) -> Any:
        try:
            return as_int(value)
        except TypeError:
            return value

    return Kind(
        f"a whole number from 1 to {most}",
        int,
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most,
        convert=convert,
    )


# fmt: off
DATED_SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in (
    SETTINGS["url"],
    Setting("tag", POOL_NAME, None, "none",
            "name of the numbers: processes that must not repeat each other's use the same; letters, digits, _ . -"),
    Setting("period", one_of(PeriodName), "day", "day",
            "numbers start again each `hour`, `day`, `month` or `year`"),
    Setting("zone", TEXT, "UTC", "UTC",
            "name of the time zone of the period, such as `Europe/Berlin`"),
    Setting("format", TEXT, None, "by period; of a day, `{date:%Y%m%d}-{number:06}`",
            "text of a number, as for Python's `str.format()`, with the fields `date` (the beginning of the period), "
            "`number` and `tag`; it has to show the whole period"),
    Setting("block", _at_most(MAX_BLOCK), 1, "1",
            "how many numbers a process gets from Redis at once; those left at the end of a period are gaps"),
    Setting("maximum", _at_most(MAX_NUMBER), None, "as many digits as in the format",
            "the highest number of a period"),
    Setting("durability", one_of(Literal["detect", "assured"]), "detect", "detect",
            "whether Redis may lose writes that it acknowledged: `detect`: yes, in a restart or failover, after which "
            "the current period is closed; `assured`: never"),
    Setting("redis_skew", SECONDS, 2.5, "2.5 s",
            "how far the clocks of two Redis servers may differ"),
    Setting("failover_slack", SECONDS, None, "0 s; 15 s under Sentinel and Cluster",
            "how long a deposed master may go on answering"),
    SETTINGS["min_replicas"],
    Setting("bound", ANYTHING, None, "none",
            "function that returns the highest number in use of a period, called instead of raising PeriodClosed"),
)}
# fmt: on


def check_settings(given: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings that are not valid; names that are no settings are ignored."""
    for name, setting in DATED_SETTINGS.items():
        if name in given:
            setting.check(given[name])
    if given.get("tag") is None:
        raise ConfigError("dated numbers need a tag, their name, such as tag='invoices'")
    if isinstance(given.get("url"), list | tuple):
        raise ConfigError("dated numbers need one server, not a list: each server would start at 1")
