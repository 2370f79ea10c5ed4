"""Statements of the threat model about users of Redis, on a real Redis."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
import redis

from tests.support.servers import RedisServer
from tests.support.waiting import eventually

DOCS = Path(__file__).parents[2] / "docs"
[GENERATOR] = re.findall(r"```acl generator\n(.*?)\n```", (DOCS / "how-to" / "monitoring.md").read_text("utf-8"))
PAGE = (DOCS / "explanation" / "threat-model.md").read_text("utf-8")


def test_a_user_who_may_run_scripts_can_block_its_redis_until_it_is_stopped(own_server: RedisServer) -> None:
    admin = own_server.client()
    admin.execute_command(*GENERATOR.split())
    admin.config_set("lua-time-limit", 50)
    user = redis.Redis(unix_socket_path=str(own_server.socket), username="orders-app", password="SECRET")

    def loop() -> None:
        with pytest.raises(redis.ConnectionError):
            user.eval("redis.call('HSET', KEYS[1], 'x', '1') while true do end", 1, "snowredis:{orders}")

    thread = threading.Thread(target=loop)
    thread.start()

    def reply_of(*command: str) -> str:
        try:
            return str(own_server.new_client().execute_command(*command))
        except redis.RedisError as error:
            return str(error)

    eventually(lambda: reply_of("GET", "key of another").startswith("BUSY"), "the busy server")
    assert "BUSY" in PAGE
    assert reply_of("SCRIPT", "KILL").startswith("UNKILLABLE")
    assert "`SCRIPT KILL` is\nrefused" in PAGE
    reply_of("SHUTDOWN", "NOSAVE")
    assert "only `SHUTDOWN NOSAVE` ends it" in PAGE
    thread.join(10)
    assert not thread.is_alive()
