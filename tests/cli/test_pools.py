"""`workers` and `pool`."""

import io
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import snowredis
from snowredis.core.presets import resolve_layout
from snowredis.snowflake.protocol.pool_config import pool_keys
from snowredis.snowflake.protocol.redis_store import load
from tests.cli.conftest import Cli
from tests.support.records import change_record
from tests.support.servers import RedisServer, redis_server
from tests.support.waiting import eventually

# sets the title, colours, hides what follows, moves the cursor, ends the line, turns the text round, is wide
HOSTILE = [
    "\x1b]0;owned\x07",
    "\x1b[31mred",
    "\x1b[8m",
    "\x9b2J",
    "two\nlines\r",
    "\u202egnp.exe",
    "日本語" * 30,
    "[bold red]markup[/]",
    "[link=http://example.com]here[/link]",
    "x" * 100,
]


@pytest.fixture
def fleet(cli: Cli, pool_name: str, server_url: str) -> Iterator[list[snowredis.SnowflakeGenerator]]:
    """Three living workers."""
    cli("pool", "create", pool_name)
    made = [snowredis.connect(server_url, pool=pool_name, label=f"web {number}") for number in range(3)]
    for ids in made:
        ids.claim()
    yield made
    for ids in made:
        ids.close()


# --- workers ---------------------------------------------------------------------------------------


def test_the_table_shows_who_is_alive(cli: Cli, pool_name: str, fleet: list[snowredis.SnowflakeGenerator]) -> None:
    result = cli("workers", "--pool", pool_name, code=0)
    head, status, titles, *rows = result.out.splitlines()
    assert head.startswith(f"pool {pool_name} at ")
    assert head.endswith(": 3 of 1,024 worker ids are leased")
    assert status == "status ok: 1 process with 3 worker ids alive"
    assert titles.split()[:2] == ["worker", "state"]
    assert [row.split()[0] for row in rows] == ["0", "1", "2"]
    assert all(str(os.getpid()) in row and "web" in row for row in rows)


def hostile(client: redis.Redis, pool: str) -> None:
    """Records as any process with access could write them: connect() would not."""
    key = f"snowredis:{{{pool}}}"
    for worker, text in enumerate(HOSTILE):
        owner = json.dumps({"host": text, "pid": "1; rm", "label": text})
        # after the three workers of the fleet, whose heartbeats write theirs again
        change_record(client, pool, worker + 3, like=0, owner=owner)
    client.hset(key, mapping={"records": 3 + len(HOSTILE), "alarms": 1, "mismatch": "1|\x1b[31malarm"})


def harmless(text: str) -> bool:
    return all(char == "\n" or char.isprintable() for char in text)


def test_hostile_hosts_and_labels_do_nothing_to_a_terminal(
    cli: Cli, pool_name: str, fleet: list[snowredis.SnowflakeGenerator], client: redis.Redis
) -> None:
    hostile(client, pool_name)
    for argv in (["workers", "--pool", pool_name], ["pool", "show", pool_name], ["pool", "show"]):
        result = cli(*argv)
        # pools of other tests can be there that cannot be read
        assert result.code == 0 or argv == ["pool", "show"]
        assert harmless(result.out)
        assert harmless(result.err)
    shown = cli("workers", "--pool", pool_name).out.splitlines()
    titles = next(at for at, line in enumerate(shown) if line.split()[:1] == ["worker"])
    assert len(shown) - titles == 1 + 3 + len(HOSTILE)
    assert any("[bold" in line for line in shown)
    # json.dumps escapes what a terminal would obey; nothing is cut
    exact = cli("workers", "--pool", pool_name, "--json").out
    assert harmless(exact)
    assert json.loads(exact)["leases"][3]["label"] == HOSTILE[0]


# --- pool ------------------------------------------------------------------------------------------


def test_a_pool_is_made_once(cli: Cli, pool_name: str) -> None:
    first = cli("pool", "create", pool_name, "--layout", "game", "--ttl", "60", "--failover-slack", "15", code=0)
    assert "was created" in first.out
    assert "layout    game" in first.out
    again = cli("pool", "create", pool_name, "--layout", "game", "--ttl", "60", "--failover-slack", "15", code=0)
    assert "nothing was changed" in again.out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--layout", "uid-generator"], "used up since 2024-11-20"),
        (["--ttl", "10", "--max-clock-lead", "9"], "too short"),
    ],
)
def test_what_cannot_work_is_refused(cli: Cli, pool_name: str, options: list[str], reason: str) -> None:
    assert reason in cli("pool", "create", pool_name, *options, code=3).err
    assert cli("pool", "show", pool_name).code == 5


