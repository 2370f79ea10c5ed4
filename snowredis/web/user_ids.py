"""Read an id that somebody typed or pasted: in which form it is, and which id."""

from __future__ import annotations

import time
from collections.abc import Mapping

from snowredis.core.layout import Layout
from snowredis.core.text import parse, parse_any
from snowredis.errors import InvalidId

MAX_ID_TEXT = 100
# a clock of another host may be so far ahead
AHEAD_MS = 60_000


def parse_user_id(text: str, layout: Layout, asked: Mapping[str, str]) -> tuple[str, int]:
    """How *text* is read as an id of *layout*: (form, id). Raises InvalidId, ConfigError."""
    if len(text) > MAX_ID_TEXT:
        raise InvalidId(f"a text of over {MAX_ID_TEXT} characters is no id")
    if "form" in asked:
        form = asked["form"][:20]
        an_id = parse(text, form, layout=layout)
        layout.decode(an_id)
        return form, an_id
    readings = parse_any(text, layout=layout)
    now_ms = time.time_ns() // 1_000_000

    def doubt(reading: tuple[str, int]) -> int:
        """What parse_any() cannot know: whether such an id can have been made by now."""
        if reading[1] >> layout.total_bits:
            return 2
        return int(layout.decode(reading[1]).timestamp_ms > now_ms + AHEAD_MS)

    if readings[0][0] != "decimal":
        readings.sort(key=doubt)
    # says how many bits are too many
    layout.decode(readings[0][1])
    return readings[0]
