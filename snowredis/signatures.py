"""Signatures: settings and format of a pool or tag as they are stored in Redis, and messages about them.

The text may come from Redis: what snowredis does not write is escaped and shortened.
"""

from __future__ import annotations

import time

# fields that the scripts add to a signature; see pool.lua
HINTS = ("ends_at", "unsure", "lost", "start", "end")
# a twelfth of the ttl, unless they are set
_TWELFTHS = ("max_clock_lead_ms", "failover_slack_ms")


def settings_of(signature: str) -> dict[str, str]:
    """Return the settings in a pool's signature by name, in the units of connect()."""
    fields = fields_of(signature)
    ttl_ms = fields.get("ttl_ms", "")
    twelfth = str(int(ttl_ms) // 12) if ttl_ms.isdecimal() else None
    settings = {}
    for name, text in fields.items():
        if name in _TWELFTHS and text == twelfth:
            settings[name.removesuffix("_ms")] = "ttl / 12"
        elif name.endswith("_ms") and text.isdecimal():
            settings[name.removesuffix("_ms")] = f"{int(text) / 1000:.10g} s"
        elif name == "layout":
            bits, *options = text.split(";")
            settings["layout"] = escaped(bits)
            for option in options:
                key, _, value = option.partition("=")
                settings[f"layout's {escaped(key)}"] = escaped(value)
        else:
            settings[escaped(name)] = escaped(text)
    return settings


def escaped(text: str) -> str:
    return ascii(text)[1:-1][:200] or "empty"


def differences(stored: str, given: str) -> dict[str, tuple[str, str]]:
    """Return name -> its values in two signatures, for the settings that differ."""
    there, here = settings_of(stored), settings_of(given)
    texts = {name: (there.get(name, "not set"), here.get(name, "not set")) for name in {**here, **there}}
    return {name: pair for name, pair in texts.items() if name not in HINTS and pair[0] != pair[1]}


def mismatch(what: str, where: str, stored: str, given: str, advice: str) -> str:
    """Return the message for *what* is stored with another signature than the *given* one; *where*: "in the pool"."""
    other = wrong_format(given, stored)
    if other:
        return f"{what} is of another version: {other}."
    different = "; ".join(
        f"{name} is {there} {where}, {here} here" for name, (there, here) in differences(stored, given).items()
    )
    return f"{what} {f'was created with other settings: {different}' if different else 'cannot be used'}. {advice}"


def layout_advice(pool: str, stored: str, given: str) -> str:
    """Return what to do about a pool that has another signature."""
    there = settings_of(stored)
    if "lost" in there:
        return (
            "Redis does not know the pool any more: a process with its settings has to create it again. If those "
            f"of this process are right, run once: snowredis pool create {pool}"
        )
    if "start" in there:
        return _after(stored, given)
    ends_at = _utc(there.get("ends_at", ""))
    if "unsure" in there:
        then = f". Start this process again after that, and after {ends_at}" if ends_at else ""
        return (
            "The pool was deleted, but its end does not count yet: a replica, or the disk, may not have it. Repeat the "
            f"command that ended it: snowredis pool delete {pool}{then}."
        )
    if ends_at:
        return f"The pool was deleted and ends at {ends_at}: start this process again after that."
    return "Use the settings of the pool, or another pool name."


def _utc(ms: str) -> str:
    """Return a time that the scripts wrote, for people; "" for any other text."""
    if not ms.isdecimal() or len(ms) > 13:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(int(ms) // 1000))


def _after(stored: str, given: str) -> str:
    """Return how a pool with another layout can start at the name of a deleted one: with ids above all of that one."""
    text = "The pool was deleted, but ids of this layout would not all be above those that the pool could make. "
    try:
        fields = fields_of(stored)
        bits, below, tick_ms, epoch_ms = _shape(fields["layout"])
        # as lowest_id() of pool.lua
        highest = min(2**bits, -(-(int(fields["end"]) - epoch_ms) // tick_ms)) << below
        bits, below, tick_ms, epoch_ms = _shape(fields_of(given)["layout"])
        tick = -(-highest >> below)
        earlier_ms = int(fields["start"]) - tick * tick_ms
    except (ValueError, KeyError):
        return f"{text}Use another pool name."
    ways = [f"an epoch_ms of {earlier_ms} or less in this layout"] if earlier_ms >= 0 and tick < 2**bits else []
    if from_utc := _utc(str(epoch_ms + tick * tick_ms)) if tick < 2**bits else "":
        ways.append(f"the same after {from_utc}")
    return f"{text}Use {', or '.join([*ways, 'another pool name'])}."


def _shape(layout: str) -> tuple[int, int, int, int]:
    """Return the bits of the timestamp and those below it, tick_ms and epoch_ms. Raises ValueError and KeyError."""
    widths, *options = layout.split(";")
    bits, *others = widths.replace(",", "/").split("/")
    values = dict(option.split("=", 1) for option in options)
    below = sum(int(width.rpartition(":")[2]) for width in others) + int(values.get("gene_bits", 0))
    return int(bits), below, int(values["tick_ms"]), int(values["epoch_ms"])


def fields_of(signature: str) -> dict[str, str]:
    """Split a signature into its parts by name."""
    return dict(field.partition("=")[::2] for field in signature.split())


# format of what is stored in Redis -> the versions that write and read it. A pool or a tag has the number of the
# version that changed its own form last
FORMATS = {1: "snowredis 0.1.0 and later"}


def wrong_format(given: str, stored: str) -> str:
    """Return what is wrong if two signatures have different formats, as sentences; "" if the formats are the same."""
    here, there = _format_of(given), _format_of(stored)
    if here == there:
        return ""
    writers = [FORMATS.get(number, "another version of snowredis") for number in (there, here)]
    return (
        f"it is stored in format {there}, which {writers[0]} writes and reads, and this version ({writers[1]}) reads "
        f"format {here}. Nothing was changed. Use one version in all processes, or see docs/how-to/upgrade.md"
    )


def _format_of(signature: str) -> int:
    name, _, number = signature.partition(" ")[0].partition("=")
    return int(number) if name == "format" and number.isdecimal() and len(number) < 10 else 0