def test_creating_a_pool_that_a_restart_made_wait_says_so(cli: Cli, pool_name: str, client: redis.Redis) -> None:
    cli("pool", "create", pool_name)
    # as after a restart
    client.hset(f"snowredis:{{{pool_name}}}", "run_id", "another")
    again = cli("pool", "create", pool_name, code=0)
    assert "nothing was changed" in again.out
    assert "new workers wait for 35.0 s: Redis did not know the pool, or was restarted" in again.out


def test_show_tells_one_pool_in_full_and_all_in_a_table(
    cli: Cli, pool_name: str, fleet: list[snowredis.SnowflakeGenerator]
) -> None:
    one = [line.split() for line in cli("pool", "show", pool_name).out.splitlines()]
    for part in (["layout", "default"], ["capacity", "1,024"], ["used", "3"], ["claims", "3"]):
        assert part in one
    assert ["status", "ok:", "1", "process"] in [line[:4] for line in one]
    table = cli("pool", "show").out
    (row,) = [line for line in table.splitlines() if line.startswith(pool_name)]
    assert row.split()[1:3] == ["3", "1,024"]


def test_show_as_json(cli: Cli, pool_name: str) -> None:
    cli("pool", "create", pool_name, "--layout", "sonyflake")
    one = json.loads(cli("pool", "show", pool_name, "--json").out)
    assert (one["name"], one["capacity"]) == (pool_name, 65536)
    assert resolve_layout(one["layout"]) == snowredis.layouts["sonyflake"]
    assert one in [json.loads(line) | {"at": one["at"]} for line in cli("pool", "show", "--json").out.splitlines()]


def test_keys_that_only_look_like_a_pool_do_not_hide_the_others(cli: Cli, pool_name: str, client: redis.Redis) -> None:
    cli("pool", "create", pool_name)
    keys = ["snowredis:{two words\x1b[31m}", f"snowredis:{{{pool_name}-other}}"]
    for key in keys:
        client.set(key, "somebody else's")
    try:
        result = cli("pool", "show")
    finally:
        client.delete(*keys)
    assert result.code == 1
    assert pool_name in result.out
    # pools of other tests can be there
    assert {f"{pool_name}-other", "two words\\x1b[31m"} <= {line.partition(":")[0] for line in result.err.splitlines()}
    assert "\x1b" not in result.err


def test_a_redis_without_pools_says_how_to_make_one(cli: Cli, server_url: str) -> None:
    empty = f"{server_url}?db=9"
    assert "create one with: snowredis pool create" in cli("pool", "show", "--url", empty).out
    assert "create it once: snowredis pool create" in cli("workers", "--url", empty).err


@pytest.mark.parametrize("lost", [["FLUSHALL"], ["DEL", *pool_keys("orders")], ["DEL", pool_keys("orders")[0]]])
def test_a_pool_is_not_called_new_in_a_redis_that_lost_it_while_processes_live(
    cli: Cli, own_server: RedisServer, lost: list[str]
) -> None:
    create = ("pool", "create", "orders", "--url", own_server.url)
    living = redis.Redis.from_url(own_server.url)
    living.script_load(load("renew").source)
    assert cli(*create).code == 0
    if lost[-1] == pool_keys("orders")[0]:
        # what is left of the pool tells more than that others are there
        assert cli("pool", "create", "others", "--url", own_server.url).code == 0
    living.execute_command(*lost)
    # as the last command of a heartbeat
    living.eval("return 1", 0)
    assert "has lost pools, and 1 processes" in cli(*create, code=2).out
    assert not living.exists(pool_keys("orders")[0])
    assert cli(*create, "--yes").code == 0
    living.close()


def test_delete_refuses_while_workers_are_alive(
    cli: Cli, pool_name: str, fleet: list[snowredis.SnowflakeGenerator]
) -> None:
    assert "3 living workers" in cli("pool", "delete", pool_name, "--yes", code=3).err
    forced = cli("pool", "delete", pool_name, "--yes", "--force", code=0)
    assert re.search(rf"pool {pool_name} at .* ends at 20.*Z, in 24.0 h: something is reserved in it", forced.out)
    assert "3 workers are alive: stop them, or they create the pool again" in forced.out
    # they go on until then
    assert cli("pool", "show", pool_name).code == 0
    assert all(ids.next_id() for ids in fleet)
    assert "The pool was deleted and ends at 20" in cli("pool", "create", pool_name, "--ttl", "1", code=6).err
    assert "already exists, and ends at 20" in cli("pool", "create", pool_name, code=0).out


