"""Write ids as text and read them back.

Pure. Every form except decimal has a fixed width, and its texts sort like the ids. Parsing is strict: it accepts
only what encode() can have written, with three exceptions: missing padding, and in hex the other case and a leading 0x.
No form has a sign.

The friendly form of an id reads ``20261121T023600123Z_b1_w0017_s0005``: the time of its tick
in UTC down to the ms, then the fields that have bits, in the layout's order: d(atacenter),
b(ackup), w(orker), s(equence). It contains only letters, digits and underscores: safe in a
URL and a file name, and selected as a whole by a double click.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from snowredis.core.layout import Layout, Parts
from snowredis.core.presets import resolve_layout
from snowredis.core.values import MAX_ID, check_id
from snowredis.errors import ConfigError, InvalidId, shown

__all__ = ["FORMS", "encode", "form_of", "parse", "parse_user_id"]

FORMS = ("decimal", "hex", "base62", "friendly")
# regular expression for the decimal digits of an id above 0; one id has one such text: no sign, no spaces, no leading
# zeros, no digits of other scripts. It also matches numbers of 19 digits past MAX_ID
DECIMAL_ID = "[1-9][0-9]{0,18}"

_LOWER = "abcdefghijklmnopqrstuvwxyz"
# in ASCII order, so that padded texts sort like numbers
_ALPHABETS = {"decimal": "0123456789", "base62": f"0123456789{_LOWER.upper()}{_LOWER}", "hex": "0123456789abcdef"}
# number of digits of 2**63 - 1
_WIDTHS = {"decimal": 19, "base62": 11, "hex": 16}
# alphabet and width of the padded forms
DIGITS = {form: (_ALPHABETS[form], width) for form, width in _WIDTHS.items() if form != "decimal"}
_VALUES = {form: {char: value for value, char in enumerate(chars)} for form, chars in _ALPHABETS.items()}
_VALUES["hex"].update({char.upper(): value for char, value in _VALUES["hex"].items()})

# decimal digits of the largest value of a field, by its width in bits
_FIELD_DIGITS = tuple(len(str((1 << bits) - 1)) for bits in range(64))
# time of a friendly text; datetime may read hour 24 as the next day
_TIME = re.compile(r"\d{8}T([01]\d|2[0-3])\d{7}Z", re.ASCII)
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def encode(an_id: int, form: str, *, layout: Layout | str | None = None) -> str:
    """Write an id as text.

    Args:
        an_id: 0 .. 2**63 - 1.
        form: decimal, not padded; padded to a fixed width, hex (lower case) to 16 characters and base62 to 11; or
            friendly.
        layout: for friendly only: a Layout, the name of a preset, or text such as ``41/0/2/10/10``. None: the default.

    Raises:
        ConfigError: unknown form or layout.
        InvalidId: not a valid id, or, for "friendly", not an id of this layout.
        LayoutError: for "friendly", a time past the year 9999.
    """
    if form == "friendly":
        return _friendly(an_id, resolve_layout(layout))
    alphabet = _ALPHABETS.get(form)
    if alphabet is None:
        raise _no_such_form(form)
    rest = check_id(an_id)
    if form == "decimal":
        return f"{rest:d}"
    if form == "hex":
        return f"{rest:016x}"
    base, text = len(alphabet), ""
    while rest:
        rest, value = divmod(rest, base)
        text = alphabet[value] + text
    return text.rjust(_WIDTHS[form], alphabet[0])


def moment_ms(text: str) -> int:
    """Return the Unix ms of an ISO date or time, in UTC if it has no offset. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.utcoffset() is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _UNIX_EPOCH) // timedelta(milliseconds=1)


def bits_of(layout: Layout, an_id: int) -> dict[str, str]:
    """Return the bits of every field that has some, the highest first, as strings of 0 and 1."""
    text, at, fields = f"{an_id:0{layout.total_bits}b}", 0, dict[str, str]()
    for name, bits in layout.fields:
        if bits:
            fields[name] = text[at : at + bits]
            at += bits
    return fields


def parse(text: str, form: str, *, layout: Layout | str | None = None) -> int:
    """Parse an id from text; the inverse of encode().

    Padding is optional. hex ignores case, and may begin with 0x. A friendly text must have exactly the fields of
    *layout*, in order.

    Returns:
        An int in 0 .. 2**63 - 1.

    Raises:
        ConfigError: unknown form or layout.
        InvalidId: not a str, empty, too long, an invalid character (the message names it and its index), or a value
            past 2**63 - 1; for "friendly" also a field or time that the layout does not have.
    """
    if form not in FORMS:
        raise _no_such_form(form)
    _require_text(text)
    if text[:1] == "-":
        _refuse(text, form, "ids have no sign")
    if form == "friendly":
        return _from_friendly(text, resolve_layout(layout))
    skip = 2 if form == "hex" and text[:2] in ("0x", "0X") else 0
    digits = text[skip:]
    width, values, base = _WIDTHS[form], _VALUES[form], len(_ALPHABETS[form])
    if not 0 < len(digits) <= width:
        _refuse(text, form, f"it has {len(digits)} digits, not 1 .. {width}")
    an_id = 0
    try:
        for char in digits:
            an_id = an_id * base + values[char]
    except KeyError:
        at = text.index(char, skip)
        _refuse(text, form, f"{char!r} at index {at} is none of {_ALPHABETS[form]}")
    if an_id > MAX_ID:
        _refuse(text, form, f"it is {an_id}, past {MAX_ID} (2**63 - 1)")
    return an_id


