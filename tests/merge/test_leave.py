"""docs/how-to/leave.md: each way runs on rows whose ids snowredis made."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.testing import memory_pool
from tests.support.databases import DatabaseServer
from tests.support.statements import execute, rows_of

PAGE = (Path(__file__).parents[2] / "docs/how-to/leave.md").read_text("utf-8")


def statements_of_section(title: str) -> Iterator[str]:
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    yield from (one for one in block.split(";") if one.strip())


def table_with_ids(server: DatabaseServer) -> tuple[str, list[int]]:
    url = server.new_database()
    with snowredis.connect(memory_pool()) as generator:
        ids = generator.next_ids(3)
    kind = "INTEGER" if server.name == "sqlite" else "bigint"
    rows = ", ".join(f"({an_id})" for an_id in ids)
    execute(url, f"CREATE TABLE orders (id {kind} PRIMARY KEY)", f"INSERT INTO orders (id) VALUES {rows}")
    return url, ids


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_a_sequence_counts_on_above_the_highest_id(kind: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    url, ids = table_with_ids(server)
    if kind == "postgresql":
        execute(url, *statements_of_section("A sequence of the database"))
    execute(url, "INSERT INTO orders DEFAULT VALUES")
    assert rows_of(url, "SELECT max(id) FROM orders") == [(ids[-1] + 1,)]


def test_a_uuid7_beside_the_id_has_its_time(postgresql_server: DatabaseServer) -> None:
    url, ids = table_with_ids(postgresql_server)
    execute(url, *statements_of_section("A UUIDv7 beside it"))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    uuid7_of: Callable[[int], uuid.UUID] = names["uuid7_of"]
    execute(url, *(f"UPDATE orders SET uuid = '{uuid7_of(an_id)}' WHERE id = {an_id}" for an_id in ids))
    for an_id, found in rows_of(url, "SELECT id, uuid FROM orders"):
        made = uuid.UUID(str(found))
        assert (made.version, made.variant) == (7, uuid.RFC_4122)
        assert made.int >> 80 == snowredis.decode(an_id).timestamp_ms


def test_another_snowflake_is_proved_apart(offline: Callable[..., Any]) -> None:
    (line,) = re.findall(r"^\$ snowredis (migrate proof .*)$", PAGE, re.MULTILINE)
    result = offline(*line.split())
    assert result.code == 0
    assert "never: no new id is an old one" in result.out
