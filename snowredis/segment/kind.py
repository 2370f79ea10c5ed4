"""The kind "segment" of snowredis.generator()."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snowredis.core.description import IdDescription
from snowredis.generators.kind import IdKind
from snowredis.segment.description import describe
from snowredis.segment.generator import SegmentGenerator
from snowredis.segment.opening import open_generator
from snowredis.segment.settings import SEGMENT_SETTINGS


def _describe(settings: Mapping[str, Any]) -> IdDescription:
    maximum = settings.get("maximum", SEGMENT_SETTINGS["maximum"].default)
    return describe(maximum, cyclic=settings.get("cyclic", False))


def _open(settings: Mapping[str, Any]) -> SegmentGenerator:
    given = dict(settings)
    return open_generator(given.pop("url", SEGMENT_SETTINGS["url"].default), **given)


SEGMENT = IdKind(
    name="segment",
    summary="short numbers, nearly in sequence, for one business tag; handed out by Redis in segments",
    settings=SEGMENT_SETTINGS,
    describe=_describe,
    open=_open,
)
