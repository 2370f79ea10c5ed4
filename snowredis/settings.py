"""Every setting of snowredis.connect(), declared once: name, type, kind, default and help.

The arguments of connect() with their manual, SNOWREDIS_* variables, the options of commands, the settings of the HTTP
service and the tables in the docs are made from Settings. Other kinds of ids declare theirs with the same parts.

A duration is in seconds, unless its name ends in ``_ms``: then it is in milliseconds. Imports nothing heavy, since
``snowredis --help`` and ``snowredis decode`` read this module. Annotations are values here, not text: SETTINGS is read
from those of Settings. At the end, variables are read for whatever is not given: the same ones everywhere.
"""

import functools
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, get_args

from snowredis.core.lanes import ClockPolicy
from snowredis.errors import PREFIX, ConfigError, did_you_mean, nearest

if TYPE_CHECKING:
    import redis

    from snowredis.core.layout import Layout
    from snowredis.process.clock import Clock


class InMemory(Protocol):
    """Pools in this process' memory: those of snowredis.testing."""

    def memory_store(self, config: Any) -> Any:
        """Return the store of the pool *config.name*."""


Server: TypeAlias = "str | redis.Redis | redis.RedisCluster | InMemory"


def is_embedded(server: Any) -> bool:
    """Return True for an embedded:// URL."""
    return isinstance(server, str) and server.startswith("embedded:")


def is_in_memory(server: Any) -> bool:
    """Return True for a pool of snowredis.testing."""
    return hasattr(server, "memory_store")


Durability: TypeAlias = Literal["detect", "assured", "none"]
MinReplicas: TypeAlias = int | Literal["all"]
Datacenter: TypeAlias = int | Literal["auto"]
SequenceStart: TypeAlias = Literal["spread", "zero"]

# what only looks at a Redis asks this one if none is named; what makes ids does not
DEFAULT_URL = "redis://localhost:6379/0"
# name of a pool in memory, which no other process can have
MEMORY_POOL = "test"
# what follows this in a variable is an object, which another process cannot have: see configure()
OBJECT = "#configure: "
# larger values are probably mistakes
MAX_REPLICAS = 100
# larger values are probably milliseconds
MAX_SECONDS = 1e6
_POOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_BOOLS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off", ""), False)


def plain(value: Any) -> Any:
    """Return text of a subclass of str, such as an Enum, as the str that it is: as text, it may be another."""
    return str.__str__(value) if isinstance(value, str) else value


class Kind(NamedTuple):
    """Kind of the values of a setting.

    Attributes:
        what: description of the values, for "NAME must be WHAT, not VALUE".
        parse: parses a value from text; may raise ValueError or KeyError.
        accepts: returns True for a valid value.
        choices: all values, if they are a few words.
        convert: returns a number of any type as an int or float, text as a str, anything else as it is.
    """

    what: str
    parse: Callable[[str], Any]
    accepts: Callable[[Any], bool]
    choices: tuple[str, ...] = ()
    convert: Callable[[Any], Any] = plain


class Setting(NamedTuple):
    """Declaration of one setting.

    Attributes:
        default: default of connect()'s argument; None if it depends on other settings.
        default_text: the default in the docs and in --help.
        of_pool: True for a constant of the pool, which has to be the same in all processes.
    """

    name: str
    kind: Kind
    default: Any
    default_text: str
    help: str
    of_pool: bool = False

    @property
    def variable(self) -> str:
        """Return the name of the environment variable."""
        return f"{PREFIX}{self.name.upper()}"

    def check(self, value: object) -> Any:
        """Return *value*, converted by its kind. None is valid if it is the default.

        Raises ConfigError for a value that is not valid.
        """
        converted = self.kind.convert(value)
        if not (self.kind.accepts(converted) or (value is None and self.default is None)):
            raise ConfigError(f"{self.name} must be {self.kind.what}, not {value!r}")
        return converted

    def read(self, text: str, name: str) -> Any:
        """Parse *text*. Raises ConfigError, in which the setting is called *name*."""
        if OBJECT in text:
            raise ConfigError(
                f"{name} is a {text.rpartition(OBJECT)[2]} in the process that called snowredis.configure(), which no "
                "other process and no other generator can have. Give configure() a URL there, or settings here."
            )
        try:
            value = self.kind.parse(text)
        except (ValueError, KeyError):
            value = None
        if value is None or not self.kind.accepts(value):
            raise ConfigError(f"{name} must be {self.kind.what}, not {text!r}")
        return value


def int_or_same(value: Any) -> Any:
    """Return a whole number of any type, such as numpy's, as an int; anything else as plain() does."""
    try:
        return value if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return plain(value)


