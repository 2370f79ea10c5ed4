"""Responses of the service: ids in three formats, several pools, errors; on a Redis in this process and a real one."""

import asyncio
import struct
from typing import Any

import fakeredis
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import snowredis
from snowredis.core.layout import Layout
from snowredis.errors import ClockMovedBack, PoolExhausted, SnowredisError, StoreUnavailable
from snowredis.testing import DEFAULT_START_MS, memory_pool
from snowredis.web.messages import BINARY, JSON, TEXT, HttpProblem, choose_media_type, problem_of
from snowredis.web.service import create_app, from_environment
from tests.support.fake_pool import FakePool
from tests.support.pools import new_pool
from tests.support.prometheus import check_text
from tests.support.servers import RedisServer
from tests.web.conftest import app_of, client_of


def test_ids_are_given_as_text_and_as_big_endian_int64_too(client: TestClient) -> None:
    text = client.get("/ids?count=5", headers={"accept": "text/plain"}).text
    assert text.endswith("\n")
    first = [int(line) for line in text.split()]
    packed = client.get("/ids?count=5", headers={"accept": "application/octet-stream"})
    assert packed.headers["content-type"] == "application/octet-stream"
    then = list(struct.unpack(">5q", packed.content))
    assert len({*first, *then}) == 10
    assert first + then == sorted(first + then)
    one = client.get("/id", headers={"accept": "application/octet-stream"}).content
    assert struct.unpack(">q", one)[0] > then[-1]


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("text/html,*/*;q=0.8", JSON),
        ("text/plain", TEXT),
        ("text/*", TEXT),
        ("Text/Plain; charset=utf-8", TEXT),
        ("application/octet-stream, application/json;q=0.5", BINARY),
        ("image/png, text/plain", TEXT),
        ("application/json;q=0.5, text/plain;q=0.9", TEXT),
        ("*/*; q=0.1; level=1, text/plain", TEXT),
        ("text/plain, application/json,", TEXT),
        ("application/json;q=0, application/*;q=0.2", BINARY),
        ("image/png, */*;q=0", None),
        ("image/png", None),
    ],
)
def test_the_kind_is_what_accept_asks_for(accept: str, kind: str | None) -> None:
    if kind is not None:
        assert choose_media_type(accept.encode()) == kind
        return
    with pytest.raises(HttpProblem, match="NotAcceptable"):
        choose_media_type(accept.encode())


def test_a_pool_is_chosen_by_its_name(client: TestClient) -> None:
    assert client.get("/pools").json() == {"pools": ["a", "b"]}
    for pool in ("a", "b"):
        assert client.get(f"/workers?pool={pool}").json()["pool"]["name"] == pool
        assert client.get(f"/id?pool={pool}").status_code == 200
    answer = client.get("/id?pool=c")
    assert answer.status_code == 404
    assert answer.json() == {
        "type": "urn:problem-type:snowredis:PoolNotFound",
        "title": "Pool not found",
        "status": 404,
        "detail": "this service has no pool 'c'; it has a, b",
        "error": "PoolNotFound",
    }


@pytest.mark.parametrize("count", ["", "0", "-1", "1.5", "x", "10001", "9" * 5000, "%F0", "١", "1_0", " 1"])
def test_a_count_that_cannot_be_is_400(client: TestClient, count: str) -> None:
    answer = client.get(f"/ids?count={count}" if len(count) < 50 else f"/ids?count={count[:1000]}")
    assert (answer.status_code, answer.json()["error"]) == (400, "BadCount")


def test_the_largest_count_is_answered(client: TestClient) -> None:
    assert len(set(client.get("/ids?count=10000").json()["ids"])) == 10_000


def test_decode_takes_every_form_apart(client: TestClient) -> None:
    an_id = int(client.get("/id").json()["id"])
    told = client.get(f"/decode/{an_id}").json()
    assert told["id"] == str(an_id)
    assert list(told["bits"]) == ["timestamp", "backup", "worker", "sequence"]
    assert int("".join(told["bits"].values()), 2) == an_id
    assert told["time"].endswith("Z")
    assert (told["gene"], told["datacenter_fields"]) == (0, {})
    assert client.get(f"/decode/{told['forms']['base62']}").json()["form"] == "base62"
    for form, text in told["forms"].items():
        assert client.get(f"/decode/{text}?form={form}").json()["id"] == str(an_id), form


@pytest.mark.parametrize(
    "text", ["!", "9" * 99, "-", "-5", "-1234567890123", "9223372036854775808", "x" * 101, "%00", "<script>"]
)
def test_what_is_no_id_is_400_and_says_why(client: TestClient, text: str) -> None:
    answer = client.get(f"/decode/{text}")
    assert answer.status_code == 400
    assert answer.json()["error"] == "InvalidId"
    assert answer.headers["content-type"] == "application/problem+json"


