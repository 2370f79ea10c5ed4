"""Merges of schemas as they are met, from one server to another in another time zone, compared by natural keys in SQL.

The rows are copied by `snowredis merge copy`, and compared by `snowredis merge check --copied`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from snowredis.cli import main
from snowredis.merge import MergeError
from snowredis.merge.apply import revert
from snowredis.merge.progress import Progress
from tests.merge.field_schemas import GAME, PAGILA, SAKILA, FieldSchema
from tests.merge.test_apply import apply_file, plan_of, printed
from tests.support import databases, warm
from tests.support.statements import execute, rows_of


@pytest.fixture(scope="module")
def far_postgresql() -> Iterator[databases.PostgreSQL]:
    """A second server, in another time zone, with other formats of dates and floats."""
    with skipping(lambda: databases.postgresql("TimeZone=America/New_York", "DateStyle=SQL, DMY")) as server:
        yield server


@pytest.fixture(scope="module")
def far_mariadb() -> Iterator[databases.MariaDB]:
    with skipping(lambda: databases.mariadb("default-time-zone=+09:00")) as server:
        yield server


@contextlib.contextmanager
def skipping(make: Callable[[], Any]) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(make())
        except databases.MissingDatabase as error:
            pytest.skip(str(error))


def pair_of(schema: FieldSchema, near: Any, far: Any) -> tuple[str, str]:
    urls = near.new_database(), far.new_database()
    for url, rows in zip(urls, schema.rows, strict=True):
        statements = [part for part in f"{schema.tables}\n--\n{rows}".split("\n--\n") if part.strip()]
        execute(url, *(statement.replace("%", "%%") for statement in statements))
    return urls


def relations_of(schema: FieldSchema, *urls: str) -> list[Counter[Any]]:
    """Return which rows belong together, by names, of all *urls* together."""
    zone = "SET time_zone = '+00:00'" if schema.kind == "mariadb" else "SET TimeZone = 'UTC'"
    found = []
    for query in schema.relations:
        rows: Counter[Any] = Counter()
        for url in urls:
            engine = sa.create_engine(url)
            with engine.connect() as connection:
                connection.exec_driver_sql(zone)
                rows.update(tuple(map(str, row)) for row in connection.execute(sa.text(query)))
            engine.dispose()
        found.append(rows)
    return found


def merged(schema: FieldSchema, kept: str, changed: str, path: Path, *, undone: bool = True, **more: Any) -> None:
    """Merge two databases, *undone* once before, and compare what belongs together."""
    of_changed, of_kept = relations_of(schema, changed), relations_of(schema, kept)
    plan_of(kept, changed, path, **{**schema.options, **more})
    apply_file(path)
    assert relations_of(schema, changed) == of_changed
    if undone:
        revert(changed, finished=True, batch_rows=100, progress=Progress())
        assert relations_of(schema, changed) == of_changed
        apply_file(path)
    assert main(["merge", "copy", str(path), "--run", "--yes"]) == 0
    assert main(["merge", "check", "--copied", str(path)]) == 0
    together = relations_of(schema, kept)
    assert together == [one + other for one, other in zip(of_kept, of_changed, strict=True)]


def test_sakila(mariadb_server: Any, far_mariadb: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept, changed = pair_of(SAKILA, mariadb_server, far_mariadb)
    path = tmp_path / "merge.plan"
    with pytest.raises(MergeError, match=r"film_text\.film_id: 100% of its values are ids of .*--reference film_text"):
        plan_of(kept, changed, path, matched=["language=name"])

    merged(SAKILA, kept, changed, path)
    assert rows_of(kept, "SELECT name FROM language ORDER BY language_id") == [
        ("English",),
        ("Italian",),
        ("Japanese",),
    ]
    highest = rows_of(kept, "SELECT max(film_id) FROM film")[0][0]
    execute(kept, "INSERT INTO film (title, language_id) VALUES ('new', 1)")
    assert rows_of(kept, "SELECT film_id FROM film WHERE title = 'new'") == [(highest + 1,)]


def test_pagila_with_partitions(
    postgresql_server: Any, far_postgresql: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, changed = pair_of(PAGILA, postgresql_server, far_postgresql)
    path = tmp_path / "merge.plan"

    merged(PAGILA, kept, changed, path)
    for table in ("customer", "rental"):
        highest = rows_of(kept, f"SELECT max({table}_id) FROM {table}")[0][0]
        values = "(name) VALUES ('new')" if table == "customer" else "(customer_id, period) VALUES (1, 'empty')"
        execute(kept, f"INSERT INTO {table} {values}")
        assert rows_of(kept, f"SELECT max({table}_id) FROM {table}") == [(highest + 1,)]


def test_a_game_without_any_foreign_key(mariadb_server: Any, far_mariadb: Any, tmp_path: Path) -> None:
    kept, changed = pair_of(GAME, mariadb_server, far_mariadb)
    path = tmp_path / "merge.plan"
    with pytest.raises(MergeError) as refused:
        plan_of(kept, changed, path)
    for column in ("role.account_id", "role.guild_id", "guild.leader_role_id", "player_stats.role_id"):
        assert f"--reference {column}=" in str(refused.value)

    merged(GAME, kept, changed, path)


# --- Django ----------------------------------------------------------------------------------------------

# what needs no settings
IMPORTED = ("django.core.management", "django.db.models", "django.contrib.admin.options", "psycopg")
PROJECT = Path(__file__).parent / "programs/django_project"
OF_DJANGO = FieldSchema(
    kind="postgresql",
    tables="",
    rows=("", ""),
    relations=(
        "SELECT title, n.name, u.username FROM shop_book b JOIN shop_publisher p ON p.party_ptr_id = publisher_id "
        "JOIN shop_party n ON n.id = party_ptr_id LEFT JOIN auth_user u ON u.id = editor_id",
        "SELECT place, title FROM shop_shelf s LEFT JOIN shop_book b ON b.id = s.book_id",
        "SELECT place, username FROM shop_shelf s JOIN shop_shelf_readers r ON r.shelf_id = s.book_id "
        "JOIN auth_user u ON u.id = user_id",
        "SELECT n.name, c.model, title FROM shop_tagged t JOIN shop_tag n ON n.id = tag_id "
        "JOIN django_content_type c ON c.id = content_type_id LEFT JOIN shop_book b ON b.id = object_id",
        "SELECT text, c.model, CASE c.model WHEN 'book' THEN (SELECT title FROM shop_book WHERE id::text = about_id) "
        "WHEN 'user' THEN (SELECT username FROM auth_user WHERE id::text = about_id) "
        "WHEN 'publisher' THEN (SELECT name FROM shop_party WHERE id::text = about_id) END "
        "FROM shop_comment JOIN django_content_type c ON c.id = about_type_id",
        "SELECT object_repr, c.model, username, b.title, p.codename FROM django_admin_log l JOIN auth_user u "
        "ON u.id = user_id JOIN django_content_type c ON c.id = content_type_id LEFT JOIN shop_book b "
        "ON c.model = 'book' AND b.id::text = object_id LEFT JOIN auth_permission p ON c.model = 'permission' "
        "AND p.id::text = object_id",
        "SELECT g.name, c.model, codename FROM auth_group g JOIN auth_group_permissions gp ON gp.group_id = g.id "
        "JOIN auth_permission p ON p.id = permission_id JOIN django_content_type c ON c.id = p.content_type_id",
        "SELECT username, codename FROM auth_user u JOIN auth_user_user_permissions up ON up.user_id = u.id "
        "JOIN auth_permission p ON p.id = permission_id",
    ),
)


def test_a_django_project_with_content_types_and_the_admins_log(
    postgresql_server: Any, far_postgresql: Any, tmp_path: Path
) -> None:
    pytest.importorskip("django")
    kept, changed = postgresql_server.new_database(), far_postgresql.new_database()
    migrations = tmp_path / "shop_migrations"
    migrations.mkdir()
    (migrations / "__init__.py").touch()

    def manage(url: str, *argv: str) -> None:
        environment = {**os.environ, "DATABASE_URL": url, "PYTHONPATH": str(tmp_path), "ZONE": "Asia/Tokyo"}
        command = [sys.executable, str(PROJECT / "manage.py"), *argv]
        done = warm.run(command, imported=IMPORTED, env=environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr

    manage(kept, "makemigrations:shop", "migrate", "fill:a")
    # the other project began with another application, so its content types and permissions have other ids
    manage(changed, "migrate:shop", "migrate", "fill:b")
    ids = "SELECT id, model FROM django_content_type ORDER BY id"
    assert rows_of(kept, ids) != rows_of(changed, ids)

    path = tmp_path / "merge.plan"
    options = {"excluded": ["django_session"], "independent": ["django_admin_log.action_flag"]}
    # it has the most tables, and no kind of column that the others have not
    references = printed(kept, changed, path, **options)
    merged(OF_DJANGO, kept, changed, path, undone=False, references=references, **options)
    # an entry of a book that is gone leads to no book of the other project
    query = "SELECT count(*) FROM django_admin_log JOIN shop_book b ON b.id::text = object_id WHERE object_repr LIKE "
    assert rows_of(kept, f"{query} '%gone'") == [(0,)]
