"""Find ids that clash between databases, give them new ones, and prove what changes: a tool of its own.

Joined to the command line by the entry points of the group `snowredis.commands` (pyproject.toml). Nothing outside of
this package imports it. Of snowredis it imports errors, layouts, the comparison of old and new ids, the one JSON, and
the public parts of the command line. Needs the extra `merge`: DuckDB, SQLAlchemy, numpy. Nothing of the
extra is imported before it is used.
"""

from __future__ import annotations

from snowredis.errors import SnowredisError


class SourceError(SnowredisError):
    """A file, a table or a database whose ids cannot be read; nothing was changed in it."""

    # exit code of the command line
    exit_code = 11


class MergeError(SnowredisError):
    """A merge that was refused, or that stopped; the message says what was changed until then."""

    exit_code = 12


class Undecided(MergeError):
    """A merge that cannot be planned before each of *findings* is decided or corrected."""

    def __init__(self, findings: list[str]) -> None:
        super().__init__(findings)
        self.findings = findings

    def __str__(self) -> str:
        return f"{len(self.findings)} findings. Nothing was planned; decide or correct each: {'; '.join(self.findings)}"
