"""Table snowredis_migrations: the plan of each migration, its state, and how far it got; in the migrated database."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from snowredis.merge.migrate.plan import MigrationPlan, State

__all__ = ["JOURNAL_TABLE", "Entry", "Journal"]

JOURNAL_TABLE = "snowredis_migrations"

_table = sa.Table(
    JOURNAL_TABLE,
    sa.MetaData(),
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("progress", sa.Text, nullable=False),
    sa.Column("changed_ms", sa.BigInteger, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: a migration.

    Attributes:
        progress: of the step that is under way, and facts that later steps need.
    """

    plan: MigrationPlan
    state: State
    progress: dict[str, Any] = field(default_factory=dict)


class Journal:
    """The row of one migration, by the name of its column."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_table(self, engine: sa.Engine) -> None:
        """Create the table if there is none."""
        _table.create(engine, checkfirst=True)

    def read(self, connection: sa.Connection) -> Entry | None:
        """Return the migration; None if there is none of this name."""
        if not sa.inspect(connection).has_table(JOURNAL_TABLE):
            return None
        row = connection.execute(sa.select(_table).where(_table.c.name == self.name)).one_or_none()
        if row is None:
            return None
        return Entry(MigrationPlan.from_json(row.plan), row.state, json.loads(row.progress))

    def write(self, connection: sa.Connection, entry: Entry) -> None:
        """Insert or replace the row, within the caller's transaction."""
        values = {
            "state": entry.state,
            "plan": entry.plan.to_json(),
            "progress": json.dumps(entry.progress),
            "changed_ms": time.time_ns() // 1_000_000,
        }
        changed = connection.execute(sa.update(_table).where(_table.c.name == self.name).values(values))
        if not changed.rowcount:
            connection.execute(sa.insert(_table).values(values | {"name": self.name}))

    def write_progress(self, connection: sa.Connection, progress: dict[str, Any]) -> None:
        """Replace the progress only, within the caller's transaction."""
        values = {"progress": json.dumps(progress), "changed_ms": time.time_ns() // 1_000_000}
        connection.execute(sa.update(_table).where(_table.c.name == self.name).values(values))

    def delete(self, connection: sa.Connection) -> None:
        """Forget the migration."""
        connection.execute(sa.delete(_table).where(_table.c.name == self.name))
