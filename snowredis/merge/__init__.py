"""Find ids that clash between databases, merge two by a map that a person can read, and prove what changed.

A tool of its own: joined to the command line by the entry points of the group `snowredis.commands` (pyproject.toml),
and nothing outside of this package imports it. Of snowredis it imports errors, layouts, the one JSON, and the public
parts of the command line. Needs the extra `merge`: DuckDB, SQLAlchemy, numpy. Nothing of the extra is imported before
it is used.
"""

from __future__ import annotations

from collections.abc import Sequence

from snowredis.errors import SnowredisError


class SourceError(SnowredisError):
    """A file, a table or a database that cannot be read; nothing was changed in it."""

    # exit code of the command line
    exit_code = 11


class MergeError(SnowredisError):
    """A merge that was refused, or that stopped; the message says what was changed until then.

    Attributes:
        findings: each reason with what to do, where there are several.
    """

    exit_code = 12

    def __init__(self, message: str, findings: Sequence[str] = ()) -> None:
        super().__init__(message, findings)
        self.message, self.findings = message, list(findings)

    def __str__(self) -> str:
        return "; ".join([self.message, *self.findings])
