"""Result of one check: how serious it is, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

# from least to most serious
SEVERITIES = ("ok", "unknown", "warning", "error")


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    Attributes:
        check: what was checked, in a word or two.
        severity: one of SEVERITIES. unknown: the check was not possible.
        text: the result; may contain untrusted text.
        advice: what to do; empty if nothing is wrong.
    """

    check: str
    severity: str
    text: str
    advice: str = ""


def ok(check: str, text: str) -> Finding:
    """Return a finding of severity "ok"."""
    return Finding(check, "ok", text)


def unknown(check: str, text: str, advice: str = "") -> Finding:
    """Return the finding of a check that was not possible."""
    return Finding(check, "unknown", text, advice)


def warning(check: str, text: str, advice: str) -> Finding:
    """Return a finding of severity "warning"."""
    return Finding(check, "warning", text, advice)


def error(check: str, text: str, advice: str) -> Finding:
    """Return a finding of severity "error"."""
    return Finding(check, "error", text, advice)


def worst(findings: list[Finding]) -> str:
    """Return the highest severity in *findings*; "ok" if there are none."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default="ok")
