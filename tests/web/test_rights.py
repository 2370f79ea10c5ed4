"""The user of Redis on the page of the service: enough for all of it, and for nothing else."""

import re
from pathlib import Path

import pytest

from snowredis.monitor.doctor import calls_of_pools
from snowredis.snowflake.protocol.pool_config import pool_keys
from snowredis.web.service import create_app
from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.web.conftest import client_of

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "service.md"
[RULE] = re.findall(r"```acl serve\n(.*?)\n```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.usefixtures("each_request_reads")
def test_the_user_of_the_page_may_do_all_that_the_service_does_and_no_more(own_server: RedisServer) -> None:
    if int(own_server.client().info("server")["redis_version"].partition(".")[0]) < 7:
        pytest.skip("the rules are written for Redis 7")
    new_pool(own_server.url, "orders")
    words = RULE.split()
    own_server.client().execute_command(*words)
    url = f"unix://{words[2]}:SECRET@{own_server.socket}"
    own_server.client().config_resetstat()
    with client_of(create_app(url, pools=["orders"])) as client:
        an_id = client.get("/id").json()["id"]
        for path in ("/readyz", "/workers", "/events", "/events?worker=0", f"/whois/{an_id}", "/metrics", "/"):
            assert client.get(path).status_code == 200, path
        # the index of leases may be gone, as after an eviction: the page reads the records themselves
        own_server.client().delete("snowredis:{orders}:leases")
        assert client.get("/workers").status_code == 200
    assert own_server.client().acl_log() == []
    allowed = {word[1:] for word in words if word.startswith("+")}
    of_generators = {name for name, _ in calls_of_pools()} | {"eval", "evalsha"}
    called = {name.removeprefix("cmdstat_") for name in own_server.client().info("commandstats")}
    assert of_generators <= allowed
    assert allowed - of_generators <= called
    assert {word[1:] for word in words if word.startswith("~")} == set(pool_keys("orders"))
