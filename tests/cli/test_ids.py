"""`generate` and `decode`."""

import io
import json
import sys
from typing import Any

import pytest

import snowredis
from snowredis.cli.commands import ids as id_commands
from snowredis.core.text import FORMS
from tests.cli.conftest import Cli

LAYOUT = snowredis.layouts["default"]
# 2026-11-21T03:25:33.674Z, by worker id 5 in namespace 1
AN_ID = LAYOUT.compose(tick=59541933674, backup=1, worker=5, sequence=7)


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    """A week after AN_ID: an id of a later time is doubtful."""
    monkeypatch.setattr(id_commands, "now_ms", lambda: LAYOUT.ms_at(59541933674) + 7 * 86_400_000)


# --- decode ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_an_id_in_any_form_is_recognised(form: str, offline: Cli) -> None:
    result = offline("decode", snowredis.encode(AN_ID, form), code=0)
    lines = [line.split() for line in result.out.splitlines()]
    for part in (["id", str(AN_ID)], ["form", form], ["time", "2026-11-21T03:25:33.674Z"], ["worker", "5"]):
        assert part in lines
    for part in (["timestamp", f"{59541933674:041b}"], ["backup", "01"]):
        assert part in lines


def test_digits_are_decimal_even_where_that_lies_in_the_future(offline: Cli) -> None:
    result = offline("decode", str(LAYOUT.compose(tick=10**12)))
    assert ["form", "decimal"] in [line.split() for line in result.out.splitlines()]
    assert "its time is in the future" in result.out


def test_the_form_can_be_said(offline: Cli) -> None:
    text = snowredis.encode(AN_ID, "hex").lstrip("0")
    for form in ("hex", "base62"):
        if form == "base62":
            text = text[:10]
        assert str(snowredis.parse(text, form)) in offline("decode", text, "--format", form).out


def test_several_ids_and_standard_input(offline: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"  {AN_ID + 1}\n\n{AN_ID + 2} {AN_ID + 3}\n"))
    found = json_lines(offline("decode", str(AN_ID), "-", str(AN_ID + 4), "--json").out)
    assert [line["id"] for line in found] == [str(AN_ID + more) for more in range(5)]


def test_a_bad_id_does_not_keep_the_others_from_being_read(offline: Cli) -> None:
    result = offline("decode", str(AN_ID), "bad\x1b[31m!", str(AN_ID + 1), code=3)
    assert str(AN_ID + 1) in result.out
    assert result.err.startswith("snowredis: error: ")
    assert "\x1b" not in result.err


def test_the_layout_may_come_from_the_environment(offline: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWREDIS_LAYOUT", "twitter")
    result = offline("decode", "1541815603606036480")
    assert "2022-06-28T16:07:40.105Z" in result.out
    assert ["layout", "twitter"] in [line.split() for line in result.out.splitlines()]
    assert "2026-11-21" in offline("decode", str(AN_ID), "--layout", "default").out


# --- generate --------------------------------------------------------------------------------------


def test_ids_are_made_one_a_line_and_the_worker_id_is_released(cli: Cli, pool_name: str) -> None:
    cli("pool", "create", pool_name)
    # more than one batch
    result = cli("generate", "-n", "20000", "--pool", pool_name)
    assert (result.code, result.err) == (0, "")
    made = [int(text) for text in result.out.splitlines()]
    assert made == sorted(set(made))
    assert len(made) == 20_000
    assert "no worker is alive" in cli("workers", "--pool", pool_name).out


def test_settings_that_are_not_said_are_the_pools_own(cli: Cli, pool_name: str) -> None:
    settings = "--layout twitter --datacenter 3 --ttl 7 --failover-slack 1 --durability assured"
    cli("pool", "create", pool_name, *settings.split())
    assert snowredis.layouts["twitter"].decode(int(cli("generate", "--pool", pool_name, code=0).out)).datacenter == 3


def test_settings_come_from_the_environment(cli: Cli, pool_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWREDIS_POOL", pool_name)
    monkeypatch.setenv("SNOWREDIS_TTL", "7")
    assert cli("pool", "create", pool_name).code == 0
    assert cli("pool", "create", pool_name, "--ttl", "7").code == 0
    assert cli("generate").code == 0
    monkeypatch.setenv("SNOWREDIS_TTL", "8")
    assert cli("generate").code == 6


def test_a_first_start_says_why_it_waits(cli: Cli, pool_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWREDIS_TTL", "1")
    result = cli("generate", "--pool", pool_name, code=0)
    assert result.err.startswith("snowredis: warning: pool ")
    assert f"snowredis pool create {pool_name}" in result.err