def test_health_and_readiness_need_no_more_than_a_lease(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"ok": True}
    told = client.get("/readyz").json()
    assert (told["ready"], [*told["pools"]]) == (True, ["a", "b"])
    one = client.get("/readyz?pool=b").json()["pools"]
    assert [*one] == ["b"]
    assert (one["b"]["ready"], one["b"]["error"], one["b"]["detail"]) == (True, None, None)
    assert client.get("/readyz?pool=c").status_code == 404


def test_without_a_lease_it_is_not_ready_and_gives_no_ids() -> None:
    redis, layout = fakeredis.FakeRedis(), "41/0/2/0/10"
    new_pool(redis, "a", layout=layout)
    with snowredis.connect(redis, pool="a", layout=layout) as other:
        other.next_id()
        with client_of(create_app(redis, pools=["a"])) as client:
            answer = client.get("/readyz")
            assert (answer.status_code, answer.json()["error"]) == (503, "PoolExhausted")
            assert answer.json()["pools"]["a"]["ready"] is False
            # another worker's lease of 30 s
            assert 10 <= int(answer.headers["retry-after"]) <= 30
            assert client.get("/healthz").status_code == 200
            answer = client.get("/id")
            assert (answer.status_code, answer.json()["error"]) == (503, "PoolExhausted")
            assert int(answer.headers["retry-after"]) > 0


def test_at_the_end_of_a_layout_it_is_not_ready_and_the_request_was_not_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePool(monkeypatch)
    clock = fake.clock
    layout = Layout(timestamp_bits=20, backup_bits=2, worker_bits=5, sequence_bits=5, epoch_ms=DEFAULT_START_MS)
    fake.connect(layout=layout)
    with client_of(create_app(fake.client, pools=["test"], clock=clock)) as client:
        assert client.get("/id").status_code == client.get("/readyz").status_code == 200
        # without a heartbeat in between, the lease would have ended
        app: Any = client.app
        lease = app.pools.find({})._ids.lease
        clock.sleep((layout.end_ms - clock.time_ns() / 1e6) / 1000)
        assert lease is not None
        for path in ("/id", "/ids?count=2", "/readyz"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["error"]) == (503, "LayoutError"), path
            # time does not help
            assert "retry-after" not in answer.headers
        assert client.get("/readyz").json()["pools"]["test"]["ready"] is False


def test_below_a_prefix_it_serves_what_it_serves_without(client: TestClient) -> None:
    app: Any = client.app
    mounted = TestClient(Starlette(routes=[Mount("/ids", app)]), base_url="http://127.0.0.1:8600")
    for path in ("/id", "/ids?count=2", "/workers", "/healthz", "/", "/static/page.js"):
        assert mounted.get(f"/ids{path}").status_code == 200, path
    assert len(mounted.get("/ids/ids?count=2").json()["ids"]) == 2
    # nothing below the prefix leads out of it
    for path in ("/workers/", "//workers", "/static/"):
        answer = mounted.get(f"/ids{path}", follow_redirects=False)
        assert (answer.status_code, answer.headers.get("location")) == (404, None), path


def test_redis_away_is_503_at_once_and_the_service_starts_all_the_same() -> None:
    with client_of(create_app("redis://127.0.0.1:1/0")) as client:
        for path in ("/id", "/ids?count=10", "/workers", "/whois/1"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["error"]) == (503, "StoreUnavailable"), path
            assert answer.headers["retry-after"] == "3"
        assert client.get("/readyz").json()["error"] == "StoreUnavailable"


@pytest.mark.parametrize(
    ("error", "status", "retry_after_s"),
    [
        (StoreUnavailable("h", "no"), 503, 3),
        (PoolExhausted("a", 4, 30_000), 503, 30),
        (PoolExhausted("a", 4, 0), 503, 1),
        (ClockMovedBack(86_400_000, "raise"), 503, 86_400),
        (snowredis.LayoutMismatch("a", "x", "y"), 500, 0),
        (snowredis.PoolNotFound("a"), 503, 3),
        (snowredis.InvalidId("a"), 400, 0),
    ],
)
def test_every_error_has_a_status(error: SnowredisError, status: int, retry_after_s: int) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.retry_after_s) == (status, retry_after_s)
    code = type(error).__name__
    members = problem.fields()
    assert members.pop("retry_after_s", 0) == retry_after_s
    assert members.pop("title").replace(" ", "").lower() == code.lower()
    assert members == {
        "type": f"urn:problem-type:snowredis:{code}",
        "status": status,
        "detail": str(error),
        "error": code,
    }


@pytest.mark.parametrize("path", ["id", "metrics"])
def test_a_service_whose_lifespan_nothing_runs_says_so(path: str) -> None:
    answer = TestClient(Starlette(routes=[Mount("/x", app_of(insecure=True, hosts=["*"]))])).get(f"/x/{path}")
    assert (answer.status_code, "nothing runs its lifespan" in answer.json()["detail"]) == (503, True)


