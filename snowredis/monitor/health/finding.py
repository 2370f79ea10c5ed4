"""Results of checks: how serious each is, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from snowredis.errors import SnowredisError, StoreRefused

# from least to most serious
SEVERITIES = ("ok", "unknown", "warning", "error")


class Result(NamedTuple):
    """Result of a check.

    Attributes:
        severity: one of SEVERITIES. unknown: the check was not possible.
        text: what was found; may contain untrusted text.
        advice: what to do; empty if nothing is wrong.
    """

    severity: str
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check, with the name of the check; the other fields are those of Result."""

    check: str
    severity: str
    text: str
    advice: str = ""


def ok(text: str) -> Result:
    """Return a result of severity "ok"."""
    return Result("ok", text)


def unknown(text: str, advice: str = "") -> Result:
    """Return the result of a check that was not possible."""
    return Result("unknown", text, advice)


def not_checked(failure: SnowredisError, what: str = "") -> Result:
    """Return the result of a check, of *what*, that *failure* made impossible: a command was refused, or Redis left."""
    reason = failure.reason if isinstance(failure, StoreRefused) else str(failure)
    return unknown(f"{what}{' was ' if what else ''}not checked: {reason}")


def warning(text: str, advice: str) -> Result:
    """Return a result of severity "warning"."""
    return Result("warning", text, advice)


def error(text: str, advice: str) -> Result:
    """Return a result of severity "error"."""
    return Result("error", text, advice)


def worst(findings: Sequence[Finding]) -> str:
    """Return the highest severity in *findings*; "ok" if there are none."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default="ok")