def _number_or_same(value: Any) -> Any:
    value = int_or_same(value)
    # numpy's, Decimal and Fraction
    number = not isinstance(value, bool | int | float) and hasattr(type(value), "__float__")
    return float(value) if number else value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def one_of(literal: Any) -> Kind:
    """Return the kind of a setting whose values are those of a Literal type."""
    choices: tuple[str, ...] = get_args(literal)
    words = ", ".join(choices)
    return Kind(f"one of {words}", str, lambda value: isinstance(value, str) and value in choices, choices)


ANYTHING = Kind("anything", str, lambda _: True)
TEXT = Kind("a str", str, lambda value: isinstance(value, str))
BOOL = Kind("True or False", lambda text: _BOOLS[text.lower()], lambda value: isinstance(value, bool))
WHOLE = Kind("a whole number", int, _is_int, convert=int_or_same)
MS = Kind(
    "a whole number of milliseconds, 0 or more", int, lambda value: _is_int(value) and value >= 0, convert=int_or_same
)
SECONDS = Kind(
    f"seconds, 0 or more and less than {MAX_SECONDS:,.0f}",
    float,
    lambda value: _is_number(value) and 0 <= value < MAX_SECONDS,
    convert=_number_or_same,
)
# a timeout may be unlimited
TIMEOUT = Kind("seconds, 0 or more", float, lambda value: _is_number(value) and value >= 0, convert=_number_or_same)
URL = ANYTHING._replace(what=f"a URL, such as {DEFAULT_URL}", accepts=lambda value: value != "")
POOL_NAME = Kind(
    "1 to 64 letters, digits, '_', '.' or '-', such as 'orders'",
    str,
    lambda value: isinstance(value, str) and _POOL_NAME.fullmatch(value) is not None,
)
REPLICAS = Kind(
    f"0 to {MAX_REPLICAS}, or 'all'",
    lambda text: text if text == "all" else int(text),
    lambda value: value == "all" or (_is_int(value) and 0 <= value <= MAX_REPLICAS),
    convert=int_or_same,
)

DATACENTER = Kind(
    "a whole number, or 'auto'",
    lambda text: text if text == "auto" else int(text),
    lambda value: value == "auto" or _is_int(value),
    convert=int_or_same,
)
FIELDS = Kind(
    "a number for each name, such as 'region=1,business=7'",
    lambda text: {name: int(value) for name, _, value in (part.partition("=") for part in text.split(","))},
    lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value),
)

# a setting without its name: the key that it annotates is its name
_setting = functools.partial(Setting, "")
URL_SETTING = Setting(
    "url", URL, None, "SNOWREDIS_URL",
    "the Redis: `redis://`, `rediss://`, `unix://`, `embedded://` (a Redis of this machine, for development), "
    "`sentinel://h1:26379,h2:26379/MASTER/0`, `cluster://h1:7000,h2:7001`, a redis-py client of any of these, or "
    "a pool of snowredis.testing",
)  # fmt: skip


# each: kind, default, default in the docs, help
# fmt: off
class CommonSettings(TypedDict, total=False):
    """The settings that most people use, besides the URL."""

    pool: Annotated[str | None, _setting(POOL_NAME, None, "SNOWREDIS_POOL",
        "the set of worker ids: processes that must not repeat each other's ids use the same; letters, digits, _ . -")]
    layout: Annotated["Layout | str | None", _setting(ANYTHING, None, "41/0/2/10/10",
        "how the 63 bits are divided: a Layout, the name of a preset, or text such as `41/0/2/10/10`", of_pool=True)]
    datacenter: Annotated[Datacenter, _setting(DATACENTER, 0, "0",
        "value of the layout's datacenter bits; `auto`: the number that `snowredis pool create "
        "NAME --datacenter auto` gave to this pool", of_pool=True)]
    ttl: Annotated[float, _setting(SECONDS, 30.0, "30 s",
        "how long a lease and a reservation last without a heartbeat; a heartbeat is sent every ttl / 3, with "
        "a long failover_slack every ttl / 6", of_pool=True)]
    label: Annotated[str, _setting(TEXT, "", "none",
        "name of this process, shown to people who look at the pool; at most 100 characters")]
    durability: Annotated[Durability, _setting(one_of(Durability), "detect", "detect",
        "whether Redis may lose writes that it acknowledged: `detect`: yes, in a restart or failover, "
        "which can be detected; `assured`: never; `none`: yes, undetected, so every new worker waits", of_pool=True)]
    claim_timeout: Annotated[float, _setting(TIMEOUT, 10.0, "10 s",
        "how long to wait for a worker id while the pool is full or Redis does not reply in time, before "
        "`PoolExhausted` or `StoreUnavailable` is raised; calls of one generator share this time, so that only the "
        "first of them waits for all of it")]


