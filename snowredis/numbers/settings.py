"""Every setting of numbers, declared once: snowredis.generator(), environment, commands and docs follow. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from snowredis import settings
from snowredis.numbers.formats import MAX_NUMBER, PeriodName

# larger segments are probably mistakes
MAX_STEP = 10**12
# one tag on more servers is probably a mistake, too
MAX_STRIDE = 1_000


def _whole(least: int, most: int) -> settings.Kind:
    return settings.WHOLE._replace(
        what=f"a whole number from {least} to {most}",
        accepts=lambda value: settings.WHOLE.accepts(value) and least <= value <= most,
    )


# columns: name, kind, default, default in the docs, help. "of_pool": a constant of the tag, stored when it is created
# fmt: off
NUMBER_SETTINGS: Mapping[str, settings.Setting] = {setting.name: setting for setting in (
    settings.URL_SETTING._replace(
            help="the Redis, as for connect(); of segments also a list of independent servers"),
    settings.Setting("tag",
            settings.POOL_NAME._replace(what=settings.POOL_NAME.what.replace("orders", "invoices")),
            "default", "default",
            "name of the numbers: processes that must not repeat each other's use the same; letters, digits, _ . -"),
    settings.Setting("start", _whole(0, MAX_NUMBER), 1, "1",
            "the first number", of_pool=True),
    settings.Setting("stride", _whole(1, MAX_STRIDE), 1, "1",
            "the distance of the numbers: with `start` 1 and 2 and stride 2, two servers hand out odd and even ones",
            of_pool=True),
    settings.Setting("maximum", _whole(1, MAX_NUMBER), None, "as many digits as in the format, else 9 · 10^15",
            "the highest number, of each period", of_pool=True),
    settings.Setting("durability", settings.one_of(Literal["detect", "assured"]), None, "detect; assured at embedded://",
            "whether Redis may lose writes that it acknowledged: `detect`: yes, in a restart or failover, after which "
            "the tag, or the current period, is closed; `assured`: never", of_pool=True),
    # that of a pool has the difference of two clocks in it, for which the scripts of numbers have SKEW_MS
    settings.SETTINGS["failover_slack"]._replace(
            default_text="0 s; 15 s under Sentinel and Cluster", help="how long a deposed master may go on answering"),
    settings.SETTINGS["min_replicas"]._replace(
            help="how many replicas must have what was handed out before it counts, or `all`"),
    settings.Setting("step", _whole(1, MAX_STEP), 1_000, "1,000",
            "how many numbers the first segment has, and the least of any"),
    settings.Setting("max_step", _whole(1, MAX_STEP), 1_000_000, "1,000,000",
            "the most numbers of a segment; a crash leaves at most two of them unused. With 1, nothing is prefetched"),
    settings.Setting("period", settings.one_of(PeriodName), "day", "day",
            "numbers start again each `hour`, `day`, `month` or `year`, or never: `ever`"),
    settings.Setting("zone", settings.TEXT, "UTC", "UTC",
            "name of the time zone of the period, such as `Europe/Berlin`"),
    settings.Setting("year_begins", _whole(1, 12), 1, "1",
            "month with which a year begins, such as 4 for a financial year from April"),
    settings.Setting("format", settings.TEXT, None, "by period; of a day, `{date:%Y%m%d}-{number:06}`",
            "text of a number, as for Python's `str.format()`, with the fields `date` and `end` (the beginning and the "
            "last day of the period), `number` and `tag`; it has to show the whole period"),
)}
# fmt: on


def some_of(*names: str) -> Mapping[str, settings.Setting]:
    """Return the settings of these names, by name."""
    return {name: NUMBER_SETTINGS[name] for name in names}


# what processes set
SEGMENT_SETTINGS = some_of("url", "tag", "step", "max_step", "min_replicas")
DATED_SETTINGS = some_of("url", "tag", "period", "zone", "year_begins", "format", "maximum", "min_replicas")
# what is stored in a tag when it is created; in one of dated numbers also the others
TAG_CONSTANTS = some_of("start", "stride", "maximum", "durability", "failover_slack")
DATED_CONSTANTS = some_of("period", "zone", "year_begins", "format")


def servers_of(url: Any) -> Sequence[Any]:
    """Return the servers of the setting ``url``: of a list, or of a text with several URLs separated by spaces."""
    urls = url.split() if isinstance(url, str) else []
    if len(urls) > 1 and all("://" in each for each in urls):
        return urls
    return url if isinstance(url, list | tuple) else [url]


def as_options(given: Mapping[str, Any]) -> str:
    """Return settings as options of a command, each after a space."""
    return "".join(f" --{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in given.items())