def test_settings_that_cannot_work_stop_the_start() -> None:
    app = app_of(layout="twitter")
    with pytest.raises(snowredis.LayoutMismatch):
        asyncio.run(app.start())


@pytest.mark.parametrize(
    "options",
    [{"pools": []}, {"pools": ["a", "a"]}, {"pools": ["a b"]}, {"token": "short"}, {"poool": "a"}, {"ttl": "x"}]
    + [{"wait_s": -1}, {"drain_s": True}, {"hosts": ["ids.internal:443"]}, {"hosts": ["https://ids.internal"]}],
)
def test_a_service_that_cannot_work_is_not_made(options: dict[str, Any]) -> None:
    with pytest.raises(snowredis.ConfigError):
        create_app("redis://127.0.0.1:1/0", **{"pools": ["a"]} | options)


def test_a_pool_in_memory_is_not_served() -> None:
    with pytest.raises(snowredis.ConfigError, match="Use embedded://"):
        create_app(memory_pool())


def test_what_nobody_thought_of_is_500_and_says_nothing(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> Any:
        raise RuntimeError("secret")

    monkeypatch.setattr("snowredis.web.served.ServedPool.make_ids", fail)
    answer = client.get("/id")
    assert (answer.status_code, answer.json()["error"]) == (500, "InternalError")
    assert "secret" not in answer.text


# --- on a real Redis -------------------------------------------------------------------------------


def test_settings_that_nobody_gives_are_the_pools_own(server: RedisServer, pool_name: str) -> None:
    new_pool(server.url, pool_name, layout="twitter", ttl=7)
    with client_of(create_app(server.url, pools=[pool_name])) as client:
        assert client.get("/readyz").status_code == 200
        assert client.get("/workers").json()["pool"]["settings"]["ttl_ms"] in (7000, "7000")
        assert client.get("/decode/1").json()["layout"].startswith("41/")
    assert snowredis.WorkerPool(server.url, pool_name).workers() == []


def test_a_new_pool_says_for_how_long_its_first_worker_waits(server: RedisServer, pool_name: str) -> None:
    variables = {"URL": server.url, "SERVE_POOLS": pool_name, "SERVE_CREATE": "1", "SERVE_WAIT_S": "0"}
    with client_of(from_environment({f"SNOWREDIS_{name}": text for name, text in variables.items()})) as client:
        answer = client.get("/id")
        assert (answer.status_code, answer.json()["error"]) == (503, "FloorWait")
        # ttl + max_clock_lead + failover_slack, less what has passed
        assert 10 <= int(answer.headers["retry-after"]) <= 35
        assert client.get("/readyz").status_code == 503


# --- the environment -------------------------------------------------------------------------------


def test_the_environment_says_what_is_served() -> None:
    app = from_environment(
        {
            "SNOWREDIS_URL": "redis://h/1",
            "SNOWREDIS_SERVE_POOLS": "a b",
            "SNOWREDIS_SERVE_TOKEN": "0123456789abcdef",
            "SNOWREDIS_SERVE_WAIT_S": "0.5",
            "SNOWREDIS_TTL": "5",
        }
    )
    assert app.pools.names == ["a", "b"]
    assert not app.guard.local_only
    assert from_environment({"SNOWREDIS_POOL": "x"}).pools.names == ["x"]


@pytest.mark.parametrize(
    ("name", "text"), [("WAIT_S", "long"), ("INSECURE", "perhaps"), ("TOKEN", "short"), ("TOKEN_FILE", "/nowhere")]
)
def test_a_variable_that_makes_no_sense_is_refused(name: str, text: str) -> None:
    with pytest.raises(snowredis.ConfigError, match=name if name.startswith(("WAIT", "INS")) else "token"):
        from_environment({f"SNOWREDIS_SERVE_{name}": text})


# --- for programs ----------------------------------------------------------------------------------


def test_the_description_names_each_path_that_is_served_and_no_other(client: TestClient) -> None:
    app: Any = client.app
    served = {route.path.replace(":path}", "}") for route in app._router.routes}
    pages = {path for path in served if path == "/" or path.startswith("/static/")}
    assert set(client.get("/openapi.json").json()["paths"]) == served - pages


def test_metrics_count_what_was_served_of_each_pool_and_all_errors_from_the_start(client: TestClient) -> None:
    pytest.importorskip("prometheus_client")
    client.get("/ids?count=30&pool=b")
    client.get("/ids?count=0")
    text = client.get("/metrics").text
    check_text(text)
    assert 'snowredis_served_ids_total{pool="b"} 30.0' in text
    assert 'snowredis_http_errors_total{status="400"} 1.0' in text
    # so that the first error is an increase
    assert 'snowredis_http_errors_total{status="503"} 0.0' in text
    assert 'snowredis_pool_up{pool="a"}' in text
    assert 'snowredis_pool_used{pool="b"} 1.0' in text
    assert "snowredis_ids_total{" in text
