"""List of what a copy carries over without a loss, for both databases and all of their tables.

The catalog of each database is read into facts. A fact that is not on the list is refused, with what to do, and so is
one that differs between the two databases. Data is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import sqlalchemy as sa

from snowredis.merge import MergeError
from snowredis.merge.databases import catalog_query
from snowredis.merge.schema import Schema, TableName
from snowredis.merge.support import Support, support_of

# refused facts that a message names
_NAMED = 10


class Fact(NamedTuple):
    """Fact of the catalog about a table.

    Attributes:
        what: such as a column; empty: the table itself.
        value: must be the same in both databases.
        refusal: why it is not on the list, and what to do; empty: it is.
    """

    table: TableName
    what: str
    value: str
    refusal: str


_ON_CONFLICT = re.compile(r"\bON\s+CONFLICT\s+(?!ABORT\b)\w+", re.IGNORECASE)


def _facts(connection: sa.Connection, schema: Schema, support: Support) -> Iterator[Fact]:
    """Yield the facts of all tables of a database that are not excluded."""
    facts = list[Fact]()
    # on PostgreSQL, one query has all schemas
    for name in schema.names if support.kind in ("mysql", "mariadb") else [None]:
        for query in ("tables", "columns"):
            for row in connection.execute(catalog_query(support.kind, query), {"schema": name}):
                refusal = row.refusal or _conflict(getattr(row, "sql", None) or "")
                facts.append(Fact(TableName(getattr(row, "schema", name), row.tab), row.what, row.value, refusal))
    yield from (fact for fact in facts if schema.names_table(fact.table))
    inspector = sa.inspect(connection)
    for name in schema.names:
        for (_, table), checks in inspector.get_multi_check_constraints(schema=name).items():
            if TableName(name, table) in schema.tables:
                yield from (Fact(TableName(name, table), f"CHECK ({check['sqltext']})", "", "") for check in checks)


def _conflict(sql: str) -> str:
    clause = _ON_CONFLICT.search(sql)
    return (
        f"has a key with {clause[0].upper()}, which replaces or skips rows: make the table again without"
        if clause
        else ""
    )


def check_copyable(sides: Iterable[tuple[sa.Connection, Schema]]) -> None:
    """Refuse tables of which the list does not say that a copy loses nothing.

    Args:
        sides: both databases, the one whose ids stay first.

    Raises:
        MergeError: with the first facts that are not on the list, or that differ.
    """
    kept, changed = ([*_facts(*side, support_of(side[0].engine))] for side in sides)
    tables = {fact.table for fact in changed}
    kept = [fact for fact in kept if fact.table in tables]
    refused = dict[str, list[str]]()
    for which, facts in (("first", kept), ("second", changed)):
        for fact in facts:
            if fact.refusal:
                refused.setdefault(f"{_named(fact)} {fact.refusal}", []).append(which)
    found = [f"{text} (in the {' and the '.join(where)} database)" for text, where in refused.items()]
    found += _differences(kept, changed)
    if found:
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise MergeError(
            f"not known to be safe: {'; '.join(found[:_NAMED])}{more}. Nothing was changed; correct that, or "
            "--exclude a table."
        )


def _named(fact: Fact) -> str:
    if not fact.what:
        return f"the table {fact.table}"
    return f"{fact.table}.{fact.what}" if not fact.what.startswith("CHECK ") else f"the {fact.what} of {fact.table}"


def _differences(kept: list[Fact], changed: list[Fact]) -> Iterator[str]:
    one, other = ({fact[:2]: fact for fact in facts} for facts in (kept, changed))
    tables = {fact.table for fact in kept}
    for key in dict.fromkeys([*other, *one]):
        fact = other.get(key) or one[key]
        # what is in a table that one database lacks needs no line of its own
        if key in one and key in other:
            if (mine := one[key].value) != (theirs := other[key].value):
                yield f"{_named(fact)} is {mine} in one, and {theirs} in the other"
        elif fact.table in tables or not fact.what:
            yield f"{_named(fact)} is only in the database that {'changes' if key in other else 'is kept'}"
