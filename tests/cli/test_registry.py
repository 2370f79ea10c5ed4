"""`registry`, and `pool create --datacenter auto`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import redis

import snowredis

Cli = Callable[..., Any]


def test_shards_are_created_shown_and_used(cli: Cli, pool_name: str, server_url: str) -> None:
    name, shard = f"world-{pool_name}", [f"{pool_name}-{i}" for i in range(3)]
    create = ("pool", "create", "--layout", "game-shards", "--registry", name)
    assert cli("registry", "show", name).code == 5
    result = cli(*create, shard[0], "--datacenter", "auto")
    assert (result.code, f"there is no registry '{name}' at {server_url}" in result.err) == (6, True)
    result = cli("registry", "create", name, "--layout", "game-shards")
    assert (result.code, "it gives the numbers 1 to 4,095" in result.out) == (0, True)
    assert "already exists; nothing was changed" in cli("registry", "create", name, "--layout", "game-shards").out
    for number in (1, 2):
        result = cli(*create, shard[number], "--datacenter", "auto")
        assert (result.code, result.err) == (0, "")
        assert f"pool {shard[number]} has the number {number} of registry {name} at" in result.out
        assert re.search(rf"(?s)datacenter={number}.*registry={name}/", result.out)
    again = cli(*create, shard[2])
    assert (again.code, "already exists, with the same settings" in again.out) == (0, True)
    assert cli(*create, shard[0], "--datacenter", "2").code == 6

    listed = cli("registry", "show", name)
    assert "new numbers are given" in listed.out
    assert re.search(rf"1 +{shard[1]} +\d", listed.out)
    state = json.loads(cli("registry", "show", name, "--json").out)
    assert {number: each["pool"] for number, each in state["numbers"].items()} == {"1": shard[1], "2": shard[2]}
    assert all(each["taken_at"] and each["confirmed_at"] for each in state["numbers"].values())
    assert (state["closed"], state["next"], state["place"]["bits"]) == (None, 3, 12)
    # the commands find the pool's settings themselves
    an_id = int(cli("generate", "--pool", shard[2]).out)
    assert snowredis.layouts["game-shards"].decode(an_id).datacenter == 2
    assert cli("registry", "free", "7", "--registry", name).code == 3

    deleted = cli("pool", "delete", shard[1], "--yes", "--force")
    assert (deleted.code, f"its number 1 stays its own: registry {name} gives it" in deleted.out) == (0, True)
    again = cli(*create, shard[1], "--datacenter", "1")
    freed = f"snowredis registry free 1 --registry {name}"
    assert (again.code, freed in deleted.out, freed in again.err) == (6, True, True)
    asked = cli("registry", "free", "1", "--registry", name)
    assert asked.code == 2
    assert re.search(rf"\n +1 +{shard[1]} +[0-9.]+ s ago +host ", asked.out)
    freed = cli("registry", "free", "1", "--registry", name, "--yes")
    assert freed.out.endswith(f"number 1 of registry {name} is free; pool {shard[1]} had it\n")
    assert f"pool {shard[1]} has the number 1" in cli(*create, shard[1], "--datacenter", "1").out


def test_a_registry_that_was_lost_learns_of_its_pools_and_is_opened(
    cli: Cli, client: redis.Redis, pool_name: str, server_url: str
) -> None:
    name = f"world-{pool_name}"
    create = ("pool", "create", "--layout", "game-shards", "--registry", name, "--datacenter", "auto")
    cli("registry", "create", name, "--layout", "game-shards", "--first", "40")
    for i in range(2):
        assert cli(*create, f"{pool_name}-{i}").code == 0
    client.delete(f"snowredis:registry:{{{name}}}")
    assert cli("registry", "open", name, "--yes").code == 5
    result = cli("registry", "open", name, "--from", server_url)
    assert result.code == 2
    assert result.out.startswith(f"{pool_name}-0: number 40 confirmed\n{pool_name}-1: number 41 confirmed\n")
    assert f"registry {name} is closed: its Redis had no such registry" in result.out
    refused = cli(*create, f"{pool_name}-2")
    assert (refused.code, "it gives no new numbers" in refused.err) == (6, True)
    result = cli("registry", "open", name, "--yes")
    assert result.out.endswith(f"registry {name} gives new numbers again, from 42\n")
    assert "has the number 42" in cli(*create, f"{pool_name}-2").out
