"""Parts of a layout's datacenter that have names: their widths are checked, and their values composed and decomposed.

Pure. Parts are pairs of a name and a number, of bits or a value, from the most significant. Loaded only for layouts
that have such parts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from snowredis.core.values import as_int, bits_text, require_int
from snowredis.errors import LayoutError, shown

_NAME = re.compile(r"[a-z][a-z0-9_]{0,15}")
# a pool stores the names
MAX_NAMES = 8

Pairs = tuple[tuple[str, int], ...]


def checked(parts: Iterable[tuple[str, int]], bits: int, *, not_names: Collection[str]) -> tuple[Pairs, int]:
    """Return the parts with their widths, and the sum of those.

    Args:
        bits: the sum that is given beside them; 0: none is.
        not_names: names that no part can have.

    Raises LayoutError: names or widths that cannot be used, or a sum that is not *bits*.
    """
    try:
        pairs = tuple((name, as_int(width)) for name, width in parts)
    except (TypeError, ValueError):
        raise LayoutError(
            f"datacenter_fields must be pairs of a name and a width, not {shown(parts)}. No layout was made."
        ) from None
    if len(pairs) > MAX_NAMES:
        raise LayoutError(f"{len(pairs)} datacenter_fields are more than {MAX_NAMES}. No layout was made.")
    names, total = [name for name, _ in pairs], sum(width for _, width in pairs)
    for name, width in pairs:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in not_names or names.count(name) > 1:
            raise LayoutError(
                f"{shown(name)} cannot name a part of the datacenter: use 1 to 16 small letters, digits and _, "
                f"each name once, and none of {', '.join(sorted(not_names))}. No layout was made."
            )
        if width < 1:
            raise LayoutError(f"{name} has {bits_text(width)}; it needs one at least. No layout was made.")
    if bits not in (0, total):
        raise LayoutError(
            f"datacenter_fields have {bits_text(total)}, and datacenter_bits is {shown(bits)}. No layout was made; "
            "leave datacenter_bits out."
        )
    return pairs, total


def decompose(parts: Pairs, datacenter: int) -> Pairs:
    """Return the values of *parts*, names with widths, in a datacenter."""
    found, shift = [], sum(bits for _, bits in parts)
    for name, bits in parts:
        shift -= bits
        found.append((name, datacenter >> shift & ((1 << bits) - 1)))
    return tuple(found)


def compose(parts: Pairs, values: Mapping[str, int], layout: str) -> int:
    """Return the datacenter with these *values* of *parts*; all have to be given.

    Args:
        layout: text of the layout that has the parts, for messages.

    Raises LayoutError: a name that is missing or unknown, or a value that is not an int or does not fit.
    """
    names = [name for name, _ in parts]
    if set(values) != set(names):
        raise LayoutError(
            f"the parts of the datacenter of the layout {layout} are {', '.join(names) or 'none'}, not "
            f"{', '.join(map(str, values)) or 'none'}. Give each of them a value."
        )
    datacenter = 0
    for name, bits in parts:
        value = require_int(name, values[name], "Nothing was composed")
        if value >> bits:
            raise LayoutError(f"{name} {shown(value)} is out of range 0 .. {(1 << bits) - 1}. Give a value that fits.")
        datacenter = datacenter << bits | value
    return datacenter
