"""Find ids that clash between databases, merge two by a map that a person can read, and prove what changed.

A tool of its own: the command line loads commands.py by its name, and nothing outside of this package imports it. Of
snowredis it imports errors, layouts, the one JSON, and the public parts of the command line. Needs the extra `merge`:
DuckDB and SQLAlchemy. Nothing of the extra is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence

from snowredis.errors import SnowredisError


class MergeError(SnowredisError):
    """A merge that was refused, or that stopped; the message says what was changed until then.

    Attributes:
        findings: each reason with what to do, where there are several.
        code: "unreadable", if a file, a table or a database cannot be read, and nothing was changed in it.
    """

    def __init__(self, message: str, findings: Sequence[str] = (), code: str = "") -> None:
        super().__init__(message, findings, code)
        self.message, self.findings, self.code = message, list(findings), code

    @property
    def exit_code(self) -> int:
        """Exit code of the command line."""
        return 11 if self.code else 12

    def __str__(self) -> str:
        return "; ".join([self.message, *self.findings])


def unreadable(message: str) -> MergeError:
    """Return the error for a source that cannot be read."""
    return MergeError(message, code="unreadable")
