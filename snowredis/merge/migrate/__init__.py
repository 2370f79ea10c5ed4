"""Change the ids of a table in use, in steps that can each be resumed, and undone until the last.

A second column beside each that holds the ids: before the switch it has the new values, after it the old ones, kept by
triggers. New value = old value + one number for all, so columns that refer to the ids need no join.
"""

from __future__ import annotations

from snowredis.merge.migrate.migration import Migration

__all__ = ["Migration"]
