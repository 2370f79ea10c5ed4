"""Views of a pool over HTTP: the records of the commands, filters, and one look at Redis for all readers."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import snowredis
from snowredis.cli import main
from snowredis.web.service import create_app
from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.web.conftest import client_of

# values that another reading has changed
_MOVING = {"at", "heartbeat_at", "ends_at", "ids_until", "ids_made", "ids_per_second", "clock_offset_ms"}


def steady(value: Any) -> Any:
    """Return *value* without what changes from one reading to the next."""
    if isinstance(value, dict):
        return {name: steady(item) for name, item in value.items() if name not in _MOVING}
    return [steady(item) for item in value] if isinstance(value, list) else value


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    main([*arguments])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_service_and_the_commands_show_the_same(
    server: RedisServer, pool_name: str, each_request_reads: None, capsys: pytest.CaptureFixture[str]
) -> None:
    new_pool(server.url, pool_name)
    options = ("--url", server.url, "--pool", pool_name, "--json")
    with (
        client_of(create_app(server.url, pools=[pool_name])) as client,
        snowredis.connect(server.url, pool=pool_name, label="maker") as ids,
    ):
        an_id = ids.next_id()
        assert [steady(client.get("/workers").json())] == steady(printed(capsys, "workers", *options))
        assert client.get("/events").json()["events"] == printed(capsys, "events", *options)
        whois = client.get(f"/whois/{an_id}").json()["whois"]
        assert whois["maker"]["label"] == "maker"
        assert [steady(whois)] == steady(printed(capsys, "whois", str(an_id), *options))


def test_events_of_a_worker_are_told(server: RedisServer, pool_name: str) -> None:
    new_pool(server.url, pool_name)
    with client_of(create_app(server.url, pools=[pool_name])) as client:
        for label in ("first", "second"):
            snowredis.connect(server.url, pool=pool_name, label=label).close()
            with snowredis.connect(server.url, pool=pool_name, label=label) as ids:
                ids.claim()
        events = client.get("/events").json()["events"]
        released = [event for event in events if event["kind"] == "released"]
        assert [event["label"] for event in released] == ["first", "second"]
        worker = released[0]["worker"]
        of_one = client.get(f"/events?worker={worker}").json()["events"]
        assert of_one == [event for event in events if event["worker"] == worker]
        for query in ("worker=-1", "worker=x", "worker=4194304", "worker=" + "9" * 30):
            assert client.get(f"/events?{query}").status_code == 400


# --- readers of the same moment ----------------------------------------------------------------------


def calls_of(server: RedisServer) -> int:
    return server.client().info("commandstats").get("cmdstat_zrangebyscore", {}).get("calls", 0)


def test_readers_of_the_same_moment_share_one_look(
    own_server: RedisServer, pool_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # longer than the test
    monkeypatch.setattr("snowredis.web.served.FRESH_S", 60.0)
    new_pool(own_server.url, pool_name)
    with client_of(create_app(own_server.url, pools=[pool_name])) as client, ThreadPoolExecutor(10) as threads:
        before = calls_of(own_server)
        answers = list(threads.map(lambda _: client.get("/workers"), range(30)))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.text for answer in answers}) == 1
        # calls of these readers, and of heartbeats meanwhile; not of each reader
        assert calls_of(own_server) - before < 30


def test_a_reader_that_has_the_answer_gets_only_its_tag_and_others_get_it_compressed(
    own_server: RedisServer, pool_name: str, each_request_reads: None
) -> None:
    new_pool(own_server.url, pool_name)
    with client_of(create_app(own_server.url, pools=[pool_name])) as client:
        # a heartbeat in between changes the answer
        for _ in range(20):
            first = client.get("/workers?limit=10")
            again = client.get("/workers?limit=10", headers={"if-none-match": first.headers["etag"]})
            if again.status_code == 304:
                break
        assert (again.status_code, again.content) == (304, b"")
        plain = client.get("/workers?limit=10", headers={"accept-encoding": "identity, gzip;q=0"})
        assert first.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert plain.json()["states"] == first.json()["states"] == {}
        assert first.json()["services"] == 1
        with snowredis.connect(own_server.url, pool=pool_name, label="another") as ids:
            ids.next_id()
            changed = client.get("/workers?limit=10", headers={"if-none-match": first.headers["etag"]})
        assert changed.status_code == 200


def test_a_filter_and_a_limit_choose_workers_and_the_counts_are_of_all(own_server: RedisServer, pool_name: str) -> None:
    new_pool(own_server.url, pool_name)
    with (
        client_of(create_app(own_server.url, pools=[pool_name])) as client,
        snowredis.connect(own_server.url, pool=pool_name, label="Checkout <b>") as ids,
    ):
        ids.next_id()
        found = client.get("/workers?filter=checkout&limit=1").json()
        assert [row["label"] for row in found["leases"]] == ["Checkout <b>"]
        assert (found["found"], found["states"], found["services"]) == ({"alive": 1}, {"alive": 1}, 1)
        cut = client.get("/workers?limit=1").json()
        assert (len(cut["leases"]), cut["found"]) == (1, {"alive": 2})
        for limit in ("0", "x", "10001", ""):
            assert client.get(f"/workers?limit={limit}").status_code == 400
        assert client.get(f"/workers?filter={'x' * 101}").json()["error"] == "BadFilter"
