"""What a check found: how bad it is, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

# from the least
SEVERITIES = ("ok", "unknown", "warning", "error")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: what, in a word or two.
        severity: one of SEVERITIES. unknown: it could not be looked at.
        text: what was found; may hold untrusted text.
        advice: what to do; nothing if all is well.
    """

    check: str
    severity: str
    text: str
    advice: str = ""


def ok(check: str, text: str) -> Finding:
    return Finding(check, "ok", text)


def unknown(check: str, text: str, advice: str = "") -> Finding:
    return Finding(check, "unknown", text, advice)


def warning(check: str, text: str, advice: str) -> Finding:
    return Finding(check, "warning", text, advice)


def error(check: str, text: str, advice: str) -> Finding:
    return Finding(check, "error", text, advice)


def worst(findings: list[Finding]) -> str:
    """The highest severity among them; "ok" if there are none."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default="ok")
