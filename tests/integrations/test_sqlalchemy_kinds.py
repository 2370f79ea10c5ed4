"""Columns of SQLAlchemy that make ids of any kind: the column, the ids, and what is refused."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlalchemy.schema import CreateTable

import snowredis
from snowredis.integrations.sqlalchemy import GeneratedId, render_item
from snowredis.testing import memory_pool, use
from tests.support.databases import DatabaseServer


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: Mapped[uuid.UUID] = mapped_column(GeneratedId("uuid7"), primary_key=True)
    public: Mapped[str] = mapped_column(GeneratedId("ulid"), unique=True)
    packed: Mapped[bytes] = mapped_column(GeneratedId("objectid", form="bytes"), unique=True)
    number: Mapped[int] = mapped_column(GeneratedId("snowflake"), unique=True)
    books: Mapped[list[Book]] = relationship(back_populates="author")


class Book(Base):
    __tablename__ = "book"
    id: Mapped[bytes] = mapped_column(GeneratedId("ulid:?form=bytes"), primary_key=True)
    author_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("author.id"))
    author: Mapped[Author] = relationship(back_populates="books")


@pytest.fixture(autouse=True)
def _ids() -> Iterator[None]:
    with snowredis.connect(memory_pool()) as ids, use(ids):
        yield


@pytest.fixture
def engine(database_kind: DatabaseServer) -> Iterator[sa.Engine]:
    engine = sa.create_engine(database_kind.new_database())
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def test_every_database_stores_ids_of_every_kind_and_returns_them(engine: sa.Engine) -> None:
    with Session(engine, expire_on_commit=False) as session:
        authors = [Author(books=[Book(), Book()]) for _ in range(30)]
        session.add_all(authors)
        session.commit()
        session.execute(sa.insert(Author), [{}, {}])
        made = {(author.id, author.public, author.packed, author.number) for author in authors}
        session.expunge_all()
        found = {tuple(row) for row in session.execute(sa.select(*Author.__table__.columns))}
        assert made < found
        assert len(found) == 32
        for column in zip(*found, strict=True):
            assert len(set(column)) == 32
        assert [type(value) for value in next(iter(found))] == [uuid.UUID, str, bytes, int]
        first = authors[0]
        again = session.get_one(Author, first.id)
        assert {book.id for book in again.books} == {book.id for book in first.books}
        assert session.scalars(sa.select(Author).where(Author.packed == first.packed)).one().id == first.id


@pytest.mark.parametrize(
    ("dialect", "types"),
    [
        (postgresql.dialect(), ["UUID", "VARCHAR(26)", "BYTEA", "BIGINT"]),
        (mysql.dialect(), ["CHAR(32)", "VARCHAR(26)", "BINARY(12)", "BIGINT"]),
        (sqlite.dialect(), ["CHAR(32)", "VARCHAR(26)", "BLOB", "BIGINT"]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_column_is_what_the_ids_are(dialect: Any, types: list[str]) -> None:
    columns = Author.__table__.columns
    assert [column.type.compile(dialect) for column in columns] == types
    assert Book.__table__.c.author_id.type.compile(dialect) == types[0]
    assert "SERIAL" not in str(CreateTable(Author.__table__).compile(dialect=dialect))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("id", "0", "an id of the kind 'uuid7' is a UUID, not str '0'"),
        ("public", "x" * 27, "is a str of at most 26 characters, not str"),
        ("packed", "ab", "an id of the kind 'objectid' is a bytes, not str 'ab'"),
        ("number", "x7", "an id must be an int, not str"),
    ],
)
def test_what_is_no_id_of_the_kind_is_refused(column: str, value: Any, text: str) -> None:
    engine = sa.create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with engine.connect() as connection, pytest.raises(sa.exc.StatementError, match=text):
        connection.execute(sa.insert(Author).values({column: value}))
    engine.dispose()


def test_a_kind_takes_the_settings_of_the_process_where_it_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWREDIS_POOL", "of-the-environment")
    snowredis.configure(url=memory_pool())
    of_process, own = GeneratedId("snowflake")._source, GeneratedId("snowflake", pool="own")._source
    assert of_process.next_id() < snowredis.next_id()
    assert own.next_id() > 0
    assert own.generator().pool == "own"
    assert own.generator() is own.generator() is not of_process.generator()
    own.generator().close()


def test_a_column_keeps_its_type_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """SNOWREDIS_FORM is a setting of the process' kind of ids, which is another one here."""
    source = GeneratedId("uuid7")._source
    monkeypatch.setenv("SNOWREDIS_FORM", "text")
    assert isinstance(source.next_id(), uuid.UUID)


def test_types_of_different_kinds_share_no_compiled_statement_and_survive_pickling() -> None:
    assert GeneratedId("uuid7")._static_cache_key == GeneratedId("uuid7")._static_cache_key
    assert GeneratedId("uuid7")._static_cache_key != GeneratedId("ulid")._static_cache_key
    copy = pickle.loads(pickle.dumps(Base.metadata))
    assert type(copy.tables["author"].c.id.type) is GeneratedId
    assert copy.tables["author"].c.public.type._next_id() > ""


def test_alembic_renders_what_is_in_the_database() -> None:
    def rendered(dialect: sa.Dialect) -> list[str]:
        context = SimpleNamespace(dialect=dialect)
        return [render_item("type", column.type, context) for column in Author.__table__.columns]

    # a BLOB cannot be a key
    for dialect, binary in ((postgresql.dialect(), "LargeBinary"), (mysql.dialect(), "BINARY")):
        assert rendered(dialect) == ["sa.Uuid()", "sa.String(length=26)", f"sa.{binary}(length=12)", "sa.BigInteger()"]
