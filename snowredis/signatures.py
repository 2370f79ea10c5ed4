"""Signatures: settings and format of a pool or tag as they are stored in Redis, and messages about them.

The text may come from Redis: what snowredis does not write is escaped and shortened.
"""

from __future__ import annotations

import time

# fields that the scripts add to a signature; see pool.lua
HINTS = ("changes_at", "ends_at", "changed", "unsure", "lost")
# settings that are stored only if they are not these
_UNSTORED = {"durability": "detect"}
# a twelfth of the ttl, unless they are set
_TWELFTHS = ("max_clock_lead_ms", "redis_skew_ms")


def settings_of(signature: str) -> dict[str, str]:
    """Return the settings in a pool's signature by name, in the units of connect()."""
    fields = _UNSTORED | dict(field.partition("=")[::2] for field in signature.split())
    ttl_ms = fields.get("ttl_ms", "")
    twelfth = str(int(ttl_ms) // 12) if ttl_ms.isdecimal() else None
    settings = {}
    for name, text in fields.items():
        if name in _TWELFTHS and text == twelfth:
            settings[name.removesuffix("_ms")] = "ttl / 12"
        elif name.endswith("_ms") and text.isdecimal():
            settings[name.removesuffix("_ms")] = f"{int(text) / 1000:g} s"
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
    return ascii(text)[1:-1][:60] or "empty"


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
    different = [
        f"{name} is {there} {where}, {here} here" for name, (there, here) in differences(stored, given).items()
    ]
    if not different:
        different = [f"({escaped(stored)}) {where}, ({escaped(given)}) here"]
    return f"{what} was created with other settings: {'; '.join(different)}. {advice}"


def layout_advice(pool: str, stored: str, given: str) -> str:
    """Return what to do about a pool that has another signature."""
    there = settings_of(stored)
    if "lost" in there:
        return (
            "Redis does not know the pool any more: a process with its settings has to create it again. If those "
            f"of this process are right, run once: snowredis pool create {pool}"
        )
    for name, event in (("changes_at", "changes to these settings"), ("ends_at", "was deleted and ends")):
        at_ms = there.get(name, "")
        if at_ms.isdecimal() and len(at_ms) < 14:
            at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(int(at_ms) // 1000))
            return f"The pool {event} at {at}: start this process again after that."
    if "unsure" in there:
        return (
            "The pool has ended, but a copy of it in a replica may not know that. Repeat the command that ended it: "
            "snowredis pool delete, or pool change-layout."
        )
    if "changed" in there:
        return "The layout of the pool was changed: start this process again with the new one."
    # the default of outage_reserve follows the layout
    if all(name.startswith("layout") or name == "outage_reserve" for name in differences(stored, given)):
        return (
            "Use the layout of the pool, or another pool name. If the layout was changed and Redis went back to a "
            "time before, change it again: snowredis pool change-layout."
        )
    return "Use the settings of the pool, or another pool name."


# format of what is stored in Redis -> the versions that write and read it. A number stands for one form of everything;
# a pool or tag has the number of the version that changed its own form last
FORMATS = {
    1: "development versions before 0.1.0",
    2: "development versions before 0.1.0",
    3: "development versions before 0.1.0",
    4: "development versions before 0.1.0",
    5: "snowredis 0.1.0 and later (pools)",
    6: "snowredis 0.1.0 and later (tags)",
}


def wrong_format(given: str, stored: str) -> str:
    """Return what is wrong if two signatures have different formats, as sentences; "" if the formats are the same."""
    here, there = _format_of(given), _format_of(stored)
    if here == there:
        return ""
    writer = FORMATS.get(there, "a later version of snowredis")
    return (
        f"it is stored in format {there}, which {writer} write and read, and this version ({FORMATS[here]}) reads "
        f"format {here}. Nothing was changed. Use one version in all processes, or see docs/how-to/upgrade.md"
    )


def _format_of(signature: str) -> int:
    name, _, number = signature.partition(" ")[0].partition("=")
    # format 1 had no number
    return int(number) if name == "format" and number.isdecimal() and len(number) < 10 else 1
