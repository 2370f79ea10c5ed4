"""Every setting of numbers, declared once, and the constants of a tag of segments, which are made from some of them.

snowredis.generator(), environment, commands and docs follow from the declarations. Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from snowredis import settings
from snowredis.core.as_json import IdNumber
from snowredis.errors import ConfigError, shown
from snowredis.numbers import formats
from snowredis.numbers.formats import PeriodName
from snowredis.servers.scripts import with_format

Servers: TypeAlias = "settings.Server | Sequence[settings.Server]"

# version of what is stored; see FORMATS in snowredis.signatures
FORMAT = 4
# exact in Lua's doubles, 16 digits
MAX_POSITION = 9_000_000_000_000_000
MAX_NUMBER = 2**63 - 1
# larger segments are probably mistakes
MAX_STEP = 10**12


def _whole(least: int, most: int) -> settings.Kind:
    return settings.WHOLE._replace(
        what=f"a whole number from {least} to {most}",
        accepts=lambda value: settings.WHOLE.accepts(value) and least <= value <= most,
    )


# columns: name, kind, default, default in the docs, help
# fmt: off
# settings that segments and dated numbers share
_TAG = settings.Setting("tag",
    settings.POOL_NAME._replace(what=settings.POOL_NAME.what.replace("orders", "invoices")), "default", "default",
    "name of the numbers: processes that must not repeat each other's use the same; letters, digits, _ . -")
_DURABILITY = settings.Setting("durability", settings.one_of(Literal["detect", "assured"]), "detect", "detect",
    "whether Redis may lose writes that it acknowledged: `detect`: yes, in a restart or failover, after which the tag, "
    "or the current period, is closed; `assured`: never", of_pool=True)
_FAILOVER_SLACK = settings.Setting("failover_slack", settings.SECONDS, None, "0 s; 15 s under Sentinel and Cluster",
    "how long a deposed master may go on answering", of_pool=True)
SEGMENT_SETTINGS: Mapping[str, settings.Setting] = {setting.name: setting for setting in (
    settings.URL_SETTING._replace(
            help="the Redis, as for connect(); or a list of independent servers, each with a share of the tag"),
    _TAG,
    settings.Setting("start", _whole(0, MAX_NUMBER), 1, "1",
            "the first number", of_pool=True),
    settings.Setting("maximum", _whole(0, MAX_NUMBER), MAX_NUMBER, "2^63 - 1",
            "the last number", of_pool=True),
    settings.Setting("step", _whole(1, MAX_STEP), 1_000, "1,000",
            "how many numbers the first segment has, and the least of any"),
    settings.Setting("max_step", _whole(1, MAX_STEP), 1_000_000, "1,000,000",
            "the most numbers of a segment; a crash leaves at most two of them unused"),
    # Leaf, of Meituan, has the same default
    settings.Setting("period", settings.SECONDS, 900.0, "900 s",
            "how long a segment shall last: its size follows the consumption"),
    settings.Setting("prefetch", settings.BOOL, True, "on",
            "fetch a segment before it is needed; off: when a caller waits for it"),
    _DURABILITY,
    _FAILOVER_SLACK,
    settings.Setting("min_replicas", settings.REPLICAS, 0, "0",
            "how many replicas must have each segment before it counts, or `all`"),
    settings.Setting("label", settings.TEXT, "", "none",
            "name of this process, shown to people; at most 100 characters"),
)}
# a constant that processes learn from the tag
SHARE = settings.Setting("share", settings.TEXT, "1/1", "1/1",
    "this server's share of the numbers, fixed when the tag is created: `1/2` and `2/2` on two independent servers",
    of_pool=True)
DATED_SETTINGS: Mapping[str, settings.Setting] = {setting.name: setting for setting in (
    settings.SETTINGS["url"],
    _TAG,
    settings.Setting("period", settings.one_of(PeriodName), "day", "day",
            "numbers start again each `hour`, `day`, `month` or `year`", of_pool=True),
    settings.Setting("zone", settings.TEXT, "UTC", "UTC",
            "name of the time zone of the period, such as `Europe/Berlin`", of_pool=True),
    settings.Setting("format", settings.TEXT, None, "by period; of a day, `{date:%Y%m%d}-{number:06}`",
            "text of a number, as for Python's `str.format()`, with the fields `date` (the beginning of the period), "
            "`number` and `tag`; it has to show the whole period", of_pool=True),
    settings.Setting("maximum", _whole(1, formats.MAX_NUMBER), None, "as many digits as in the format",
            "the highest number of a period", of_pool=True),
    _DURABILITY,
    settings.SETTINGS["redis_skew"]._replace(default=2.5, default_text="2.5 s", of_pool=False),
    _FAILOVER_SLACK,
    settings.SETTINGS["min_replicas"],
)}
# fmt: on


def servers_of(url: Any) -> Sequence[Any]:
    """Return the servers of the setting ``url``: of a list, or of a text with several URLs separated by spaces."""
    urls = url.split() if isinstance(url, str) else []
    if len(urls) > 1 and all("://" in each for each in urls):
        return urls
    return url if isinstance(url, list | tuple) else [url]


def with_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of segments: those that are *given*, checked, else their defaults. Raises ConfigError."""
    declared = {**SEGMENT_SETTINGS, "share": SHARE}
    defaults = {name: setting.default for name, setting in declared.items()}
    return defaults | settings.check_settings(given, declared, " of segments")