def test_a_pool_whose_workers_ended_is_deleted_and_its_next_workers_wait_for_a_reservation(
    cli: Cli, pool_name: str, fleet: list[snowredis.SnowflakeGenerator]
) -> None:
    for ids in fleet:
        ids.close()
    deleted = cli("pool", "delete", pool_name, "--yes")
    assert (deleted.code, f"pool {pool_name} at " in deleted.out) == (0, True)
    assert "was deleted" in deleted.out
    assert re.search(r"new workers of a pool of this name start in \d", deleted.out)
    assert cli("pool", "show", pool_name).code == 5
    assert pool_name not in cli("pool", "show").out
    assert cli("pool", "create", pool_name, "--ttl", "1").code == 0


@pytest.mark.parametrize("field", ["signature", "start", "records"])
def test_a_broken_pool_is_not_deleted_and_it_says_how_it_is_removed(
    cli: Cli, pool_name: str, client: redis.Redis, field: str
) -> None:
    cli("pool", "create", pool_name)
    client.hset(f"snowredis:{{{pool_name}}}", field, "what is this? \x1b[31m")
    refused = cli("pool", "delete", pool_name, "--yes", code=3)
    assert "nothing was deleted" in refused.err
    assert "\x1b" not in refused.out + refused.err
    (keys,) = re.findall("redis-cli DEL (.*?)\\. New workers", refused.err)
    assert client.delete(*shlex.split(keys)) >= 1
    assert cli("pool", "delete", pool_name, "--yes").code == 5


def test_create_takes_what_redis_is_trusted_with(cli: Cli, pool_name: str, server_url: str) -> None:
    cli("pool", "create", pool_name, "--durability", "assured", "--outage-reserve", "0", code=0)
    shown = json.loads(cli("pool", "show", pool_name, "--json").out)["settings"]
    assert (shown["durability"], shown["outage_reserve_ms"]) == ("assured", "0")
    with snowredis.connect(server_url, pool=pool_name, durability="assured", outage_reserve=0) as ids:
        ids.claim()
    assert cli("pool", "create", pool_name).code != 0


def test_delete_wants_yes_where_nobody_can_be_asked(cli: Cli, pool_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("pool", "create", pool_name)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert "--yes" in cli("pool", "delete", pool_name, code=2).err
    assert cli("pool", "show", pool_name).code == 0


@pytest.mark.parametrize(
    ("answer", "deleted"), [("y", True), (" YES ", True), ("", False), ("n", False), (None, False)]
)
def test_delete_asks_at_a_terminal(
    answer: str | None, deleted: bool, cli: Cli, pool_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = io.StringIO("" if answer is None else f"{answer}\n")
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    cli("pool", "create", pool_name)
    monkeypatch.setattr(sys, "stdin", terminal)
    result = cli("pool", "delete", pool_name)
    assert f"delete pool {pool_name}" in result.out
    assert result.code == (0 if deleted else 1)
    assert cli("pool", "show", pool_name).code == (5 if deleted else 0)


def test_a_layout_whose_ids_are_not_above_all_old_ones_does_not_start(cli: Cli, pool_name: str) -> None:
    cli("pool", "create", pool_name)
    assert cli("pool", "delete", pool_name, "--yes").code == 0
    refused = cli("pool", "create", pool_name, "--layout", "41/0/2/10/10;epoch_ms=1767225600000")
    assert (refused.code, "Use an epoch_ms of 1735689" in refused.err) == (6, True)
    assert cli("pool", "create", pool_name, "--layout", "41/0/2/12/8").code == 0
    assert "41/0/2/12/8" in cli("pool", "show", pool_name).out


def test_an_end_that_does_not_count_yet_is_shown(cli: Cli, pool_name: str, client: redis.Redis) -> None:
    cli("pool", "create", pool_name)
    client.hset(f"snowredis:{{{pool_name}}}", "end", 2_000_000_000_000)
    shown = cli("pool", "show", pool_name)
    assert "does not count yet" in shown.out
    assert f"snowredis pool delete {pool_name}" in shown.out


def test_a_delete_that_cannot_be_put_on_disk_says_that_the_pool_ends_all_the_same(cli: Cli, tmp_path: Path) -> None:
    with redis_server(tmp_path, "--save", "3600 1") as server:
        at = ("--url", server.url)
        assert cli("pool", "create", "p", *at).code == 0
        (server.directory / "dump.rdb").unlink(missing_ok=True)
        (server.directory / "dump.rdb").mkdir()
        with snowredis.connect(server.url, pool="p") as ids:
            ids.next_id()
            failed = cli("pool", "delete", "p", "--yes", "--force", *at, code=4)
            assert "The pool ends at 20" in failed.err
            assert "repeat the command before then" in failed.err
            assert "restart" not in failed.err
            (server.directory / "dump.rdb").rmdir()
            server.client().bgsave()
            eventually(lambda: server.client().info()["rdb_last_bgsave_status"] == "ok", "a snapshot")
            assert cli("pool", "delete", "p", "--yes", "--force", *at).code == 0
