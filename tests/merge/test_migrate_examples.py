"""The examples of migrations with Alembic and with Django, on PostgreSQL, with rows and references in the tables."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from snowredis.cli import main
from tests.support.databases import MissingDatabase, PostgreSQL, postgresql

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
Run = Callable[..., str]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    try:
        with postgresql() as running:
            yield running
    except MissingDatabase as error:
        pytest.skip(str(error))


@pytest.fixture
def url(server: PostgreSQL) -> str:
    return server.new_database()


@pytest.fixture
def run(url: str, tmp_path: Path) -> Run:
    def run_program(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            env=os.environ | {"DATABASE_URL": url, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run_program


def by_hand(source: str) -> None:
    for step in ("start", "backfill", "verify", "switch", "finish"):
        assert main(["migrate", step, source]) == 0


def test_alembic_finds_nothing_left_to_do_after_the_steps_by_hand(run: Run, url: str) -> None:
    alembic = ("-m", "alembic", "-c", str(EXAMPLES / "migrate_alembic/alembic.ini"))
    run(*alembic, "upgrade", "0001")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO orders (name) VALUES ('a'), ('b')"))
        connection.execute(sa.text("INSERT INTO order_lines (order_id, text) VALUES (2, 'of b')"))
    by_hand(f"{url}#orders.id")
    run(*alembic, "upgrade", "head")
    # models and tables agree
    assert "No new upgrade operations detected" in run(*alembic, "check")
    with engine.connect() as connection:
        rows = connection.execute(
            sa.text("SELECT o.id, name, text FROM orders o JOIN order_lines l ON order_id = o.id")
        ).all()
    engine.dispose()
    assert [tuple(row) for row in rows] == [(2, "b", "of b")]


def test_django_takes_the_steps_itself_on_a_small_table(run: Run, url: str) -> None:
    manage = str(EXAMPLES / "migrate_django/manage.py")
    run(manage, "migrate", "shop", "0001")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO shop_order (name) VALUES ('a'), ('b')"))
        connection.execute(sa.text("INSERT INTO shop_line (order_id, text) VALUES (2, 'of b')"))
    run(manage, "migrate")
    # models and migrations agree, and a new order gets a new id
    check = "from django.core.management import call_command; call_command('makemigrations', check=True)"
    create = "from shop.models import *; Line.objects.create(order=Order.objects.create(name='new'), text='of new')"
    run(manage, "shell", "-c", f"{check}; {create}")
    with engine.connect() as connection:
        rows = connection.execute(
            sa.text(
                "SELECT o.id, name, text FROM shop_order o JOIN shop_line l ON order_id = o.id ORDER BY o.id"
            )
        ).all()
    engine.dispose()
    assert [tuple(row)[1:] for row in rows] == [("b", "of b"), ("new", "of new")]
    assert (rows[0].id, rows[1].id > 2**40) == (2, True)
