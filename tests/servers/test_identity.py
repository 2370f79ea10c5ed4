"""The identity of a server: the Lua code that reads it, on every kind of INFO."""

from collections.abc import Callable
from typing import Any

import pytest

import snowredis
from snowredis.errors import StoreUnavailable
from snowredis.servers.scripts import read_lua

lua51 = pytest.importorskip("lupa.lua51")

RUN_ID, REPLICATION_ID = "8" * 40, "4f" * 20
SERVER = f"# Server\r\nredis_version:7.0.15\r\nrun_id:{RUN_ID}\r\ntcp_port:6379\r\n"
REPLICATION = f"# Replication\r\nrole:master\r\nmaster_replid:{REPLICATION_ID}\r\nmaster_replid2:{'0' * 40}\r\n"
Found = tuple[str | None, str | None]
KNOWN: Found = (f"{RUN_ID}-{REPLICATION_ID}", None)


def identity(info: Callable[..., str | None], *, version: int | None = 0x00070000) -> Found:
    """Return what the script returns; *info* replies to INFO, with None where that is refused."""
    runtime = lua51.LuaRuntime()

    def pcall(command: str, *sections: str) -> object:
        assert command == "INFO"
        text = info(*sections)
        return runtime.table_from({"err": "ERR refused"}) if text is None else text

    runtime.globals()["redis"] = runtime.table_from({"pcall": pcall, "REDIS_VERSION_NUM": version})
    found = runtime.execute(
        read_lua("identity") + "\nlocal id, reason = identity() return {id or false, reason or false}"
    ).values()
    name, reason = found
    return name or None, reason or None


def one_section(*sections: str) -> str | None:
    return {"server": SERVER, "replication": REPLICATION}[sections[0]] if len(sections) == 1 else None


def test_redis_7_is_asked_once() -> None:
    asked = []

    def info(*sections: str) -> str:
        asked.append(sections)
        return SERVER + REPLICATION

    assert identity(info) == KNOWN
    assert asked == [("server", "replication")]


def test_a_server_that_takes_one_section_a_call_is_asked_twice() -> None:
    assert identity(one_section, version=None) == KNOWN
    # also one that calls itself 7
    assert identity(one_section) == KNOWN


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "info-refused"),
        ("", "no-run-id"),
        (REPLICATION, "no-run-id"),
        (REPLICATION + "run_id:\r\n", "no-run-id"),
        (REPLICATION + "run_id:abc\r\n", "no-run-id"),
        (REPLICATION + f"run_id:{'0' * 40}\r\n", "no-run-id"),
        (REPLICATION + "run_id:unknown-to-the-proxy-in-front\r\n", "no-run-id"),
        (SERVER, "no-replication-id"),
        (SERVER + REPLICATION.replace("master\r", "slave\r"), "replica"),
        (SERVER + REPLICATION.replace("master\r", "active-replica\r"), "replica"),
        (SERVER + f"master_replid:{'0' * 40}\r\n", "no-replication-id"),
        # another field of nearly that name
        (SERVER + f"master_replid2:{REPLICATION_ID}\r\n", "no-replication-id"),
    ],
)
def test_what_is_missing_is_said(text: str | None, reason: str) -> None:
    assert identity(lambda *sections: text) == (None, reason)


@pytest.mark.parametrize("hidden", ["run_id", "master_replid"])
def test_a_redis_that_does_not_show_which_it_is_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    """Otherwise it would make ids, and repeat them after a restart that nobody can detect."""
    fakeredis = pytest.importorskip("fakeredis")
    from fakeredis.commands_mixins.server_mixin import ServerCommandsMixin

    from snowredis.embedded import install_info

    install_info()
    mixin: Any = ServerCommandsMixin
    whole = mixin.info
    monkeypatch.setattr(
        mixin, "info", lambda self, *sections: whole(self, *sections).replace(hidden.encode(), b"hidden")
    )
    client = fakeredis.FakeRedis()
    ids = snowredis.connect(client, pool="orders", ttl=0.3)
    with pytest.raises(StoreUnavailable, match=f"its INFO shows no {hidden}.*durability=") as caught:
        ids.next_id()
    assert caught.value.code in ("no-run-id", "no-replication-id")
    assert client.keys() == []
    with snowredis.connect(client, pool="orders", ttl=0.3, durability="assured") as assured:
        assert assured.next_id()
