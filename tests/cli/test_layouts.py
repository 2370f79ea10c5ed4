"""`layout`, and `sql` of a layout."""

import json

import pytest

import snowredis
from tests.cli.conftest import Cli


def test_without_arguments_it_shows_every_preset_in_80_columns(offline: Cli) -> None:
    result = offline("layout", code=0)
    rows = {line.split()[0]: line for line in result.out.splitlines() if line}
    assert set(snowredis.layouts) <= set(rows)
    assert [name for name, row in rows.items() if " over " in row] == ["uid-generator"]
    assert "2024-11-20" in rows["uid-generator"]
    assert "for reading old ids only" in offline("layout", "uid-generator").out
    assert max(map(len, result.out.splitlines())) <= 80


@pytest.mark.parametrize("name", snowredis.layouts)
def test_a_preset_in_full_says_where_it_comes_from(name: str, offline: Cli) -> None:
    result = offline("layout", name, code=0)
    assert snowredis.layouts[name].describe() in result.out
    assert "source " in result.out


def test_a_spec_is_shown_in_full(offline: Cli) -> None:
    spec = "39/0/0/16/8;tick_ms=10;epoch_ms=1767225600000;worker_last=1"
    assert spec in offline("layout", spec).out


def test_a_layout_that_cannot_be_is_refused_with_the_reason(offline: Cli) -> None:
    result = offline("layout", "37/0/0/20/16", code=3)
    assert "73 bits do not fit in 63" in result.err
    assert "4.4 years" in result.err
    assert "Did you mean 'twitter'" in offline("layout", "twiter").err


def test_decode_shows_named_parts_and_the_gene(offline: Cli) -> None:
    spec = "41/region:2,business:4/2/6/4;gene_bits=4"
    done = offline("decode", "--layout", spec, "250544998407667765")
    for part in ("region=1, business=7", "gene               5"):
        assert part in done.out
    record = json.loads(offline("decode", "--json", "--layout", spec, "250544998407667765").out)
    assert (record["datacenter_fields"], record["gene"]) == ({"region": 1, "business": 7}, 5)


def test_it_prints_functions_of_the_layout(offline: Cli) -> None:
    result = offline("sql", "postgresql", "--layout", "twitter", code=0)
    assert "snowredis_time(id bigint) RETURNS timestamptz" in result.out
    assert "1288834974657" in result.out


def test_it_prints_partitions_of_a_table(offline: Cli) -> None:
    result = offline("sql", "mariadb", "--table", "orders", "--start", "2026-01-31", "--count", "2", code=0)
    assert [line.split()[1] for line in result.out.splitlines()[1:-1]] == ["p202601", "p202602"]


def test_what_it_cannot_print_is_an_error(offline: Cli) -> None:
    assert offline("sql", "duckdb", "--table", "orders").code == 3
    assert offline("sql", "oracle").code == 2
    assert offline("sql", "sqlite", "--layout", "no").code == 3
