"""The user of Redis on the page of the service: enough for all of it, and for nothing else; and without some of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from snowredis.cli import main
from snowredis.monitor.doctor import pool_needs
from snowredis.web import pages
from snowredis.web.pages import SESSIONS_KEY
from snowredis.web.service import create_app
from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.web.conftest import TOKEN, client_of

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "service.md"
[RULE] = re.findall(r"```acl serve\n(.*?)\n```", PAGE.read_text("utf-8"), re.DOTALL)
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def url_without(own_server: RedisServer) -> Callable[..., str]:
    """The server's URL as the user of the page, without some words of its rule."""
    if int(own_server.client().info("server")["redis_version"].partition(".")[0]) < 7:
        pytest.skip("the rules are written for Redis 7")
    new_pool(own_server.url, "orders")

    def make(*words: str, more: tuple[str, ...] = ()) -> str:
        rule = [word for word in RULE.split() if word not in words]
        own_server.client().execute_command(*rule, *more)
        return f"unix://{rule[2]}:SECRET@{own_server.socket}"

    return make


def test_the_user_of_the_page_may_do_all_that_the_service_does_and_no_more(
    url_without: Callable[..., str], own_server: RedisServer
) -> None:
    own_server.client().config_resetstat()
    with client_of(create_app(url_without(), pools=["orders"], token=TOKEN)) as client:
        an_id = client.get("/id", headers=BEARER).json()["id"]
        paths = ("/readyz", "/workers", "/events", "/events?worker=0", f"/whois/{an_id}", "/history", "/metrics", "/")
        for path in paths:
            assert client.get(path, headers=BEARER).status_code == 200, path
        client.post("/login", data={"token": TOKEN})
        assert client.post("/logout", follow_redirects=False).status_code == 303
    assert own_server.client().acl_log() == []
    allowed = {word[1:] for word in RULE.split() if word.startswith("+")}
    of_generators = {name for name, _ in pool_needs("orders").calls} | {"eval", "evalsha"}
    called = {name.removeprefix("cmdstat_") for name in own_server.client().info("commandstats")}
    assert of_generators <= allowed
    assert allowed - of_generators <= called
    keys = {word[1:] for word in RULE.split() if word.startswith("~")}
    assert keys == {*pool_needs("orders").keys, SESSIONS_KEY}


@pytest.mark.parametrize("lacking", [f"~{SESSIONS_KEY}", "+zadd", "+zrange"])
def test_a_logout_that_redis_does_not_store_is_no_success(
    url_without: Callable[..., str], lacking: str, caplog: pytest.LogCaptureFixture
) -> None:
    with client_of(create_app(url_without(), pools=["orders"], token=TOKEN)) as client:
        client.post("/login", data={"token": TOKEN})
        cookie = {"cookie": f"snowredis={client.cookies['snowredis']}"}
        # only now: without zadd, generators claim nothing
        url_without(lacking)
        response = client.post("/logout", follow_redirects=False)
        assert response.status_code == 503
        assert 'id="lives">' in response.text
        assert 'id="wrong" hidden>' in response.text
        assert "Max-Age=0" in response.headers["set-cookie"]
        assert "snowredis" not in client.cookies
        [line] = [line for line in caplog.messages if "a logout is not seen by other processes" in line]
        assert "NOPERM" in line
        # at least here it has ended
        assert client.get("/pools", headers=cookie).status_code == 401
        # it ends everywhere once Redis takes it
        url_without()
        client.get("/pools", headers=cookie)
        time.sleep(pages._READ_EVERY_S)
        client.get("/pools", headers=cookie)
    with client_of(create_app(url_without(), pools=["orders"], token=TOKEN)) as later:
        assert later.get("/pools", headers=cookie).status_code == 401


def test_of_more_logouts_than_are_read_the_newest_count(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_pool(own_server.url, "orders")
    monkeypatch.setattr(pages, "_MAX_SESSIONS", 5)
    later_s = int(time.time()) + 3600
    own_server.client().zadd(SESSIONS_KEY, {f"{number:016x}": later_s + number for number in range(5)})
    with client_of(create_app(own_server.url, pools=["orders"], token=TOKEN)) as client:
        client.post("/login", data={"token": TOKEN})
        cookie = {"cookie": f"snowredis={client.cookies['snowredis']}"}
        assert client.post("/logout", follow_redirects=False).status_code == 303
    with client_of(create_app(own_server.url, pools=["orders"], token=TOKEN)) as later:
        assert later.get("/pools", headers=cookie).status_code == 401


@pytest.mark.parametrize(
    ("lacking", "severity", "text"),
    [
        ((), "ok", "may store logouts"),
        ((f"~{SESSIONS_KEY}",), "unknown", f"may not access the '{SESSIONS_KEY}' key"),
        (("+zrem",), "unknown", "may not run the 'zrem' command"),
    ],
)
def test_doctor_says_whether_logouts_can_be_stored(
    url_without: Callable[..., str],
    lacking: tuple[str, ...],
    severity: str,
    text: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = url_without(*lacking, more=("+acl|whoami", "+acl|dryrun"))
    main(["doctor", "--url", url, "--pool", "orders", "--json"])
    [finding] = [each for each in json.loads(capsys.readouterr().out)["findings"] if each["check"] == "logouts"]
    assert finding["severity"] == severity
    assert text in finding["text"]
