"""The kind "ticket": segments of one number, each from one of the servers, as Flickr's ticket servers hand them out.

Each of several independent servers has its own share of the numbers, by their remainder, and any may be down. Every
number costs a round trip, and none is lost when a process ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snowredis.generators.kind import IdKind
from snowredis.generators.protocol import IdGenerator
from snowredis.segment.kind import SEGMENT
from snowredis.segment.settings import SEGMENT_SETTINGS

# how many numbers a segment has is not a choice here
_SEGMENT_SIZES = ("step", "max_step", "period")
_SETTINGS = {name: setting for name, setting in SEGMENT_SETTINGS.items() if name not in _SEGMENT_SIZES}


def _open(settings: Mapping[str, Any]) -> IdGenerator[Any]:
    return SEGMENT.open({**settings, "step": 1, "max_step": 1})


TICKET = IdKind(
    name="ticket",
    summary="short numbers, one a request, from one of several servers",
    settings=_SETTINGS,
    describe=SEGMENT.describe,
    open=_open,
)
