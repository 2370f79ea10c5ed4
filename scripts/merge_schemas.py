#!/usr/bin/env python3
"""Merge a database that others designed with itself: load it twice, give one new ids, copy, check every key.

    scripts/merge_schemas.py postgresql Chinook_PostgreSql.sql
    scripts/merge_schemas.py mariadb Chinook_MySql.sql
    scripts/merge_schemas.py sqlite Chinook_Sqlite.sql --shared Genre --shared MediaType
    scripts/merge_schemas.py postgresql sakila-schema.sql sakila-data.sql --options '--exclude ...'

The files are those of the Chinook (https://github.com/lerocha/chinook-database), Sakila or Pagila sample databases,
or of any other; they are loaded by psql, mariadb or sqlite3 into a private server. All ids clash: all of them change.

What counts is found by queries of its own: for each foreign key, the sum over all rows of a hash of the row and of the
row that it refers to, without their ids. It is the same before and after the ids changed, and twice that after
the copy. Exits with 1 if not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from hashlib import blake2b
from pathlib import Path

import sqlalchemy as sa

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from snowredis.merge.apply.copy_rows import copy_rows  # noqa: E402

from snowredis.errors import MergeError  # noqa: E402
from snowredis.merge.apply import apply_plan, open_databases  # noqa: E402
from snowredis.merge.databases import open_database  # noqa: E402
from snowredis.merge.plan_file import PlanFile  # noqa: E402
from snowredis.merge.planning import Request, make_plan  # noqa: E402
from snowredis.merge.schema import (  # noqa: E402
    ColumnName,
    ForeignKey,
    Schema,
    read_schema,
)
from snowredis.merge.support import support_of  # noqa: E402
from tests.support.databases import SERVERS  # noqa: E402

# lines that choose another database than the one that the file is loaded into
_OTHER = ("drop database", "create database", "create schema sakila", "drop schema", "use ", "\\c ")


def load(kind: str, url: str, files: list[Path]) -> None:
    """Load files of SQL with the database's own program."""
    at = sa.make_url(url)
    text = "\n".join(
        line
        for file in files
        for line in file.read_text("utf-8-sig").splitlines()
        if not line.lower().startswith(_OTHER)
    )
    command = {
        "sqlite": ["sqlite3", str(at.database)],
        "postgresql": [
            "psql",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            str(at.query.get("host")),
            "-U",
            "postgres",
        ]
        + [str(at.database)],
        "mariadb": ["mariadb", "-S", str(at.query.get("unix_socket")), "-u", "root", str(at.database)],
    }[kind]
    if kind == "sqlite":
        text = f"PRAGMA synchronous = off; BEGIN; {text}; COMMIT;"
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"merge_schemas.py: {command[0]}: {done.stderr[:2000]}")


def sums(url: str, schema: Schema) -> dict[str, int]:
    """Return, for each foreign key, a sum over the rows that refer: what they are, and what they refer to."""
    engine = open_database(url)
    ids = {name for domain in schema.domains for name in domain.columns}
    with engine.connect() as connection:
        return {str(key): _sum(connection, engine, schema, key, ids) for key in schema.foreign_keys}


def _sum(
    connection: sa.Connection, engine: sa.Engine, schema: Schema, key: ForeignKey, ids: set[ColumnName]
) -> int:
    child, parent = schema.tables[key.child].alias("c"), schema.tables[key.parent].alias("p")
    pairs = zip(key.columns, key.parents, strict=True)
    joined = child.join(parent, sa.and_(*(child.c[a.column] == parent.c[b.column] for a, b in pairs)))
    columns = [
        support_of(engine).raw(column)
        for side, name in ((child, key.child), (parent, key.parent))
        for column in side.c
        if ColumnName(*name, column.name) not in ids
    ]
    rows = connection.execute(sa.select(sa.literal(1), *columns).select_from(joined))
    hashes = (int.from_bytes(blake2b(repr(tuple(row)).encode(), digest_size=8).digest()) for row in rows)
    return sum(hashes)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("kind", choices=SERVERS)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--shared", action="append", default=[])
    parser.add_argument("--exclude", action="append", default=[])
    parser.add_argument("--no-copy", action="store_true", help="change the ids only")
    options = parser.parse_args()
    with SERVERS[options.kind]() as server, tempfile.TemporaryDirectory() as directory:
        kept, changed = server.new_database("kept"), server.new_database("changed")
        for url in (kept, changed):
            load(options.kind, url, options.files)
        began_s = time.monotonic()
        schema = read_schema(open_database(changed), excluded=options.exclude)
        before = sums(changed, schema)
        path = Path(directory) / "merge.plan"
        try:
            make_plan(Request(kept, changed, shared=options.shared, excluded=options.exclude), path)
            plan, file = PlanFile.open(path)
            with file:
                databases = open_databases(plan)
                outcome = apply_plan(plan, file, databases, batch_rows=5000)
                after = sums(changed, schema)
                copied = 0 if options.no_copy else copy_rows(plan, databases, batch_rows=5000)
        except MergeError as error:
            raise SystemExit(f"merge_schemas.py: {error}") from error
        wrong = [key for key, total in before.items() if after[key] != total]
        if not options.no_copy:
            merged = sums(kept, schema)
            names = {str(key): key.child.table for key in schema.foreign_keys}
            wrong += [
                key
                for key, total in before.items()
                if merged[key] != (total if names[key] in options.shared else 2 * total)
            ]
        for note in plan.warnings:
            print(f"  note: {note}")
        print(
            f"{options.kind}, {options.files[0].name}: {len(schema.tables)} tables, {len(before)} foreign keys, "
            f"{outcome.ids:,} ids changed in {outcome.values:,} places, {copied:,} rows copied, "
            f"{time.monotonic() - began_s:.1f} s: "
            + (f"WRONG: {', '.join(wrong)}" if wrong else "every row refers to what it referred to")
        )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
