"""Preset layouts by name, and layouts from their text form. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from snowredis.core.layout import WIDTHS, Layout
from snowredis.errors import ConfigError, did_you_mean, shown

# name -> spec, and its source
_PRESETS: dict[str, tuple[str, str]] = {
    "default": ("41/0/2/10/10",
        "snowredis' own: 1,024 workers, 1,024 ids a ms each, four namespaces for clocks that go back, since "
        "2025-01-01T00:00:00Z."),
    "twitter": ("41/5/0/5/12;epoch_ms=1288834974657",
        "Twitter Snowflake (2010), twitter-archive/snowflake, IdWorker.scala: datacenter above worker, twepoch "
        "1288834974657."),
    "jd": ("41/0/0/10/12;epoch_ms=1422720000000",
        "JD logistics' article on its Snowflake variant: 10 machine bits; the epoch is 2015-02-01 in China time; its "
        "example, id 4198401, is tick 1, machine 1, sequence 1."),
    "jd-seconds": ("31/0/0/22/10;tick_ms=1000;epoch_ms=1422720000000",
        "JD logistics' article, its form for many machines: 31 bits of 1 s, 22 machine, 10 sequence; the epoch is "
        "that of its other form."),
    "leaf": ("41/0/0/10/12;epoch_ms=1288834974657",
        "Meituan Leaf, snowflake mode (2017), Meituan-Dianping/Leaf, SnowflakeIDGenImpl.java: Twitter's epoch, one "
        "worker field of 10 bits."),
    # The zone of the JVM decides there: Calendar.getInstance() is set to 2016-11-01 00:00. China's midnight
    # is the one number that ShardingSphere's own manual gives (COSID_SNOWFLAKE, default of epoch).
    "shardingsphere": ("41/0/0/10/12;epoch_ms=1477929600000",
        "Apache ShardingSphere (2016), SnowflakeKeyGenerateAlgorithm.java: since 2016-11-01 00:00 in the time zone of "
        "the JVM; here China's. For a JVM in UTC replace epoch_ms by 1477958400000."),
    # 1463673600000 is midnight of 2016-05-20 in China: the constant of DefaultUidGenerator.java, and its
    # documented end, 2024-11-20 21:24:16, fits China time only.
    "uid-generator": ("28/0/0/22/13;tick_ms=1000;epoch_ms=1463673600000",
        "Baidu uid-generator (2017), DefaultUidGenerator.java: epoch 2016-05-20 in China time, as its constant "
        "1463673600000 says. It ran out on 2024-11-20T13:24:16Z: for reading old ids only."),
    "sonyflake": ("39/0/0/16/8;tick_ms=10;epoch_ms=1409529600000;worker_last=1",
        "Sonyflake 1 (2014), sony/sonyflake, sonyflake.go: 39 bits of 10 ms, 8 sequence, 16 machine at the bottom, "
        "since 2014-09-01T00:00:00Z."),
    "sonyflake-v2": ("39/0/0/16/8;tick_ms=10;epoch_ms=1735689600000;worker_last=1",
        "Sonyflake 2 (2025), sony/sonyflake/v2, sonyflake.go: as sonyflake, since 2025-01-01T00:00:00Z."),
    "discord": ("41/5/0/5/12;epoch_ms=1420070400000",
        "Discord's API reference, 'Snowflakes' (2015): worker is datacenter here, process is worker. Discord has 42 "
        "bits of time in 64 unsigned bits; the 41 that fit in 63 read its ids right until 2084-09-06."),
    "instagram": ("40/0/0/13/10;epoch_ms=1314220021721",
        "Instagram Engineering, 'Sharding & IDs at Instagram' (2012): shard is worker here. Instagram has 41 bits of "
        "time and uses the sign bit; the 40 that fit in 63 read its ids right until 2046-06-27."),
    # 2**53 is where JavaScript's numbers get gaps. Ticks of 10 ms leave room for 128 workers and 25,600 ids/s
    # each; with 1 ms a timestamp that lasts decades would leave 12 bits for everything else.
    "js-safe": ("37/0/1/7/8;tick_ms=10",
        "snowredis' own, after CosId's SafeJavaScriptSnowflakeId: 53 bits, so every id is a safe integer in "
        "JavaScript; 128 workers, two namespaces, 43.6 years of 10 ms, until 2068."),
    # The article's 37 ms + 20 + 16 is 73 bits, and 37 bits of 1 ms last 4.4 years. Kept: 20 bits of server,
    # so that shards can be merged, and 16 of sequence, so that a server can make a burst. The tick pays.
    "game": ("27/0/0/20/16;tick_ms=10000",
        "snowredis' own, after an article on game servers that proposes 37 ms / 20 / 16, which is 73 bits: 27 bits of "
        "10 s, 42.5 years; 1,048,576 servers, 65,536 ids at once each, 6,553 a second on average. The tick of 10 s is "
        "its price: ids show times of 10 s, a server that used up a tick, or started again in it, waits for the next "
        "one or takes another worker id, and so does one whose clock goes back. game-shards has none of that."),
    # 63 bits are 2**63 ticks of all lanes. 43 years, 2**20 lanes and 6,400 ids a second each are the same product as in
    # game; here a tick is short, and a burst borrows the ticks ahead of the clock instead of waiting.
    "game-shards": ("37/12/1/7/6;tick_ms=10",
        "snowredis' own, for what the article on game servers is after: 37 bits of 10 ms, 43.6 years; 4,096 shards, "
        "numbered by a tag, of 128 processes with two namespaces each; 6,400 ids a second each. With "
        "max_ahead_ms=10300, a server makes 65,536 ids at once."),
}  # fmt: skip


def preset_name(layout: Layout) -> str | None:
    """Return the name of the preset that *layout* equals, if any."""
    return next((name for name, preset in layouts.items() if preset == layout), None)


def preset_source(name: str) -> str:
    """Return the source of the preset *name*, in one or two sentences; KeyError if there is no such preset."""
    return _PRESETS[name][1]


def resolve_layout(layout: Layout | str | None) -> Layout:
    """Return the Layout that a setting names.

    Args:
        layout: a Layout, returned unchanged; None for the default; a preset's name; or a spec: five widths
            ``timestamp/datacenter/backup/worker/sequence``, then, in any order and each optional, ``;tick_ms=``,
            ``;epoch_ms=``, ``;worker_last=`` (0 or 1) and ``;gene_bits=``: ``41/0/2/10/10;tick_ms=1;gene_bits=0``. The
            datacenter may be named parts: ``41/region:2,business:4/2/6/8``.

    Raises:
        ConfigError: unknown name (the message suggests the nearest), or a malformed spec.
        LayoutError: a spec whose widths, tick or epoch cannot work.
    """
    if layout is None:
        return layouts["default"]
    if isinstance(layout, Layout):
        return layout
    if not isinstance(layout, str):
        raise ConfigError(
            f"a layout must be a Layout, a preset's name or a spec, not {type(layout).__name__} {shown(layout)}. "
            f"Pass one of {', '.join(layouts)}, or a Layout(...)."
        )
    if layout in layouts:
        return layouts[layout]
    if "/" in layout:
        return _from_spec(layout)
    raise ConfigError(
        f"unknown layout {shown(layout)}. {did_you_mean(layout.lower(), layouts, cutoff=0.5)}The presets are "
        f"{', '.join(layouts)}; or give the widths, for example 41/0/2/10/10;tick_ms=1."
    )


def _from_spec(spec: str) -> Layout:
    head, *options = spec.split(";")
    widths = head.split("/")
    if len(widths) != 5:
        raise _unreadable(
            spec, f"it must have 5 widths (timestamp/datacenter/backup/worker/sequence), not {len(widths)}"
        )
    named = _named(spec, widths[1]) if ":" in widths[1] else ()
    if named:
        # the sum of the parts
        widths[1] = "0"
    fields: dict[str, Any] = {name: _number(spec, width) for name, width in zip(WIDTHS, widths, strict=True)}
    for option in options:
        key, equals, text = option.partition("=")
        key = key.strip()
        if not equals or key not in ("tick_ms", "epoch_ms", "worker_last", "gene_bits"):
            raise _unreadable(spec, f"{shown(option)} is none of tick_ms=, epoch_ms=, worker_last=, gene_bits=")
        if key in fields:
            raise _unreadable(spec, f"{key} is given twice")
        fields[key] = _number(spec, text)
    last = fields.get("worker_last", 0)
    if last not in (0, 1):
        raise _unreadable(spec, f"worker_last is {last}, not 0 or 1")
    return Layout(**fields | {"worker_last": bool(last), "datacenter_fields": named})


def _named(spec: str, text: str) -> tuple[tuple[str, int], ...]:
    parts = (part.partition(":") for part in text.split(","))
    return tuple((name.strip(), _number(spec, bits)) for name, _, bits in parts)


def _number(spec: str, text: str) -> int:
    digits = text.strip()
    # isdigit() alone accepts digits of other scripts; 20 digits are past 2**63
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise _unreadable(spec, f"{shown(text)} is not a number of at most 19 digits")
    return int(digits)


def _unreadable(spec: str, why: str) -> ConfigError:
    return ConfigError(
        f"malformed layout {shown(spec)}: {why}. An example of a valid one: "
        f"41/0/2/10/10;tick_ms=1;epoch_ms=1735689600000;worker_last=0."
    )


layouts: Mapping[str, Layout] = MappingProxyType({name: _from_spec(spec) for name, (spec, _) in _PRESETS.items()})
