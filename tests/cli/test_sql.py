"""`sql`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Cli = Callable[..., Any]


def test_it_prints_functions_of_the_layout(offline: Cli) -> None:
    result = offline("sql", "postgresql", "--layout", "twitter")
    assert result.code == 0
    assert "snowredis_time(id bigint) RETURNS timestamptz" in result.out
    assert "1288834974657" in result.out


def test_it_prints_partitions_of_a_table(offline: Cli) -> None:
    result = offline("sql", "mariadb", "--table", "orders", "--start", "2026-01-31", "--count", "2")
    assert result.code == 0
    assert [line.split()[1] for line in result.out.splitlines()[1:-1]] == ["p202601", "p202602"]


def test_what_it_cannot_print_is_an_error(offline: Cli) -> None:
    assert offline("sql", "duckdb", "--table", "orders").code == 3
    assert offline("sql", "oracle").code == 2
    assert offline("sql", "sqlite", "--layout", "no").code == 3