def decode(an_id: int, layout: Layout | str | None = "default") -> Parts:
    """Split an id into its fields: time, datacenter, namespace, worker id and sequence.

    Args:
        layout: the layout of the id: a Layout, the name of a preset, or text such as `41/0/2/10/10`.

    Raises:
        InvalidId: it is no id of 63 bits.
        ConfigError, LayoutError: there is no such layout.
    """
    return resolve_layout(layout).decode(an_id)


def form_of(text: str) -> str:
    """Return the form of a text, which its shape shows: the padded forms have fixed widths.

    Underscores: friendly. Digits alone: decimal, which has no leading zeros. 0x, or 16 characters: hex. Else base62,
    which may begin with 0x, too: so do all its ids of some weeks.
    """
    if "_" in text:
        return "friendly"
    if _all_digits(text) and (text[0] != "0" or len(text) not in _WIDTHS.values()):
        return "decimal"
    prefixed = text[:2] in ("0x", "0X") and len(text) != _WIDTHS["base62"]
    return "hex" if prefixed or len(text) == _WIDTHS["hex"] else "base62"


def parse_user_id(text: str, layout: Layout, *, form: str | None = None) -> tuple[str, int]:
    """Read an id of *layout* that a person typed or pasted; return its form, and the id.

    Args:
        form: one of FORMS; None: the one that form_of() sees.

    Raises:
        ConfigError: unknown form.
        InvalidId: it is not an id of *layout*.
    """
    text = _require_text(text).strip()
    form = form_of(text) if form is None else form
    an_id = parse(text, form, layout=layout)
    # says how many bits are too many
    layout.decode(an_id)
    return form, an_id


def _friendly(an_id: int, layout: Layout) -> str:
    parts = layout.decode(an_id)
    time = parts.time
    text = f"{time:%Y%m%dT%H%M%S}{time.microsecond // 1000:03d}Z"
    for name, bits in layout.fields[1:]:
        if bits:
            text += f"_{name[0]}{getattr(parts, name):0{_FIELD_DIGITS[bits]}d}"
    return text


def _from_friendly(text: str, layout: Layout) -> int:
    time, *given = text.split("_")
    wanted = [(name, bits) for name, bits in layout.fields[1:] if bits]
    has, needs = "".join(field[:1] for field in given), "".join(name[0] for name, _ in wanted)
    if has != needs or len(given) != len(wanted):
        why = f"after the time it has the fields {shown(has)}, but the layout {layout} has {needs!r}"
        _refuse(text, "friendly", why)
    an_id = _tick_of(text, time, layout) << layout.timestamp_shift
    for field, (name, bits) in zip(given, wanted, strict=True):
        digits = field[1:]
        if not _all_digits(digits):
            _refuse(text, "friendly", f"{shown(field)} is not {name[0]!r} and a number, the {name}")
        if len(digits) > _FIELD_DIGITS[bits] or int(digits) >> bits:
            _refuse(text, "friendly", f"{name} {shown(digits)} is out of range 0 .. {(1 << bits) - 1}")
        an_id |= int(digits) << getattr(layout, f"{name}_shift")
    return an_id


def _tick_of(text: str, time: str, layout: Layout) -> int:
    if not _TIME.fullmatch(time):
        _refuse(text, "friendly", f"{shown(time)} is not a time like 20261121T023600123Z")
    try:
        time_ms = moment_ms(f"{time[:15]}.{time[15:]}")
    except ValueError as error:
        _refuse(text, "friendly", f"{time} is not a valid time: {error}")
    tick = layout.tick_at(time_ms)
    if not 0 <= tick <= layout.max_tick:
        _refuse(text, "friendly", f"{time} is outside the range of the layout {layout}")
    if layout.ms_at(tick) != time_ms:
        _refuse(text, "friendly", f"{time} is not the start of a tick of the layout {layout}")
    return tick


def _all_digits(text: str) -> bool:
    # isdigit() alone accepts digits of other scripts
    return text.isascii() and text.isdigit()


def _require_text(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidId(
            f"the text of an id must be a str, not {type(text).__name__} {shown(text)}. A number "
            f"needs no parse(); decode bytes with .decode()."
        )
    return text


def _refuse(text: str, form: str, why: str) -> NoReturn:
    raise InvalidId(
        f"{shown(text)} is not a valid id in the form {form}: {why}. Check the form, and check for missing or extra "
        f"characters."
    ) from None


def _no_such_form(form: object) -> ConfigError:
    return ConfigError(f"unknown text form {shown(form)}. Use one of {', '.join(FORMS)}.")