class Settings(CommonSettings, total=False):
    """The keyword arguments of connect(): the common ones, and these, which are rarely needed."""

    fields: Annotated[Mapping[str, int] | None, _setting(FIELDS, None, "none",
        "values of the parts of the datacenter bits that the layout names, instead of `datacenter`", of_pool=True)]

    max_clock_lead: Annotated[float | None, _setting(SECONDS, None, "ttl / 12",
        "how far a host's clock may be ahead of the Redis clock before its reservations get shorter", of_pool=True)]
    failover_slack: Annotated[float | None, _setting(SECONDS, None, "ttl / 12; 15 s more under Sentinel and Cluster",
        "how far the clocks of two Redis servers may differ, plus how long a deposed master may go on answering; set "
        "it for any other address that moves in a failover: a DNS name, a Kubernetes Service, ElastiCache",
        of_pool=True)]
    outage_reserve: Annotated[float | None, _setting(SECONDS, None, "24 h with two backup bits or more, else 0",
        "for how long the highest namespace is reserved: processes go on in it while Redis is unavailable; 0: not at "
        "all, as with `embedded://`", of_pool=True)]
    min_replicas: Annotated[MinReplicas, _setting(REPLICAS, 0, "0",
        "how many replicas must have each claim and renewal before it counts, or `all`: every replica that was ever "
        "seen connected, at least one")]
    clock_policy: Annotated[ClockPolicy, _setting(one_of(ClockPolicy), "backup", "backup",
        "what to do when the clock goes back by more than max_wait_ms: `backup`: use another namespace, else another "
        "worker id; `wait`: raise `ClockMovedBack`")]
    max_wait_ms: Annotated[int | None, _setting(MS, None, "10; 5,000 with `wait`",
        "the longest step back of the clock that is waited for")]
    max_ahead_ms: Annotated[int, _setting(MS, 0, "0",
        "how far ids may run ahead of the clock: after it went back, and when a tick's sequence is exhausted; 0: wait "
        "for the next tick")]
    sequence_start: Annotated[SequenceStart, _setting(one_of(SequenceStart), "spread", "spread; zero on a test clock",
        "first sequence of a tick: `spread`: any, so that `id % shards` is spread evenly for quiet services, too (0 if "
        "a tick lasts over 10 ms); or `zero`")]
    clock: Annotated["Clock | None", _setting(ANYTHING, None, "the system's",
        "for tests: a snowredis.testing.ManualClock")]
# fmt: on


class AllSettings(Settings, total=False):
    """All arguments of connect() by name."""

    url: "Server | None"


SETTINGS: Mapping[str, Setting] = {
    "url": URL_SETTING,
    **{name: hint.__metadata__[0]._replace(name=name) for name, hint in Settings.__annotations__.items()},
}
# constants of a pool that are durations; PoolConfig has them as NAME_ms
POOL_DURATIONS = tuple(name for name, setting in SETTINGS.items() if setting.of_pool and setting.kind is SECONDS)
# the only setting of snowredis.generator() that is not one of the kind's own
KIND = Setting(
    "kind", TEXT, "snowflake", "snowflake",
    "kind of ids that snowredis.generator() makes: a name such as `uuid7`, or a URL such as "
    "`snowflake+redis://localhost:6379/0?pool=orders`",
)  # fmt: skip


def check(name: str, value: object) -> Any:
    """Return *value*, numbers as int or float. Raises ConfigError if it is not valid, or there is no such setting."""
    return check_settings({name: value})[name]


def check_settings(
    given: Mapping[str, Any], declared: Mapping[str, Setting] = SETTINGS, whose: str = ""
) -> dict[str, Any]:
    """Return *given* with checked values, numbers as int or float.

    Raises ConfigError for a value that is not valid, and for a name that is not *declared*; *whose* follows that name.
    """
    check_names(given, declared, whose)
    return {name: declared[name].check(value) for name, value in given.items()}


def check_names(names: Iterable[str], declared: Mapping[str, Setting] = SETTINGS, whose: str = "") -> None:
    """Raise ConfigError if one of *names* is not *declared*; *whose* follows that name in the message."""
    for name in names:
        if name not in declared:
            raise ConfigError(
                f"unknown setting {name!r}{whose}. {did_you_mean(name, declared)}The settings are: "
                f"{', '.join(declared) or 'none'}"
            )