def as_options(given: Mapping[str, Any]) -> str:
    """Return settings as options of a command, each after a space."""
    return "".join(f" --{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in given.items())


# --- constants of a tag of segments --------------------------------------------------------------------

_SIGNATURE = re.compile(
    rf"format={FORMAT} start=(?P<start>\d+) maximum=(?P<maximum>\d+) share=(?P<share>\d+/\d+) "
    r"durability=(?P<durability>detect|assured) failover_slack_ms=(?P<failover_slack_ms>\d+)"
)
_SHARE = re.compile(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TagConfig:
    """Constants of a tag of segments, the same in all its processes.

    Attributes:
        tag: its name.
        start: the first number.
        maximum: the last number that may be handed out.
        durability: "detect": a restart or failover of Redis closes the tag; "assured": Redis never loses a write that
            it acknowledged.
        failover_slack_ms: how long a deposed master may go on answering.
        share: (index, count): this server has share *index* of *count*, from 0: the numbers with
            (number - start) % count == index. People count from 1: "1/2" is (0, 2).

    Raises:
        ConfigError: there are too few numbers.
    """

    tag: str
    start: IdNumber = 1
    maximum: IdNumber = MAX_NUMBER
    durability: str = "detect"
    failover_slack_ms: int = 0
    share: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        if self.start + self.share[1] - 1 > self.maximum:
            raise ConfigError(
                f"the numbers from {self.start} to {self.maximum} are too few: each of {self.share[1]} shares needs at "
                "least one. Raise maximum."
            )

    @property
    def assured(self) -> bool:
        """True if Redis never loses a write that it acknowledged."""
        return self.durability == "assured"

    @property
    def size(self) -> int:
        """Return how many positions this server has."""
        index, count = self.share
        return min((self.maximum - self.start - index) // count + 1, MAX_POSITION)

    @property
    def _constants(self) -> dict[str, Any]:
        return {
            "start": self.start,
            "maximum": self.maximum,
            "share": share_text(self.share),
            "durability": self.durability,
            "failover_slack_ms": self.failover_slack_ms,
        }

    @property
    def signature(self) -> str:
        """Return the constants as text. They are stored in the tag, and compared by every script."""
        return with_format(FORMAT, " ".join(f"{name}={value}" for name, value in self._constants.items()))

    @property
    def options(self) -> str:
        """Return the settings that are not the defaults, as options of a command."""
        usual = TagConfig(tag=self.tag)._constants
        given = {name: value for name, value in self._constants.items() if value != usual[name]}
        if "failover_slack_ms" in given:
            given["failover_slack"] = given.pop("failover_slack_ms") / 1000
        return as_options(given)

    def number_at(self, position: int) -> int:
        """Return the number at *position*; one beyond the maximum if all are handed out."""
        index, count = self.share
        return self.start + index + position * count

    def numbers(self, position: int, until: int) -> range:
        """Return the numbers at the positions in [position, until)."""
        return range(self.number_at(position), self.number_at(until), self.share[1])

    def position_from(self, number: int) -> int:
        """Return the first position whose number is *number* or more; ``size`` if there is none."""
        index, count = self.share
        return min(max(0, -((self.start + index - number) // count)), self.size)


def parse_signature(tag: str, signature: str) -> TagConfig:
    """Return the constants that a stored *signature* describes. Raises ConfigError if it is not valid."""
    found = _SIGNATURE.fullmatch(signature)
    if found is None:
        raise ConfigError(
            f"the tag {tag!r} has a signature that this version of snowredis does not write: {shown(signature)}. Use "
            "the version that created it, or another tag."
        )
    fields = found.groupdict()
    share, durability = parse_share(fields.pop("share")), fields.pop("durability")
    numbers = {name: int(text) for name, text in fields.items()}
    return TagConfig(tag=tag, durability=durability, share=share, **numbers)


def share_text(share: tuple[int, int]) -> str:
    """Return a share as people write it: "1/2" is the first of two."""
    return f"{share[0] + 1}/{share[1]}"


def parse_share(text: str) -> tuple[int, int]:
    """Parse a share, "1/2". Raises ConfigError."""
    found = _SHARE.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        raise ConfigError(f"share must be K/N, such as 1/2 for the first of two servers, not {shown(text)}")
    return int(found[1]) - 1, int(found[2])
