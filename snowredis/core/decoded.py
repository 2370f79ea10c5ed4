"""An id taken apart, as `snowredis decode --json` and GET /decode show it. Pure."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Annotated

from snowredis.core.as_json import IdNumber, Shown
from snowredis.core.layout import Layout
from snowredis.core.text import FORMS, bits_of, encode
from snowredis.errors import LayoutError


@dataclass(frozen=True, slots=True)
class IdField:
    """One field of an id.

    Attributes:
        name: such as "worker".
        bits: its binary digits.
        value: its value in decimal.
    """

    name: str
    bits: str
    value: str


@dataclass(frozen=True, slots=True)
class DecodedId:
    """Fields of an id, as text and numbers.

    Attributes:
        id: the id.
        form: the text form that it was read as.
        time: when it was made; null past the year 9999.
        gene: its gene; 0 if the layout has none.
        datacenter_fields: values of the named parts of the datacenter bits.
        fields: its fields, from the highest bit.
        forms: its text forms by name.
        layout: the layout that it was read with.
    """

    id: IdNumber
    form: str
    time_ms: Annotated[int, Shown("time", "time")]
    datacenter: int
    backup: int
    worker: int
    sequence: int
    tick: IdNumber
    gene: int
    datacenter_fields: dict[str, int]
    fields: tuple[IdField, ...]
    forms: dict[str, str]
    layout: Layout


def decoded(layout: Layout, an_id: int, form: str) -> DecodedId:
    """Return what *an_id*, read in *form*, contains. Raises InvalidId."""
    parts = layout.decode(an_id)
    fields = (IdField(name, digits, str(int(digits, 2))) for name, digits in bits_of(layout, an_id).items())
    forms: dict[str, str] = {}
    for name in FORMS:
        # a time past the year 9999 has no friendly form
        with contextlib.suppress(LayoutError):
            forms[name] = encode(an_id, name, layout=layout)
    values = parts._asdict() | {"datacenter_fields": dict(parts.datacenter_fields)}
    time_ms = values.pop("timestamp_ms")
    return DecodedId(an_id, form, time_ms, **values, fields=tuple(fields), forms=forms, layout=layout)
