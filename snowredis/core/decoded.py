"""An id taken apart, as `snowredis decode --json` and GET /decode show it. Pure."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Annotated

from snowredis.core.as_json import IdNumber, Shown
from snowredis.core.layout import Layout, Parts
from snowredis.core.text import FORMS, bits_of, encode
from snowredis.errors import LayoutError


@dataclass(frozen=True, slots=True)
class DecodedId:
    """Fields of an id, as numbers and as text.

    Attributes:
        id: the id.
        form: the text form that it was read as.
        parts: its fields.
        datacenter_fields: values of the named parts of the datacenter bits.
        bits: the binary digits of each field that has bits, from the highest.
        forms: its text forms by name.
        layout: the layout that it was read with.
    """

    id: IdNumber
    form: str
    parts: Annotated[Parts, Shown("parts", "time datacenter backup worker sequence tick gene")]
    datacenter_fields: dict[str, int]
    bits: dict[str, str]
    forms: dict[str, str]
    layout: Layout


def decoded(layout: Layout, an_id: int, form: str) -> DecodedId:
    """Return what *an_id*, read in *form*, contains. Raises InvalidId."""
    parts = layout.decode(an_id)
    forms: dict[str, str] = {}
    for name in FORMS:
        # a time past the year 9999 has no friendly form
        with contextlib.suppress(LayoutError):
            forms[name] = encode(an_id, name, layout=layout)
    return DecodedId(an_id, form, parts, parts.fields, bits_of(layout, an_id), forms, layout)