def required_url(url: Any = None) -> Any:
    """Return *url*; if it is None, the value of SNOWREDIS_URL. Raises ConfigError if there is neither."""
    url = _of_variable(URL_SETTING) if url is None else url
    if url is None:
        raise ConfigError(
            f"no Redis is named: {URL_SETTING.variable} is not set, and no url is given. Set {URL_SETTING.variable}, "
            f"such as {DEFAULT_URL}, and {SETTINGS['pool'].variable} to the same values in all processes. For "
            "development on one machine, the URL embedded:// starts a Redis."
        )
    return url


def required_pool(pool: str | None, url: Any) -> str:
    """Return *pool*; if it is None, the value of SNOWREDIS_POOL, or MEMORY_POOL if *url* is in memory.

    Raises ConfigError if there is none.
    """
    pool = _of_variable(SETTINGS["pool"]) if pool is None else pool
    if pool is None and not is_in_memory(url):
        raise ConfigError(
            f"no pool is named: {SETTINGS['pool'].variable} is not set, and no pool is given. Set it to a name, such "
            "as orders, in all processes whose ids must differ: ids of two pools can be equal."
        )
    return MEMORY_POOL if pool is None else pool


def url_to_read(url: Any = None) -> Any:
    """Return *url*; if it is None, the value of SNOWREDIS_URL, else DEFAULT_URL: for what makes no ids."""
    url = _of_variable(URL_SETTING) if url is None else url
    return DEFAULT_URL if url is None else url


def _of_variable(setting: Setting) -> Any:
    text = os.environ.get(setting.variable)
    return None if text is None else setting.read(text, setting.variable)


# --- SNOWREDIS_* variables ------------------------------------------------------------------------

# variables that the C code, its build, the scripts and the HTTP service read
_OTHER_VARIABLES = tuple(
    f"{PREFIX}{name}" for name in ("PURE", "BUILD", "PYTHON", "CRASH_RECORDS", "SERVE_", "WORKER_ID", "FROM", "UNTIL")
)
# Kubernetes sets these in each pod for a Service whose name begins with "snowredis"
_OF_KUBERNETES = re.compile(
    rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def from_environment(
    environment: Mapping[str, str],
    declared: Iterable[Setting] = SETTINGS.values(),
    given: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return *given*, and what SNOWREDIS_* variables say of other *declared* settings; by default those of connect().

    Unknown variables are ignored, since other programs may set them; one that looks like a mistyped setting is logged
    as a warning. Settings that take no text, such as a test clock, have no variable.

    Raises:
        ConfigError: a value is not valid.
    """
    ours = {name: text for name, text in environment.items() if not name.startswith(_OTHER_VARIABLES)}
    for variable in (KIND.variable, *(f"{PREFIX}{name.upper()}" for name in given)):
        ours.pop(variable, None)
    return read_variables(ours, PREFIX, (setting for setting in declared if setting.name != "clock")) | dict(given)


def settings_of_process(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return *given* arguments of connect() with what variables say of the others, url and pool always among them.

    Raises ConfigError if no url or no pool is named, or a value is not valid.
    """
    # None is "not given"; a pool in memory has no server, and so no replicas
    used = {name: value for name, value in given.items() if value is not None}
    if is_in_memory(used.get("url")):
        used = {"min_replicas": 0} | used
    used = from_environment(os.environ, given=used)
    used["url"] = required_url(used.get("url"))
    return used | {"pool": required_pool(used.get("pool"), used["url"])}


def read_variables(environment: Mapping[str, str], prefix: str, declared: Iterable[Setting]) -> dict[str, Any]:
    """Return the values of those *declared* settings that are set by variables with *prefix*.

    Warns of unknown variables as from_environment() does. Raises ConfigError for a value that is not valid.
    """
    settings = {f"{prefix}{setting.name.upper()}": setting for setting in declared}
    values = {}
    for variable, text in environment.items():
        if not variable.startswith(prefix):
            continue
        setting = settings.get(variable)
        if setting is not None:
            values[setting.name] = setting.read(text, variable)
        elif not _OF_KUBERNETES.fullmatch(variable):
            _warn_if_mistyped(variable, tuple(settings))
    return values


@functools.cache  # one warning a process
def _warn_if_mistyped(variable: str, known: tuple[str, ...]) -> None:
    """Log a warning if *variable* looks like one of *known*, mistyped."""
    near = nearest(variable, known)
    if near:
        # loaded only for this: commands start faster without it
        from snowredis.process.log import log

        log.warning("the variable %s is unknown, and ignored. Did you mean %s?", variable, near)
