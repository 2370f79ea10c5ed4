"""The kind "dated"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snowredis.core.description import IdDescription
from snowredis.dated.generator import DatedGenerator, describe
from snowredis.dated.number_format import DEFAULT_FORMATS, NumberFormat
from snowredis.dated.periods import PeriodName
from snowredis.dated.settings import DATED_SETTINGS, check_settings
from snowredis.generators.kind import IdKind


def _describe(settings: Mapping[str, Any]) -> IdDescription:
    check_settings(settings)
    period: PeriodName = settings.get("period", "day")
    text = settings.get("format") or DEFAULT_FORMATS[period]
    return describe(NumberFormat(text, period, settings["tag"], settings.get("maximum")))


def _open(settings: Mapping[str, Any]) -> DatedGenerator:
    check_settings(settings)
    return DatedGenerator(**settings)


DATED = IdKind(
    name="dated",
    summary="texts with the date and a number that starts again each hour, day, month or year",
    settings=DATED_SETTINGS,
    describe=_describe,
    open=_open,
)
