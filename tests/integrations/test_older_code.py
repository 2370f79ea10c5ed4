"""Processes that run beside those with new ids: code of 32 bits does not read a new row, code of 64 bits does."""

from __future__ import annotations

import sys

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

import snowredis
from snowredis.testing import memory_pool
from tests.support import warm
from tests.support.databases import DatabaseServer

# as each of the two lives in a deployment: with the old ids, until no older process is left
DJANGO = """
import sys
import django
from django.conf import settings
host, port, name, user, password, new_id = sys.argv[1:]
database = dict(ENGINE="django.db.backends.postgresql", HOST=host, PORT=port, NAME=name, USER=user, PASSWORD=password)
settings.configure(DATABASES={"default": database})
django.setup()
from django.db import models

for field in (models.AutoField, models.BigAutoField):
    meta = type("Meta", (), {"app_label": "shop", "db_table": "orders"})
    fields = {"id": field(primary_key=True), "name": models.CharField(max_length=9), "Meta": meta, "__module__": "shop"}
    order = type("Order" + field.__name__, (models.Model,), fields)
    made = order.objects.create(name="old")
    found = order.objects.filter(pk=new_id).first()
    print(made.pk, found and found.name)
"""


@pytest.fixture
def database(postgresql_server: DatabaseServer) -> sa.Engine:
    """A table whose key was widened, with a row that has a new id."""
    engine = sa.create_engine(postgresql_server.new_database())
    with engine.begin() as connection, snowredis.connect(memory_pool()) as ids:
        connection.exec_driver_sql("CREATE TABLE orders (id SERIAL PRIMARY KEY, name VARCHAR(9))")
        connection.exec_driver_sql("ALTER TABLE orders ALTER COLUMN id TYPE bigint")
        connection.execute(sa.text("INSERT INTO orders VALUES (:id, 'new')"), {"id": ids.next_id()})
    return engine


def new_id_of(database: sa.Engine) -> int:
    with database.connect() as connection:
        found: int = connection.exec_driver_sql("SELECT max(id) FROM orders").scalar_one()
    return found


def test_sqlalchemy_reads_a_new_row_and_makes_old_ids_with_biginteger_and_fails_with_integer(
    database: sa.Engine,
) -> None:
    new_id = new_id_of(database)
    older, first_step = (
        sa.Table("orders", sa.MetaData(), sa.Column("id", kind, primary_key=True), sa.Column("name", sa.String))
        for kind in (sa.Integer, sa.BigInteger)
    )
    with database.begin() as connection:
        assert connection.execute(sa.insert(first_step), {"name": "old"}).inserted_primary_key == (1,)
        found = sa.select(first_step.c.name).where(first_step.c.id == new_id)
        assert connection.execute(found).scalar_one() == "new"
    with database.begin() as connection, pytest.raises(sa.exc.DBAPIError):
        connection.execute(sa.select(older.c.name).where(older.c.id == sa.bindparam("id", new_id, sa.Integer)))


def test_django_reads_a_new_row_with_bigautofield_and_does_not_find_it_with_autofield(database: sa.Engine) -> None:
    pytest.importorskip("django")
    url = make_url(database.url)
    host = url.host or url.query.get("host", "")
    place = [str(host), str(url.port or ""), url.database or "", url.username or "", url.password or ""]
    command = [sys.executable, "-c", DJANGO, *place, str(new_id_of(database))]
    done = warm.run(command, imported=("django.db.models",), capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("1 None\n2 new", "")
