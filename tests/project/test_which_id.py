"""scripts/which_id.py: the page is made of what was measured, and a table is loaded with every kind of id."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from scripts import which_id
from scripts._which_id import costs, loads, page
from scripts._which_id.kinds import SAME_COLUMNS, SETTINGS, opened
from tests.support.servers import RedisServer


def test_a_table_of_each_kind_is_loaded_and_measured(server: RedisServer) -> None:
    with loads.opened_database("sqlite") as database:
        for kind in SETTINGS.keys() - SAME_COLUMNS.keys():
            with opened(kind, server.url) as one:
                load = database.load(one, 300, 60)
            assert load.rows == 300
            assert load.table_bytes > 300 * 60
            assert load.pages_written * database.page > 300 * 60
        assert sa.inspect(database.engine).get_table_names() == []
        with opened("uuid4", server.url) as one:
            # a table whose time is over has fewer rows
            assert database.load(one, 10**6, 0.0).rows == 0


def test_the_page_is_made_of_the_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(costs, "_LOOP_S", 0.001)
    monkeypatch.setattr(costs, "_COLD_CALLS", 3)
    arguments = ["--rows", "200", "--databases", "sqlite", "--kinds", "snowflake", "uuid4", "--busy"]
    assert which_id.main([*arguments, "--json", str(tmp_path / "results")]) == 0
    results = json.loads((tmp_path / "results").read_text())
    printed = capsys.readouterr().out
    assert printed.strip() == page.page(results).strip()
    assert f"| `uuid4` | {results['kinds']['uuid4']['example']} | 16 | 36 | no | no | nothing | nothing |" in printed
    assert "200 rows in batches" in printed
    assert "other programs ran at the same time" in printed
    # the answer is in the first screen, before any figure
    assert printed.index("| `uuid7` |") < printed.index("## What they look like") < 4000
