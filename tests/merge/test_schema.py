"""Which columns hold the same ids: over several steps, composite keys, circles, and what a person names."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from snowredis.merge import MergeError
from snowredis.merge.schema import ColumnName, ForeignKey, Partial, Schema, TableName, read_schema, tables_of


def column(text: str) -> ColumnName:
    table, name = text.split(".")
    return ColumnName(None, table, name)


def key(text: str) -> ForeignKey:
    """Make a foreign key from "a.x, a.y -> b.x, b.y"."""
    child, parent = ([column(part.strip()) for part in side.split(",")] for side in text.split("->"))
    return ForeignKey("named", tuple(child), tuple(parent))


def schema(*keys: str, ids: tuple[str, ...] = (), texts: tuple[str, ...] = ()) -> Schema:
    """Make a schema: tables and columns are those of the keys; `id` alone is a primary key, `no` is part of one."""
    found = [key(text) for text in keys]
    names = {name for one in found for name in one.columns + one.parents} | {column(text) for text in ids}
    metadata, tables = sa.MetaData(), {}
    for table in sorted({name.table for name in names}):
        columns = sorted({name.column for name in names if name.table == table} | {"id"})
        tables[TableName(None, table)] = sa.Table(
            table,
            metadata,
            *(
                sa.Column(
                    name, sa.String if f"{table}.{name}" in texts else sa.BigInteger, primary_key=name in ("id", "no")
                )
                for name in columns
            ),
        )
    return Schema(tables, found, map(column, ids))


def domains(made: Schema) -> dict[str, set[str]]:
    return {domain.name: set(map(str, domain.references)) for domain in made.domains}


def test_references_are_followed_over_any_number_of_tables() -> None:
    made = schema("b.id -> a.id", "c.b -> b.id", "d.c_b -> c.b", "a.parent -> a.id")
    assert domains(made) == {"a.id": {"b.id", "c.b", "d.c_b", "a.parent"}, "c.id": set(), "d.id": set()}
    assert str(made.domains[0].columns[-1]) == "a.id"


def test_a_composite_key_is_followed_column_by_column() -> None:
    made = schema("line.order -> order.id", "ship.order, ship.no -> line.order, line.no")
    assert domains(made)["order.id"] == {"line.order", "ship.order"}
    # the number of a line is not an id
    assert not any("no" in name for name in domains(made))


def test_a_part_of_a_composite_key_that_a_person_names_is_an_id_with_all_that_refers_to_it() -> None:
    made = schema("ship.order, ship.no -> line.order, line.no", ids=("line.no",))
    assert domains(made)["line.no"] == {"ship.no"}


def test_tables_that_one_column_refers_to_share_their_ids() -> None:
    made = schema("comment.about -> photo.id", "comment.about -> post.id")
    (found,) = [domain for domain in made.domains if "photo.id" in map(str, domain.columns)]
    assert set(map(str, found.keys)) == {"photo.id", "post.id"}


def test_columns_in_a_circle_all_define_ids() -> None:
    (found,) = schema("a.id -> b.id", "b.id -> a.id").domains
    assert set(map(str, found.keys)) == {"a.id", "b.id"}


def test_keys_of_text_are_no_ids() -> None:
    assert domains(schema("a.country -> country.code", texts=("a.country", "country.code"))) == {
        "a.id": set(),
        "country.id": set(),
    }


def test_a_chain_of_a_thousand_tables_is_one_domain_whose_columns_are_changed_from_its_end() -> None:
    made = schema(*(f"t{at}.id -> t{at - 1}.id" for at in range(1, 1100)))
    (domain,) = made.domains
    assert [str(name) for name in domain.columns] == [f"t{at}.id" for at in range(1099, -1, -1)]


def test_a_reference_of_some_rows_is_of_the_domain_that_it_names() -> None:
    made = schema("b.a -> a.id")
    part = Partial(column("note.about"), "kind", "a", is_text=True)
    (domain, *_) = Schema(made.tables, made.foreign_keys, partials=[(part, column("b.a"))]).domains
    assert (domain.name, domain.partials) == ("a.id", (part,))
    assert list(map(str, tables_of([domain]))) == ["note", "b", "a"]


@pytest.fixture(scope="module")
def engine() -> sa.Engine:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE a (id INTEGER PRIMARY KEY, name TEXT)",
            # without the parent's columns: its primary key is meant
            "CREATE TABLE b (id INTEGER PRIMARY KEY, a INTEGER REFERENCES a, other INTEGER)",
            "CREATE TABLE alembic_version (version_num TEXT PRIMARY KEY)",
            "CREATE TABLE snowredis_merge_runs (run INTEGER PRIMARY KEY)",
        ):
            connection.exec_driver_sql(statement)
    return engine


def test_a_database_is_read_with_what_a_person_names_and_without_tables_of_tools(engine: sa.Engine) -> None:
    found = read_schema(engine, references=["b.other=a.id"])
    assert [str(name) for name in found.tables] == ["a", "b"]
    assert domains(found)["a.id"] == {"b.a", "b.other"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"references": ["b.other"]}, "cannot be read"),
        ({"references": ["b.nothing=a.id"]}, "'b.nothing' does not exist"),
        ({"references": ["b.other=a.name"]}, "a.name is TEXT, not an integer"),
        ({"references": ["b.other=b.other"]}, "cannot refer to itself"),
        ({"ids": ["a.name"]}, "only integer ids"),
        ({"excluded": ["nothing"]}, "there is no table 'nothing'"),
        ({"excluded": ["a"]}, "the table a does not take part"),
        ({"excluded": ["b"]}, "the table b does not take part"),
    ],
)
def test_names_that_do_not_work_are_refused(engine: sa.Engine, options: dict[str, list[str]], message: str) -> None:
    with pytest.raises(MergeError, match="Nothing was planned") as refused:
        read_schema(engine, **options)  # type: ignore[arg-type]
    assert message in str(refused.value)
