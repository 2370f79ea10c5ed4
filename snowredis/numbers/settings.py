"""Every setting of numbers, declared once: snowredis.generator(), environment, commands and docs follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from snowredis import settings
from snowredis.errors import ConfigError
from snowredis.numbers import formats
from snowredis.numbers.formats import PeriodName
from snowredis.numbers.protocol import MAX_NUMBER

Servers: TypeAlias = "settings.Server | Sequence[settings.Server]"

DEFAULT_STEP = 1_000
DEFAULT_MAX_STEP = 1_000_000
# as Leaf's
DEFAULT_PERIOD_S = 900.0
DEFAULT_SKEW_S = 2.5
TAG_NAME = settings.POOL_NAME._replace(what=settings.POOL_NAME.what.replace("orders", "invoices"))

# larger segments are probably mistakes
MAX_STEP = 10**12


def _at_most(most: int) -> settings.Kind:
    what = f"a whole number from 1 to {most}"
    return settings.WHOLE._replace(
        what=what, accepts=lambda value: settings.WHOLE.accepts(value) and 1 <= value <= most
    )


def servers_of(url: Any) -> Sequence[Any]:
    """Return the servers of the setting ``url``: of a list, or of a text with several URLs separated by spaces."""
    urls = url.split() if isinstance(url, str) else []
    if len(urls) > 1 and all("://" in each for each in urls):
        return urls
    return url if isinstance(url, list | tuple) else [url]


# of segments and of dated numbers
_DURABILITY = settings.Setting(
    "durability",
    settings.one_of(Literal["detect", "assured"]),
    "detect",
    "detect",
    "whether Redis may lose writes that it acknowledged: `detect`: yes, in a restart or failover, after which the tag, "
    "or the current period, is closed; `assured`: never",
)
_REDIS_SKEW = settings.Setting(
    "redis_skew",
    settings.SECONDS,
    DEFAULT_SKEW_S,
    "2.5 s",
    "how far the clocks of two Redis servers may differ",
)
_FAILOVER_SLACK = settings.Setting(
    "failover_slack",
    settings.SECONDS,
    None,
    "0 s; 15 s under Sentinel and Cluster",
    "how long a deposed master may go on answering",
)

# columns: name, kind, default, default in the docs, help
# fmt: off
SEGMENT_SETTINGS: Mapping[str, settings.Setting] = {setting.name: setting for setting in (
    settings.URL_SETTING._replace(
            help="the Redis, as for connect(); or a list of independent servers, each with a share of the tag"),
    settings.Setting("tag", TAG_NAME, "default", "default",
            "the sequence of numbers: processes that must not repeat each other's numbers use the same; letters, "
            "digits, _ . -"),
    settings.Setting("start", settings.WHOLE, 1, "1",
            "the first number", of_pool=True),
    settings.Setting("maximum", settings.WHOLE, MAX_NUMBER, "2^63 - 1",
            "the last number", of_pool=True),
    settings.Setting("step", _at_most(MAX_STEP), DEFAULT_STEP, f"{DEFAULT_STEP:,}",
            "how many numbers the first segment has, and the least of any"),
    settings.Setting("max_step", _at_most(MAX_STEP), DEFAULT_MAX_STEP, f"{DEFAULT_MAX_STEP:,}",
            "the most numbers of a segment; a crash leaves at most two of them unused"),
    settings.Setting("period", settings.SECONDS, DEFAULT_PERIOD_S, "900 s",
            "how long a segment shall last: its size follows the consumption"),
    settings.Setting("prefetch", settings.BOOL, True, "on",
            "fetch a segment before it is needed; off: when a caller waits for it"),
    _DURABILITY._replace(of_pool=True),
    _FAILOVER_SLACK._replace(of_pool=True),
    settings.Setting("min_replicas", settings.REPLICAS, 0, "0",
            "how many replicas must have each segment before it counts, or `all`"),
    settings.Setting("label", settings.TEXT, "", "none",
            "name of this process, shown to people; at most 100 characters"),
)}
# fmt: on
# a constant that processes learn from the tag
SHARE = settings.Setting(
    "share",
    settings.TEXT,
    "1/1",
    "1/1",
    "this server's share of the numbers, fixed when the tag is created: `1/2` and `2/2` on two independent servers",
    of_pool=True,
)
# constants that can be changed
CHANGEABLE = ("maximum", "durability", "failover_slack")


# fmt: off
DATED_SETTINGS: Mapping[str, settings.Setting] = {setting.name: setting for setting in (
    settings.SETTINGS["url"],
    settings.Setting("tag", TAG_NAME, None, "none",
            "name of the numbers: processes that must not repeat each other's use the same; letters, digits, _ . -"),
    settings.Setting("period", settings.one_of(PeriodName), "day", "day",
            "numbers start again each `hour`, `day`, `month` or `year`"),
    settings.Setting("zone", settings.TEXT, "UTC", "UTC",
            "name of the time zone of the period, such as `Europe/Berlin`"),
    settings.Setting("format", settings.TEXT, None, "by period; of a day, `{date:%Y%m%d}-{number:06}`",
            "text of a number, as for Python's `str.format()`, with the fields `date` (the beginning of the period), "
            "`number` and `tag`; it has to show the whole period"),
    settings.Setting("maximum", _at_most(formats.MAX_NUMBER), None, "as many digits as in the format",
            "the highest number of a period"),
    _DURABILITY,
    _REDIS_SKEW,
    _FAILOVER_SLACK,
    settings.SETTINGS["min_replicas"],
    settings.Setting("bound", settings.ANYTHING, None, "none",
            "function that returns the highest number in use of a period, called instead of raising NumbersClosed"),
)}
# fmt: on


def check_settings(given: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings that are not valid; names that are no settings are ignored."""
    for name, setting in DATED_SETTINGS.items():
        if name in given:
            setting.check(given[name])
    if given.get("tag") is None:
        raise ConfigError("dated numbers need a tag, their name, such as tag='invoices'")
    if len(servers_of(given.get("url"))) > 1:
        raise ConfigError("dated numbers need one server, not a list: each server would start at 1")
