"""The status of a pool as text: its level and headline, then each condition with what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from snowredis.cli.output import Line, printable, time_of, wrapped

if TYPE_CHECKING:
    from snowredis.monitor.status import Status

LEVEL_STYLES = {"ok": "good", "notice": "note", "unknown": "note", "warning": "warn", "critical": "bad"}
# columns of the longest level, and a space
_INDENT = 9


def status_lines(
    status: Status, time_text: Callable[[int], str] = time_of, *, advice: bool = True, most: int | None = None
) -> list[Line]:
    """Return the headline and the conditions.

    Args:
        advice: whether to say what to do.
        most: how many conditions are shown at most; None: all.
    """
    lines: list[Line] = [headline(status)]
    shown = status.conditions[:most]
    for condition in shown:
        head: Line = [(f"{condition.level:<{_INDENT}}", LEVEL_STYLES[condition.level])]
        lines += wrapped(head, printable(condition.render(time_text), 1000))
        if advice and condition.advice:
            lines += wrapped([(" " * _INDENT + "→ ", "dim")], printable(condition.advice, 1000), "note")
    if len(shown) < len(status.conditions):
        lines.append([(f"{' ' * _INDENT}… and {len(status.conditions) - len(shown)} more", "dim")])
    return lines


def headline(status: Status) -> Line:
    """Return the level and the headline; the level is a word, and not shown by its color alone."""
    return [
        ("status ", "dim"),
        (f"{status.level}: {printable(status.headline, 200)}", LEVEL_STYLES[status.level]),
    ]
